"""Peak memory by liveness: the most bytes alive at any step, where each tensor is alive over an interval of steps."""

from __future__ import annotations

import numpy as np

from alpa_explore.numerics.arrays import Floats, Ints


def peak_bytes(starts: Ints, ends: Ints, sizes: Floats) -> float:
    """Largest sum of the `sizes` alive at one step; tensor i is alive at steps starts[i] … ends[i], inclusive."""
    if len(sizes) == 0:
        return 0.0
    change = np.bincount(np.concatenate((starts, ends + 1)), np.concatenate((sizes, -sizes)))
    return float(change.cumsum().max())


def peak_bytes_of_rows(starts: Ints, ends: Ints, sizes: Floats) -> Floats:
    """`peak_bytes` for each row of `sizes` [rows, tensors]."""
    rows, tensors = sizes.shape
    if tensors == 0:
        return np.zeros(rows)
    steps = int(ends.max()) + 2
    at = np.concatenate((starts, ends + 1)) + steps * np.arange(rows)[:, None]
    change = np.bincount(at.ravel(), np.concatenate((sizes, -sizes), axis=1).ravel(), minlength=rows * steps)
    peaks: Floats = change.reshape(rows, steps).cumsum(axis=1).max(axis=1)
    return peaks
