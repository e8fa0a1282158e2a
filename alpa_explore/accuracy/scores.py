"""The errors of a set of runs: of time, of memory, of the order among layouts, and of what fits.

    error of a run          e = predicted / measured − 1
    mean absolute error     mean |e|          bias   mean e

Runs that count: for time `MeasuredRun.timed`, for memory and what fits `ran` (and `failed`), with a prediction.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations
from statistics import fmean, median

from alpa_explore.accuracy.choices import choices, rivals
from alpa_explore.accuracy.measured_run import MeasuredRun


@dataclass(frozen=True, slots=True, kw_only=True)
class Errors:
    """The errors of some predictions, as fractions."""

    runs: int
    mean: float
    """Mean of |e|."""
    median: float
    """Median of |e|."""
    bias: float
    """Mean of e: positive where predictions are too long, or too large."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fitting:
    """Numbers of runs by whether they were said to fit in memory, and whether they ran."""

    fits_and_ran: int
    fits_but_failed: int
    too_large_but_ran: int
    too_large_and_failed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """All scores of a set of runs; None where no run has what a score needs."""

    runs: int
    """All that are listed, with those that failed or were refused."""
    refused: int
    """Without a prediction."""
    left_out: int
    """With a fault of the measurement."""
    seconds: Errors | None
    bytes_: Errors | None
    tau: float | None
    """Kendall's tau among the layouts of one model on one number of GPUs, weighted by pairs."""
    choices: int
    """Groups of layouts among which one could choose."""
    regret: float | None
    """Mean over these groups: time of the predicted best / time of the best − 1."""
    fitting: Fitting


def score(runs: Sequence[MeasuredRun]) -> Score:
    """The scores of some runs."""
    chosen = choices(runs)
    return Score(
        runs=len(runs),
        refused=sum(bool(run.refused) for run in runs),
        left_out=sum(bool(run.left_out) for run in runs),
        seconds=errors(run.seconds_error for run in runs),
        bytes_=errors(run.bytes_error for run in runs),
        tau=order_of_layouts(runs),
        choices=len(chosen),
        regret=fmean(choice.regret for choice in chosen) if chosen else None,
        fitting=fitting(runs),
    )


def errors(values: Iterable[float | None]) -> Errors | None:
    """The mean, median and bias of some errors; None of them is left out, and nothing but None gives None."""
    known = [value for value in values if value is not None]
    if not known:
        return None
    sizes = [abs(value) for value in known]
    return Errors(runs=len(known), mean=fmean(sizes), median=median(sizes), bias=fmean(known))


def fitting(runs: Iterable[MeasuredRun]) -> Fitting:
    """How many runs were said to fit, and how many ran."""
    told = [(run.fits, run.failed) for run in runs if run.fits is not None and (run.ran or run.failed)]
    return Fitting(
        fits_and_ran=told.count((True, False)),
        fits_but_failed=told.count((True, True)),
        too_large_but_ran=told.count((False, False)),
        too_large_and_failed=told.count((False, True)),
    )


def order_of_layouts(runs: Iterable[MeasuredRun]) -> float | None:
    """Kendall's tau in each group of `choices.rivals`, weighted by the pairs of the group; None where no pair
    differs."""
    weighted, pairs = 0.0, 0
    for group in rivals(runs):
        tau = kendall_tau([pace for pace, _, _ in group], [pace for _, pace, _ in group])
        if tau is not None:
            count = len(group) * (len(group) - 1) // 2
            weighted, pairs = weighted + tau * count, pairs + count
    return weighted / pairs if pairs else None


def kendall_tau(first: Sequence[float], second: Sequence[float]) -> float | None:
    """tau-b: (concordant − discordant pairs) / √(pairs untied in one × pairs untied in the other); None for 0 / 0.

    Source: Kendall, "The treatment of ties in ranking problems", Biometrika 33 (1945).
    """
    total, untied_first, untied_second = 0, 0, 0
    for i, j in combinations(range(len(first)), 2):
        a = (first[i] > first[j]) - (first[i] < first[j])
        b = (second[i] > second[j]) - (second[i] < second[j])
        total, untied_first, untied_second = total + a * b, untied_first + (a != 0), untied_second + (b != 0)
    norm = float((untied_first * untied_second) ** 0.5)
    return total / norm if norm else None
