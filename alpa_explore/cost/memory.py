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
