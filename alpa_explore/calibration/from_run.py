"""The figures of a device again, from what the tasks of runs did and how long that took (`cost.refit`).

The plan of a run is lowered again, so its model must be one that a recipe makes. Of each kind of task (`0F`: forward of
stage 0) the median over microbatches and steps counts, the first step left out where there are more. Computing is the
mean over the ranks of the stage; in a collective the rank that comes last waits for nobody, so there the least counts.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean, median
from typing import Any

from alpa_explore.calibration.refit import Exchanged, Observation, refit
from alpa_explore.cluster import Cluster
from alpa_explore.cost.compute import Kernel
from alpa_explore.errors import OptionError, PlanFileError
from alpa_explore.plans.plan import load_plan
from alpa_explore.plans.rebuild import rebuild
from alpa_explore.programs.execution.rehearsal import Exchange, rehearse
from alpa_explore.programs.instruction import Compute, Optimize
from alpa_explore.programs.lowering.decision import StageDecision, plan_decisions
from alpa_explore.programs.lowering.lower import lower
from alpa_explore.programs.program import Program
from alpa_explore.schedules.csv_file import read_csv
from alpa_explore.schedules.task import LETTERS, Action, Task


@dataclass(frozen=True, slots=True, kw_only=True)
class Recalibration:
    """What runs say of the devices that they were planned for."""

    before: Cluster
    """As the runs were planned."""
    after: Cluster
    """As they were measured: with `reprice`, or for other plans."""
    tasks: tuple[Observation, ...]
    """What it was fitted to."""


def recalibrate(folders: Sequence[str | os.PathLike[str]], *, allow_import: bool = False) -> Recalibration:
    """Fit launch, efficiency, memory and links to the runs in these folders.

    OptionError where the runs were planned for different devices; PlanFileError where there is no measured run;
    RecipeError where a model cannot be made again.
    """
    found: list[Observation] = []
    first: Cluster | None = None
    for folder in folders:
        cluster, observations = _observed(Path(folder), allow_import=allow_import)
        first = first or cluster
        figures, others = [(c.device, c.inside_node, c.between_nodes) for c in (first, cluster)]
        if figures != others:
            raise OptionError(
                "Runs that are fitted together were planned for one device",
                found=f"{first.device.name} in {folders[0]}, other figures ({cluster.device.name}) in {folder}",
                remedy="Give runs of plans with the same --cluster device.",
            )
        found += observations
    if first is None:
        raise OptionError("There is no run to learn from", found="no folder", remedy="Name folders of runs.")
    return Recalibration(before=first, after=refit(first, found), tasks=tuple(found))


def _observed(home: Path, *, allow_import: bool) -> tuple[Cluster, list[Observation]]:
    """The cluster that a run was planned for, and its kinds of tasks."""
    try:
        ranks = json.loads((home / "run.json").read_text(encoding="utf-8"))["ranks"]
        measured = {r: json.loads((home / f"rank-{r}.measured.json").read_text(encoding="utf-8")) for r in ranks}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise PlanFileError(
            "There is no measured run",
            found=f"{home}: {error}",
            remedy="Name the folder of a run that `alpa-explore launch` has brought to its end.",
        ) from error
    plan = rebuild(load_plan(home / "plan.json"), allow_import=allow_import)
    schedule = read_csv(home / "schedule.csv")
    program, decisions = lower(plan, schedule), plan_decisions(plan, schedule)
    found: list[Observation] = []
    for number, (stage, decision) in enumerate(zip(program.stages, decisions, strict=True)):
        rank = stage.ranks[0]
        _, tasks = rehearse(program, rank)
        for action in stage.tasks:
            own = [_typical(measured[r]["tasks"], number, action) for r in stage.ranks]
            compute, collective = fmean(c for c, _ in own), min(c for _, c in own)
            times = 1 if action is Action.UPDATE else schedule.num_microbatches
            exchanged = tuple(_exchanged(plan.cluster, e) for e in tasks[number, action].exchanges)
            found.append(
                Observation(
                    name=f"{number}{LETTERS[action]}",
                    share=times * (compute + collective),
                    kernels=tuple(_kernels(program, decision, number, action)),
                    exchanged=exchanged,
                    compute_seconds=compute,
                    collective_seconds=collective,
                )
            )
    total = sum(one.share for one in found) or 1.0
    return plan.cluster, [replace(one, share=one.share / total) for one in found]


def _typical(tasks: Mapping[str, Any], stage: int, action: Action) -> tuple[float, float]:
    """(seconds of computing, of collectives) of a rank's tasks of a kind."""
    letters = str(Task(action, stage, 0))[:-1]
    compute, collective = [], []
    for name, one in tasks.items():
        if name.rstrip("0123456789") == letters:
            each = list(zip(one["seconds"], one["collective_seconds"], one["receive_seconds"], strict=True))
            for seconds, exchanging, waiting in each[1:] or each:
                compute.append(seconds - exchanging - waiting)
                collective.append(exchanging)
    return median(compute), median(collective)


def _kernels(program: Program, decision: StageDecision, stage: int, action: Action) -> Iterator[Kernel]:
    """What the planner prices of a task: its operators, each once, as divided."""
    graph = program.graph
    instructions = program.stages[stage].tasks[action][decision.ranks[0]]
    operators = dict.fromkeys(i.operator.index for i in instructions if isinstance(i, Compute))
    for index in operators:
        yield decision.model.kernel(graph.operators[index], graph.tensors, decision.strategies[index])
    for one in instructions:
        if isinstance(one, Optimize):
            update = graph.operators[graph.parameters[one.parameter].update]
            yield decision.model.kernel(update, graph.tensors, decision.updates[one.parameter])


def _exchanged(cluster: Cluster, one: Exchange) -> Exchanged:
    """A collective on the links of a cluster: as a ring along an axis of a mesh (`cluster.mesh`)."""
    per_node, ranks = cluster.devices_per_node, one.ranks
    between = len({rank // per_node for rank in ranks}) > 1
    stride = abs(ranks[1] - ranks[0]) if len(ranks) > 1 else 1
    return Exchanged(
        kind=one.kind,
        size=len(ranks),
        bytes=one.bytes,
        between_nodes=between,
        sharing=min(stride, per_node) if between else 1,
    )
