"""Recalibrate the figures of a device from the tasks of runs and their measured times (`refit`).

The plan of a run is lowered again, so its model must have a recipe. For each kind of task (`0F`: forward of stage 0)
the median over microbatches and steps is used, without the first of several steps. Compute times are the mean over the
ranks of the stage. Of collective times the minimum is used: the rank that arrives last does not wait for others.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean, median
from typing import Any

from alpa_explore.arguments import checked
from alpa_explore.calibration.refit import LinkCollective, Observation, refit
from alpa_explore.cluster import Cluster
from alpa_explore.cost.kernels import Kernel
from alpa_explore.errors import OptionError, PlanFileError
from alpa_explore.plans.plan import load_plan
from alpa_explore.plans.rebuild import rebuild
from alpa_explore.programs.execution.rehearsal import CollectiveCall, rehearse
from alpa_explore.programs.lowering.decision import StageDecision, plan_decisions
from alpa_explore.programs.lowering.lower import lower
from alpa_explore.programs.program import Compute, Optimize, Program
from alpa_explore.schedules.csv_file import read_csv
from alpa_explore.schedules.task import LETTERS, ONCE_AN_ITERATION, Action, Task
from alpa_explore.store.read import EACH, conform, read_json

_MOST_BYTES = 2**28
"""Of a report; the measured times of a rank have some megabytes."""
_MEASURED = {"tasks": {EACH: {"seconds": [float], "collective_seconds": [float], "receive_seconds": [float]}}}
"""The form of `rank-N.measured.json`, as far as it is read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recalibration:
    """The figures of a cluster before and after a refit to runs."""

    before: Cluster
    """The cluster for which the runs were planned."""
    after: Cluster
    """The refitted cluster, for `reprice` or for other plans."""
    tasks: tuple[Observation, ...]
    """The observations of the fit."""


@checked("folders")
def recalibrate(folders: Sequence[str | os.PathLike[str]], *, allow_import: bool = False) -> Recalibration:
    """Fit launch time, efficiencies, memory bandwidth and links to the runs in these folders.

    OptionError where the runs were planned for different devices; PlanFileError where there is no measured run;
    RecipeError where a model cannot be rebuilt.
    """
    observed: list[Observation] = []
    first: Cluster | None = None
    for folder in folders:
        cluster, observations = observations_of(Path(folder), allow_import=allow_import)
        first = first or cluster
        figures, others = [(c.device, c.inside_node, c.between_nodes) for c in (first, cluster)]
        if figures != others:
            raise OptionError(
                "Runs that are fitted together must be planned for the same device",
                found=f"{first.device.name} in {folders[0]}, other figures ({cluster.device.name}) in {folder}",
                remedy="Give runs of plans with the same --cluster device.",
            )
        observed += observations
    if first is None:
        raise OptionError("There is no run to fit to", found="no folder", remedy="Name folders of runs.")
    return Recalibration(before=first, after=refit(first, observed), tasks=tuple(observed))


def observations_of(home: Path, *, allow_import: bool) -> tuple[Cluster, list[Observation]]:
    """The cluster for which a run was planned, and an observation for each kind of task."""
    try:
        ranks = conform(read_json(home / "run.json", _MOST_BYTES), {"ranks": [int]}, "run.json")["ranks"]
        measured = {r: conform(read_json(home / f"rank-{r}.measured.json", _MOST_BYTES), _MEASURED) for r in ranks}
    except (OSError, ValueError) as error:
        raise _no_run(home, error) from error
    plan = rebuild(load_plan(home / "plan.json"), allow_import=allow_import)
    schedule = read_csv(home / "schedule.csv")
    program, decisions = lower(plan, schedule), plan_decisions(plan, schedule)
    observed: list[Observation] = []
    for number, (stage, decision) in enumerate(zip(program.stages, decisions, strict=True)):
        rank = stage.ranks[0]
        _, tasks = rehearse(program, rank)
        for action in stage.tasks:
            try:
                typical = [_typical(measured[r]["tasks"], number, action) for r in stage.ranks]
            except (KeyError, ValueError) as error:  # a rank or a task that the plan has and the files do not
                raise _no_run(home, f"no times of {number}{LETTERS[action]} on all its ranks ({error})") from error
            compute, collective = fmean(c for c, _ in typical), min(c for _, c in typical)
            times = 1 if action in ONCE_AN_ITERATION else schedule.num_microbatches // schedule.copies
            collectives = tuple(_exchanged(plan.cluster, e) for e in tasks[number, action].collectives)
            observed.append(
                Observation(
                    name=f"{number}{LETTERS[action]}",
                    share=times * (compute + collective),
                    kernels=tuple(_kernels(program, decision, number, action)),
                    collectives=collectives,
                    compute_seconds=compute,
                    collective_seconds=collective,
                )
            )
    total = sum(observation.share for observation in observed) or 1.0
    return plan.cluster, [replace(observation, share=observation.share / total) for observation in observed]


def _no_run(home: Path, why: object) -> PlanFileError:
    return PlanFileError(
        "There is no measured run",
        found=f"{home}: {why}",
        remedy="Name the folder of a run that `alpa-explore launch` has brought to its end.",
    )


def _typical(tasks: Mapping[str, Any], stage: int, action: Action) -> tuple[float, float]:
    """The median (compute seconds, collective seconds) of the tasks of one kind on a rank."""
    letters = str(Task(action, stage, 0))[:-1]
    compute, collective = [], []
    for name, times in tasks.items():
        if name.rstrip("0123456789") == letters:
            each = list(zip(times["seconds"], times["collective_seconds"], times["receive_seconds"], strict=True))
            for seconds, exchanging, waiting in each[1:] or each:
                compute.append(seconds - exchanging - waiting)
                collective.append(exchanging)
    return median(compute), median(collective)


def _kernels(program: Program, decision: StageDecision, stage: int, action: Action) -> Iterator[Kernel]:
    """The kernels of a task that the planner prices: each operator once, under its strategy."""
    graph = program.graph
    instructions = program.stages[stage].tasks[action][decision.ranks[0]]
    operators = dict.fromkeys(i.operator.index for i in instructions if isinstance(i, Compute))
    for index in operators:
        yield decision.model.kernel(graph.operators[index], graph.tensors, decision.strategies[index])
    for instruction in instructions:
        if isinstance(instruction, Optimize):
            update = graph.operators[graph.parameters[instruction.parameter].update]
            yield decision.model.kernel(update, graph.tensors, decision.updates[instruction.parameter])


def _exchanged(cluster: Cluster, exchange: CollectiveCall) -> LinkCollective:
    """A collective on a link of a cluster, as a ring along an axis of a mesh (`cluster.mesh`)."""
    per_node, ranks = cluster.devices_per_node, exchange.ranks
    between = len({rank // per_node for rank in ranks}) > 1
    stride = abs(ranks[1] - ranks[0]) if len(ranks) > 1 else 1
    return LinkCollective(
        kind=exchange.kind,
        size=len(ranks),
        bytes=exchange.bytes,
        between_nodes=between,
        sharing=min(stride, per_node) if between else 1,
    )
