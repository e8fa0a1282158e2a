"""Least squares with no figure below zero, for the few figures of a device."""

from __future__ import annotations

from itertools import combinations

import numpy as np

from alpa_explore.numerics.arrays import Floats


def non_negative(rows: Floats, targets: Floats) -> Floats:
    """The x >= 0 of the least |rows x - targets|: the best of the columns that may be above 0, each subset tried."""
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
