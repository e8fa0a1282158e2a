"""Least squares for a few unknowns: non-negative ones of linear equations, and positive figures of any formula.

scipy.optimize.nnls would do the former; scipy is not a dependency of alpa_explore. The latter are fitted to the
logarithms of measured seconds, from fixed starting values: every figure is multiplied and divided by a step that
shrinks where nothing gets better. There is no chance in it, so the same points always give the same figures; formulas
need no derivatives, and may have ceilings and maxima.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import combinations
from typing import TypeAlias

import numpy as np

from alpa_explore.calibration import tuning
from alpa_explore.numerics.arrays import Floats

Bounds: TypeAlias = Mapping[str, tuple[float, float, float]]
"""Figure -> (start, least, most), all above 0."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """The fitted figures of one formula, and how well they tell the points."""

    kind: str
    figures: Mapping[str, float]
    points: int
    mean_error: float
    """Mean of |predicted / measured − 1|."""
    worst_error: float


def pattern_search(kind: str, predicted: Callable[[Floats], Floats], seconds: Floats, start: Bounds) -> Fit:
    """The figures that minimise the squared logarithm of predicted over measured seconds; `predicted` takes the
    figures, in the order of `start`, and returns seconds of the shape of `seconds`."""
    x, least, most = (np.array([bounds[i] for bounds in start.values()]) for i in range(3))
    x = np.clip(x, least, most)

    def error(at: Floats) -> float:
        return float((np.log(predicted(at) / seconds) ** 2).mean())

    best, step = error(x), tuning.FIRST_STEP
    while step > tuning.LAST_STEP:
        before = best
        for place in range(len(x)):
            for factor in (1 + step, 1 / (1 + step)):
                tried = x.copy()
                tried[place] = min(max(x[place] * factor, least[place]), most[place])
                if (found := error(tried)) < best:
                    x, best = tried, found
        if best >= before * (1 - tuning.LEAST_GAIN):
            step /= 2
    errors = np.abs(predicted(x) / seconds - 1)
    return Fit(
        kind=kind,
        figures=dict(zip(start, x.tolist(), strict=True)),
        points=len(seconds),
        mean_error=float(errors.mean()),
        worst_error=float(errors.max()),
    )


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
