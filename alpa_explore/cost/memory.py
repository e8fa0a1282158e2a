"""Peak memory by liveness: how many bytes are alive at once when tensors live over intervals of time."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def peak_bytes(starts: NDArray[np.int64], ends: NDArray[np.int64], sizes: NDArray[np.float64]) -> float:
    """Largest sum of `sizes` alive at one step; tensor i is alive at steps starts[i] … ends[i], both included."""
    if len(sizes) == 0:
        return 0.0
    change = np.bincount(np.concatenate((starts, ends + 1)), np.concatenate((sizes, -sizes)))
    return float(change.cumsum().max())
