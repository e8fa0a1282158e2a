"""Peak memory by liveness: the most bytes alive at any step, where each tensor is alive over an interval of steps."""

from __future__ import annotations

import numpy as np

from alpa_explore.numerics.arrays import Floats, Ints


def peak_bytes(starts: Ints, ends: Ints, sizes: Floats) -> Floats:
    """For each row of `sizes` [rows, tensors] the largest sum of those alive at one step; tensor i is alive at steps
    starts[i] … ends[i], inclusive."""
    rows, tensors = sizes.shape
    if tensors == 0:
        return np.zeros(rows)
    steps = int(ends.max()) + 2
    at = np.concatenate((starts, ends + 1)) + steps * np.arange(rows)[:, None]
    change = np.bincount(at.ravel(), np.concatenate((sizes, -sizes), axis=1).ravel(), minlength=rows * steps)
    peaks: Floats = change.reshape(rows, steps).cumsum(axis=1).max(axis=1)
    return peaks
