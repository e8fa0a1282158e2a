"""The values of figures that tell measured runs best: Levenberg and Marquardt's method on logarithms, within bounds.

Minimised is

    Σ ρ((ln predicted − ln measured) / spread)  +  Σ (prior · (ln value − ln start))²

over runs and over figures, where ρ(r) = 2 (√(1 + r²) − 1) grows like r² for small and like 2 |r| for large errors, so
that a few runs that are slow for reasons of their own do not decide. Sources: Levenberg, "A method for the solution of
certain non-linear problems in least squares", Quart. Appl. Math. 2 (1944); Marquardt, J. SIAM 11 (1963); ρ is the
pseudo-Huber loss.

There is no chance in it: the same runs and starts give the same figures.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from alpa_explore.numerics.arrays import Floats
from benchmarks.figures_fit import tuning
from benchmarks.figures_fit.figures import Figure, Values
from benchmarks.figures_fit.predicted import PredictedRuns


@dataclass(frozen=True, slots=True, kw_only=True)
class FittedFigure:
    """A figure and the value that was found."""

    figure: Figure
    value: float
    told: float
    """Change of the predicted logarithms, in spreads, for a small relative change of the figure: their Euclidean norm
    over the change. Below `tuning.PRIOR` the runs hardly tell the figure, and it stays near its start."""

    @property
    def remark(self) -> str:
        """What to know about the value; empty where there is nothing."""
        if not self.told:
            return "no run depends on it"
        if min(self.value / self.figure.low, self.figure.high / self.value) < 1 + tuning.NEAR_BOUND:
            return "at its bound"
        return "hardly told by the runs" if self.told < tuning.PRIOR else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class FiguresFit:
    """The outcome of a fit."""

    values: Mapping[str, float]
    """Of all figures; those that no run depends on have the value from which the fit began."""
    fitted: tuple[FittedFigure, ...]
    iterations: int
    errors: tuple[float, ...]
    """What is minimised, at the start and after each iteration."""


def fit_figures(
    runs: PredictedRuns,
    measured: Floats,
    spreads: Floats,
    start: Values,
    *,
    moves: Callable[[Figure], bool] = lambda figure: True,
    iterations: int = tuning.ITERATIONS,
    say: Callable[[int, float], None] | None = None,
) -> FiguresFit:
    """Fit the figures of `runs` that some run depends on and that `moves` names, from the values `start`.

    `measured` seconds and relative `spreads` have the shape [runs]. `say` is told of iterations and errors.
    """
    problem = _Problem(runs, np.log(measured), spreads, start, moves)
    x = problem.first
    seconds, residuals = problem.at(x)
    errors, damping, slopes = [float(residuals @ residuals)], tuning.FIRST_DAMPING, problem.slopes(x, seconds)
    for iteration in range(iterations):
        for _ in range(tuning.TRIES):
            tried = problem.stepped(x, slopes, residuals, damping)
            at = problem.at(tried)
            if (error := float(at[1] @ at[1])) < errors[-1]:
                break
            damping *= tuning.MORE_DAMPING
        else:
            break
        x, (seconds, residuals) = tried, at
        damping = max(damping / tuning.LESS_DAMPING, tuning.LEAST_DAMPING)
        slopes = problem.slopes(x, seconds)
        errors.append(error)
        if say is not None:
            say(iteration + 1, error)
        before = errors[-1 - tuning.PATIENCE :]
        if len(before) > tuning.PATIENCE and all(a - b < tuning.LEAST_GAIN * a for a, b in itertools.pairwise(before)):
            break
    values, told = problem.values(x), dict(zip(problem.names, problem.told(slopes), strict=True))
    return FiguresFit(
        values=values,
        fitted=tuple(FittedFigure(figure=f, value=values[f.name], told=told.get(f.name, 0.0)) for f in runs.figures),
        iterations=len(errors) - 1,
        errors=tuple(errors),
    )


class _Problem:
    """Residuals of runs and figures, and their derivatives by the logarithms of figures."""

    def __init__(
        self, runs: PredictedRuns, logarithms: Floats, spreads: Floats, start: Values, moves: Callable[[Figure], bool]
    ) -> None:
        self._runs, self._logarithms, self._spreads, self._start = runs, logarithms, spreads, start
        self._figures = [f for f in runs.figures if moves(f) and runs.concerned(f)]
        self.names = tuple(f.name for f in self._figures)
        self._low = np.log([f.low for f in self._figures])
        self._high = np.log([f.high for f in self._figures])
        self._centre = np.log([f.start for f in self._figures])
        self.first = np.clip(np.log([start[name] for name in self.names]), self._low, self._high)

    def values(self, x: Floats) -> dict[str, float]:
        """Of all figures."""
        return {**self._start, **dict(zip(self.names, np.exp(x).tolist(), strict=True))}

    def at(self, x: Floats) -> tuple[Floats, Floats]:
        """(seconds of all runs, residuals: of runs that count, then of figures)."""
        seconds = self._runs.seconds(self.values(x))
        return seconds, self._residuals(seconds, x)

    def _residuals(self, seconds: Floats, x: Floats) -> Floats:
        of_runs = (np.log(seconds) - self._logarithms) / self._spreads
        robust = np.sign(of_runs) * np.sqrt(2 * (np.sqrt(1 + of_runs**2) - 1))
        return np.concatenate([robust, tuning.PRIOR * (x - self._centre)])

    def slopes(self, x: Floats, seconds: Floats) -> Floats:
        """Derivatives of the residuals, shape [residuals, figures], from one difference for each figure."""
        base = self._residuals(seconds, x)
        slopes = np.zeros((len(base), len(x)))
        for place, figure in enumerate(self._figures):
            step = tuning.DIFFERENCE if x[place] + tuning.DIFFERENCE <= self._high[place] else -tuning.DIFFERENCE
            moved = x.copy()
            moved[place] += step
            changed = self._runs.seconds(self.values(moved), changed=self._runs.concerned(figure), others=seconds)
            slopes[:, place] = (self._residuals(changed, moved) - base) / step
        return slopes

    def stepped(self, x: Floats, slopes: Floats, residuals: Floats, damping: float) -> Floats:
        """A damped Gauss–Newton step; figures at a bound stay there where the error falls beyond it."""
        normal, gradient = slopes.T @ slopes, slopes.T @ residuals
        held = ((x <= self._low + 1e-9) & (gradient > 0)) | ((x >= self._high - 1e-9) & (gradient < 0))
        free = np.flatnonzero(~held)
        damped = normal + damping * np.diag(np.diag(normal) + 1e-9)
        step = np.zeros(len(x))
        step[free] = np.linalg.solve(damped[np.ix_(free, free)], -gradient[free])
        step = np.clip(step, -tuning.LONGEST_STEP, tuning.LONGEST_STEP)
        return np.asarray(np.clip(x + step, self._low, self._high))

    def told(self, slopes: Floats) -> list[float]:
        """For each figure the norm of the slopes of runs."""
        of_runs = slopes[: len(slopes) - len(self._figures)]
        return [float(norm) for norm in np.linalg.norm(of_runs, axis=0)]
