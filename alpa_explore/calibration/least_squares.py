"""Non-negative least squares for a few unknowns.

scipy.optimize.nnls would do the same; scipy is not a dependency of alpa_explore.
"""

from __future__ import annotations

from itertools import combinations

import numpy as np

from alpa_explore.numerics.arrays import Floats


def non_negative(rows: Floats, targets: Floats) -> Floats:
    """The x >= 0 that minimises |rows x - targets|, by trying every subset of the columns as the support of x."""
    columns = rows.shape[1]
    best, least = np.zeros(columns), float(targets @ targets)
    for count in range(1, columns + 1):
        for used in combinations(range(columns), count):
            part = np.linalg.lstsq(rows[:, used], targets, rcond=None)[0]
            error = float(((rows[:, used] @ part - targets) ** 2).sum())
            if (part >= 0).all() and error < least:
                best, least = np.zeros(columns), error
                best[list(used)] = part
    return best
