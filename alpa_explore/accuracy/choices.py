"""Does the planner choose well? Of the measured layouts of one model on one number of GPUs, which is predicted to be
best, and how much longer does it take than the one that is best?

    regret = measured time of the predicted best / measured time of the best − 1

Times are of a sample, so that runs with other global batches can be compared.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean

from alpa_explore.accuracy.measured_run import MeasuredRun

Rival = tuple[float, float, MeasuredRun]
"""(predicted, measured seconds of a sample, the run)."""
_Key = tuple[str, str, str, str, int, int | None, str]
_Layout = tuple[str, str, int | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """One group of layouts."""

    runs: tuple[MeasuredRun, ...]
    """Those that ran and have a prediction."""
    layouts: int
    """Different ones: a layout may have run several times."""
    predicted_best: MeasuredRun
    best: MeasuredRun
    """With the least measured time."""
    regret: float
    median_regret: float
    """Of the layout in the middle: what a choice without any knowledge costs half of the time."""
    failed_before: int
    """Runs that failed, although they were said to fit and to be faster than the predicted best."""


def choices(runs: Iterable[MeasuredRun]) -> list[Choice]:
    """One for each group with at least two layouts that ran.

    A choice is made among the layouts that are said to fit, or, where none is, among all.
    """
    runs = tuple(runs)
    failed: dict[_Key, list[float]] = {}
    for run in runs:
        if run.failed and run.fits and run.predicted_seconds:
            failed.setdefault(_key(run), []).append(run.predicted_seconds / _samples(run))
    return [_choice(group, failed.get(_key(group[0][2]), ())) for group in rivals(runs)]


def _choice(group: Sequence[Rival], failed: Sequence[float]) -> Choice:
    """The choice in a group; a layout that ran several times has the mean of its times."""
    times: dict[_Layout, list[float]] = {}
    for _, pace, run in group:
        times.setdefault(_layout(run), []).append(pace)
    paces = {layout: fmean(own) for layout, own in times.items()}
    fitting = [rival for rival in group if rival[2].fits is not False] or group
    predicted, _, picked = min(fitting, key=lambda rival: rival[0])
    best = min(group, key=lambda rival: paces[_layout(rival[2])])[2]
    ordered = sorted(paces.values())
    return Choice(
        runs=tuple(run for _, _, run in group),
        layouts=len(paces),
        predicted_best=picked,
        best=best,
        regret=paces[_layout(picked)] / ordered[0] - 1.0,
        median_regret=ordered[len(ordered) // 2] / ordered[0] - 1.0,
        failed_before=sum(pace < predicted for pace in failed),
    )


def rivals(runs: Iterable[MeasuredRun]) -> Iterator[list[Rival]]:
    """The groups of at least two different layouts that ran: same source, device, software, model, GPUs, sequence and
    precision."""
    groups: dict[_Key, list[Rival]] = {}
    for run in runs:
        if run.seconds_error is not None and run.predicted_seconds and run.measured_seconds:
            rival = (run.predicted_seconds / _samples(run), run.measured_seconds / _samples(run), run)
            groups.setdefault(_key(run), []).append(rival)
    for group in groups.values():
        if len({_layout(run) for _, _, run in group}) > 1:
            yield group


def _samples(run: MeasuredRun) -> int:
    """Of an iteration; 1 where the source does not say."""
    return run.global_batch or 1


def _key(run: MeasuredRun) -> _Key:
    """What is the same in a group."""
    model = f"{run.model}, {run.sizes}"
    return (run.source, run.device, run.software, model, run.gpus, run.sequence, run.precision)


def _layout(run: MeasuredRun) -> _Layout:
    """What decides on a run of a group."""
    return (run.layout, run.recompute, run.global_batch)
