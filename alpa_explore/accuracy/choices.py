"""Does the planner choose well? Of the measured layouts of one model on one number of GPUs, which is predicted to be
best, and how much longer does it take than the one that is best?

    regret = measured time of the predicted best / measured time of the best − 1

Times are of a sample, so that runs with other global batches can be compared.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from alpa_explore.accuracy.measured_run import MeasuredRun

Rival = tuple[float, float, MeasuredRun]
"""(predicted, measured seconds of a sample, the run)."""
_Key = tuple[str, str, str, str, int, int | None, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """One group of layouts."""

    runs: tuple[MeasuredRun, ...]
    """Those that ran and have a prediction."""
    predicted_best: MeasuredRun
    best: MeasuredRun
    """With the least measured time."""
    regret: float
    median_regret: float
    """Of the layout in the middle: what a choice without any knowledge costs half of the time."""
    failed_before: int
    """Runs that failed, although they were said to fit and to be faster than the predicted best."""


def choices(runs: Iterable[MeasuredRun]) -> list[Choice]:
    """One for each group with at least two layouts that ran."""
    runs = tuple(runs)
    failed: dict[_Key, list[float]] = {}
    for run in runs:
        if run.failed and run.fits and run.predicted_seconds:
            failed.setdefault(_key(run), []).append(run.predicted_seconds / (run.global_batch or 1))
    found = []
    for group in rivals(runs):
        predicted, seconds, picked = min(group, key=lambda rival: rival[0])
        paces = sorted(pace for _, pace, _ in group)
        found.append(
            Choice(
                runs=tuple(run for _, _, run in group),
                predicted_best=picked,
                best=min(group, key=lambda rival: rival[1])[2],
                regret=seconds / paces[0] - 1.0,
                median_regret=paces[len(paces) // 2] / paces[0] - 1.0,
                failed_before=sum(pace < predicted for pace in failed.get(_key(picked), ())),
            )
        )
    return found


def rivals(runs: Iterable[MeasuredRun]) -> Iterator[list[Rival]]:
    """The groups of at least two different layouts that ran: same source, device, software, model, GPUs, sequence and
    precision."""
    groups: dict[_Key, list[Rival]] = {}
    for run in runs:
        if run.seconds_error is not None and run.predicted_seconds and run.measured_seconds:
            samples = run.global_batch or 1
            rival = (run.predicted_seconds / samples, run.measured_seconds / samples, run)
            groups.setdefault(_key(run), []).append(rival)
    for group in groups.values():
        if len({run.layout + run.recompute for _, _, run in group}) > 1:
            yield group


def _key(run: MeasuredRun) -> _Key:
    return (run.source, run.device, run.software, run.model, run.gpus, run.sequence, run.precision)
