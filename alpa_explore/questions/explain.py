"""Why a plan takes as long as it does: where the time goes, what would be gained without each limit, what to change.

Every device is occupied for the whole iteration T, so T of stage i is exactly

    T = B · compute_i + Σ_axis B · collectives_i,axis + B · receive_i + (sync and update)_i + wait_i      (`time_parts`)

where wait_i is what is left (sums of tied weights, where they are counted, have a part of their own). T of Eq. 2 again,
with a part left out or evened, is what a limit costs (`limits`): a bound on what its removal could gain, with the
choices of this plan. `changes` does not guess: each neighbour is planned again from the stage costs that the plan
keeps, or was planned by somebody (`tried`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields, replace

from alpa_explore import units
from alpa_explore.errors import AlpaExploreError
from alpa_explore.inter_op.options import PipelineOptions, phrases
from alpa_explore.planner.plan import replan
from alpa_explore.plans.plan import Plan
from alpa_explore.plans.records import PlanStage
from alpa_explore.plans.report.differences import differences
from alpa_explore.plans.value import PlanValue

COMPUTE, SEND, SYNC, WAIT = "compute", "sends between stages", "gradient sync and update", "waits (bubble)"
TIED = "sums of tied weights"
COMPUTING = "computing"
"""The name of COMPUTE among the limits."""
UNKNOWN = "compute and collectives"
"""Of a stage whose strategies are not in the plan."""
_LINKS = {"inside a node": "links inside a node", "network": "the network between nodes"}
"""How a collective's link is named beside its axis, and as a limit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StageTime:
    """One iteration of a device of one stage."""

    stage: int
    devices: int
    parts: tuple[tuple[str, float], ...]
    """(what, seconds); together T."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """Something that holds the plan back."""

    name: str
    iteration_seconds: float
    """T without it."""
    gain: float
    """Share of T that goes with it."""
    how: str
    """How T without it was found."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A neighbour of the plan."""

    name: str
    plan: Plan
    gain: float
    """Share of the seconds of a sample that it saves; below 0 where it is slower."""
    hardware: bool
    """Whether it takes other devices, not only another setting."""


def time_parts(plan: PlanValue) -> tuple[StageTime, ...]:
    """For each stage what T consists of (see the module's text)."""
    b, total = plan.options.num_microbatches, plan.predicted.iteration_seconds
    found = []
    for stage in plan.stages:
        axes = collective_seconds(plan, stage)
        computing = stage.microbatch_seconds - sum(s for _, s in axes or ())
        parts = [(UNKNOWN if axes is None else COMPUTE, b * computing)]
        parts += [(name, b * seconds) for name, seconds in axes or ()]
        parts += [(SEND, b * stage.receive_seconds), (SYNC, stage.iteration_seconds)]
        parts += [(TIED, stage.tied_seconds)]
        parts += [(WAIT, max(0.0, total - sum(seconds for _, seconds in parts)))]
        merged: dict[str, float] = {}
        for name, seconds in parts:
            merged[name] = merged.get(name, 0.0) + seconds
        present = tuple((name, seconds) for name, seconds in merged.items() if seconds > 0 or name == WAIT)
        found.append(StageTime(stage=stage.index, devices=len(stage.devices), parts=present))
    return tuple(found)


def mean_parts(times: Sequence[StageTime]) -> dict[str, float]:
    """What -> seconds of an iteration of the average device; together T."""
    devices = sum(time.devices for time in times)
    found: dict[str, float] = {}
    for time in times:
        for name, seconds in time.parts:
            found[name] = found.get(name, 0.0) + seconds * time.devices / devices
    return found


def collective_seconds(plan: PlanValue, stage: PlanStage) -> list[tuple[str, float]] | None:
    """(axis and its link, seconds of a microbatch) for each mesh axis of a stage; None where the plan does not say."""
    sizes = [(axis, size) for axis, size in enumerate(stage.logical_mesh) if size > 1]
    totals = [0.0] * len(sizes)
    known = [o.axis_seconds for o in stage.operators if o.axis_seconds]
    if sizes and not known:
        return None
    for seconds in known:
        totals = [a + b for a, b in zip(totals, seconds, strict=True)]
    return [
        (f"collectives over axis {number}, {_link(plan, stage, axis)}", total)
        for number, ((axis, _), total) in enumerate(zip(sizes, totals, strict=True))
    ]


def _link(plan: PlanValue, stage: PlanStage, axis: int) -> str:
    """Which links a ring along an axis of the logical mesh takes (see `cluster.mesh.logical_mesh`)."""
    stride = math.prod(stage.logical_mesh[axis + 1 :])
    inside = stage.logical_mesh[axis] * stride <= plan.stages[stage.index].submesh[1]
    return next(name for name, within in zip(_LINKS, (True, False), strict=True) if within is inside)


