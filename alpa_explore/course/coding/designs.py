"""Open design tasks: a function chooses layouts, and is graded by its regret on runs that somebody measured.

regret = measured time of the chosen layout / measured time of the best − 1, as in lesson 13; a mean over the groups of
the largest published sweep of layouts (Llama-like models on 8 to 256 H100, `accuracy/data`). Any rule passes that
chooses well. What a rule is given never holds a measured time.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import cache
from random import Random
from typing import Any, TypeAlias

from alpa_explore.accuracy.measured_run import MeasuredRun
from alpa_explore.accuracy.record import stored_record
from alpa_explore.course.coding.lockstep import Wrong

Solution: TypeAlias = Callable[..., Any]
SOURCE = "nanotron_playbook_h100"
LEAST_RUNS = 8
"""Layouts of a group that ran."""
MEASUREMENTS = 3


@cache
def _groups() -> tuple[tuple[MeasuredRun, ...], ...]:
    """Runs of one model on one number of devices, ran or failed, in an order that says nothing."""
    found: dict[tuple[str, int], list[MeasuredRun]] = {}
    for run in stored_record().of(SOURCE):
        if run.predicted_seconds and ((run.timed and run.measured_seconds) or run.failed):
            found.setdefault((run.sizes, run.gpus), []).append(run)
    kept = [runs for _, runs in sorted(found.items()) if sum(run.timed for run in runs) >= LEAST_RUNS]
    for runs in kept:
        Random(len(runs)).shuffle(runs)
    return tuple(map(tuple, kept))


def _model(run: MeasuredRun) -> dict[str, int]:
    """What is known of the model: its sizes, tokens of a sample and devices."""
    layers, hidden, heads, vocabulary = (int(n.replace(",", "")) for n in re.findall(r"\d[\d,]*", run.sizes))
    own = {"layers": layers, "hidden": hidden, "heads": heads, "vocabulary": vocabulary, "sequence": run.sequence or 0}
    return own | {"devices": run.gpus, "parameters": round(float(run.model.rpartition("-")[2].rstrip("B")) * 1e9)}


def _layout(run: MeasuredRun) -> dict[str, int | None]:
    return {
        "tp": run.tensor,
        "pp": run.pipeline,
        "dp": run.data,
        "zero": run.zero_stage,
        "samples": run.micro_batch,
        "microbatches": run.microbatches,
    }


def _chosen(found: Any, runs: Sequence[MeasuredRun]) -> MeasuredRun:
    try:
        return runs[range(len(runs)).index(found)]
    except ValueError:
        raise Wrong(f"It returns {found!r:.80}: choose by a number from 0 to {len(runs) - 1}.") from None


def _graded(picked: Sequence[tuple[Sequence[MeasuredRun], MeasuredRun]], most: float, failing: int = 0) -> None:
    """Print each regret; `Wrong` where their mean is above `most`, or more than `failing` choices did not run."""
    regrets, failed = [], 0
    for runs, own in picked:
        best = min((run for run in runs if run.timed), key=lambda run: run.measured_seconds or 0.0)
        where = f"{own.model} on {own.gpus}: {own.layout}"
        if own.measured_seconds and best.measured_seconds:
            regrets.append(own.measured_seconds / best.measured_seconds - 1)
            print(f"{regrets[-1]:6.0%}  {where}" + (f"; the best: {best.layout}" if own != best else ""))
        else:
            failed += 1
            print(f"failed  {where}")
    mean = sum(regrets) / max(len(regrets), 1)
    print(f"mean regret {mean:.0%} of {len(regrets)} groups; {failed} choices did not run")
    if failed > failing:
        raise Wrong(f"{failed} of {len(picked)} choices did not run when they were tried; {failing} may fail.")
    if mean > most:
        raise Wrong(f"The mean regret is {mean:.0%}; it should be {most:.0%} at most.")


def rule_of_thumb(solution: Solution) -> None:
    """Choose among the layouts that ran, by their degrees alone."""
    groups = [[run for run in runs if run.timed] for runs in _groups()]
    _graded([(runs, _chosen(solution(_model(runs[0]), [*map(_layout, runs)]), runs)) for runs in groups], 0.6)


def layout_that_runs(solution: Solution) -> None:
    """Choose among all layouts; three of four failed in some groups, most for lack of memory."""
    groups = _groups()
    picked = [(runs, _chosen(solution(_model(runs[0]), [*map(_layout, runs)]), runs)) for runs in groups]
    _graded(picked, 0.6, failing=5)


def three_measurements(solution: Solution) -> None:
    """Choose with predictions at hand and three measurements."""
    picked = []
    for runs in [[run for run in group if run.timed] for group in _groups()]:
        asked: set[Any] = set()

        def measure(place: Any, runs: Sequence[MeasuredRun] = runs, asked: set[Any] = asked) -> float | None:
            run = _chosen(place, runs)
            asked.add(place)
            if len(asked) > MEASUREMENTS:
                raise Wrong(f"It measures more than {MEASUREMENTS} layouts of a group.")
            return run.measured_seconds

        picked.append((runs, _chosen(solution([run.predicted_seconds for run in runs], measure), runs)))
    _graded(picked, 0.03)