def limits(plan: Plan) -> tuple[Limit, ...]:
    """What holds the plan back, the heaviest first."""
    b, total = plan.options.num_microbatches, plan.predicted.iteration_seconds
    parts = [dict(time.parts) for time in time_parts(plan)]
    latencies = [stage.latency_seconds for stage in plan.stages]
    found: list[tuple[str, float, str]] = []
    for name in sorted({_resource(name) for of_stage in parts for name in of_stage} - {WAIT, TIED}):
        free = [sum(s for part, s in of_stage.items() if _resource(part) == name) / b for of_stage in parts]
        left = [t - f for t, f in zip(latencies, free, strict=True)]
        found.append((name, _iteration(plan, left), "T of the same stages, were this free"))
    if len(latencies) > 1:
        even = _iteration(plan, [sum(latencies) / len(latencies)] * len(latencies))
        found.append(("imbalance of the stages", even, "T, had all stages the mean latency"))
        filled = b * max(latencies) + plan.tied_seconds
        found.append(("filling and draining the pipeline", filled, "B · t_max: T, were the pipeline always full"))
    unlimited = _with_memory(plan, 10**18)
    if unlimited is not None:
        found.append(
            ("memory of a device", unlimited.predicted.iteration_seconds, "planned again without a limit on memory")
        )
    made = [
        Limit(name=name, iteration_seconds=seconds, gain=max(0.0, 1.0 - seconds / total), how=how)
        for name, seconds, how in found
    ]
    return tuple(sorted(made, key=lambda limit: -limit.gain))


def _resource(part: str) -> str:
    """What a part of the time is spent on: collectives over several axes can share a link."""
    if part == COMPUTE:
        return COMPUTING
    return next((words for link, words in _LINKS.items() if part.endswith(f", {link}")), part)


def _iteration(plan: Plan, latencies: Sequence[float]) -> float:
    """T with other latencies: Eq. 2, with the terms of the schedule that was planned for."""
    return plan.terms.iteration_seconds(latencies) + plan.tied_seconds


def changes(plan: Plan, tried: Iterable[Plan] = ()) -> tuple[Change, ...]:
    """Neighbours, the best first: what `replan` reaches, and of `tried` those that differ in one setting."""
    found: dict[str, tuple[Plan, bool]] = {}
    b, asked = plan.options.num_microbatches, plan.options.pipeline
    for other in tried:
        found |= _one_difference(plan, other)
    for count in (2 * b, b // 2):
        if count >= 1:
            with suppress(AlpaExploreError):
                found.setdefault(
                    f"B {b:,} → {count:,}", (replan(plan, num_microbatches=count, known_alone=True), False)
                )
    defaults = PipelineOptions()
    given = phrases(asked)
    for field in fields(PipelineOptions):
        if field.name in given and field.name != "communication":  # what is counted is no change of the plan
            with suppress(AlpaExploreError):
                freed = replace(asked, **{field.name: getattr(defaults, field.name)})
                found.setdefault(
                    f"without: {given[field.name]}", (replan(plan, pipeline=freed, known_alone=True), False)
                )
    memory = 2 * plan.costs.device_memory_bytes
    larger = _with_memory(plan, memory)
    if larger is not None:
        found.setdefault(f"devices of {units.bytes_(memory)}", (larger, True))
    per_sample = plan.predicted.iteration_seconds / plan.global_batch
    made = [
        Change(
            name=name,
            plan=other,
            hardware=hardware,
            gain=1.0 - other.predicted.iteration_seconds / other.global_batch / per_sample,
        )
        for name, (other, hardware) in found.items()
    ]
    return tuple(sorted(made, key=lambda change: -change.gain))


def _one_difference(plan: Plan, other: Plan) -> dict[str, tuple[Plan, bool]]:
    apart = differences(plan, other)
    if other is plan or len(apart) != 1 or apart[0].name in ("model", "baseline"):
        return {}
    hardware = apart[0].name.split()[0] in ("cluster", "memory", "peak", "link", "network")
    return {str(apart[0]): (other, hardware)}


def _with_memory(plan: Plan, memory_bytes: int) -> Plan | None:
    """The best plan on devices with so much memory, of the choices that are known."""
    cluster = plan.cluster.with_changes(memory_bytes=memory_bytes)
    costs = replace(plan.costs, device_memory_bytes=memory_bytes)
    with suppress(AlpaExploreError):
        return replan(replace(plan, cluster=cluster, costs=costs), known_alone=True)
    return None
