"""Why a plan takes as long as it does: where its time goes, what each limit costs, and which single changes help.

Every device is occupied for the whole iteration T, so T of stage i splits exactly into (`time_parts`)

    T = B · compute_i + Σ_axis B · collectives_i,axis + sends + (sync and update)_i + tied_i + overhead + wait_i

where sends are how much shorter T would be without them (in the paper's mode those that it counts, B · receive_i),
tied_i is the summing of tied weights' gradients, overhead is what the software adds to every iteration, and wait_i is
the remainder. `limits` takes from T what Eq. 2 loses with one part removed or evened out: about an upper bound on what
removing that limit could gain while the plan's choices stay. `changes` makes no estimate: each
neighbouring plan is planned again from the stage costs that the plan keeps.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from typing import Any

from alpa_explore.errors import AlpaExploreError
from alpa_explore.inter_op.options import PipelineOptions, phrases
from alpa_explore.planner.replan import replan
from alpa_explore.plans.iteration_time import OVERHEAD as OVERHEAD
from alpa_explore.plans.iteration_time import SENDS, TIED, UPDATE, WAITS, iteration_time
from alpa_explore.plans.plan import Plan
from alpa_explore.plans.records import PlanStage
from alpa_explore.plans.value import PlanValue

UNLIMITED_BYTES = 10**18
"""Memory of a device in the question what a plan would do without a limit on memory: more than any plan needs."""

COMPUTE, SEND, SYNC, WAIT = "compute", SENDS, UPDATE, WAITS
COLLECTIVES = "collectives"
"""How the names of the parts for collectives begin: 'collectives inside a node, axis 1'."""
COMPUTING = "computing"
"""The name of COMPUTE as a limit."""
UNKNOWN = "compute and collectives"
"""The part of both together, for a stage whose strategies are not in the plan."""
_LINKS = {"inside a node": "links inside a node", "between nodes": "the network between nodes"}
"""Place of a collective -> name of the links there as a limit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StageTime:
    """One iteration of a device of one stage."""

    stage: int
    devices: int
    parts: tuple[tuple[str, float], ...]
    """(part, seconds); they add up to T."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """Something that makes the plan slower than it could be."""

    name: str
    iteration_seconds: float
    """T without it."""
    gain: float
    """Share of T that would be saved."""
    how: str
    """How `iteration_seconds` was computed, in words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A plan that differs from the explained one in a single setting."""

    name: str
    plan: Plan
    gain: float
    """Share of the time per sample that it saves; negative where it is slower."""


def time_parts(plan: PlanValue) -> tuple[StageTime, ...]:
    """The parts of T for each stage (see the module's docstring)."""
    b, total = plan.options.num_microbatches, plan.predicted.iteration_seconds
    sends, times = _simulated_sends(plan), []
    for stage in plan.stages:
        axes = collective_seconds(plan, stage)
        computing = stage.microbatch_seconds - sum(s for _, s in axes or ())
        parts = [(UNKNOWN if axes is None else COMPUTE, b * computing)]
        parts += [(name, b * seconds) for name, seconds in axes or ()]
        parts += [(SYNC, stage.iteration_seconds), (TIED, stage.tied_seconds), (OVERHEAD, plan.overhead_seconds)]
        left = max(0.0, total - sum(seconds for _, seconds in parts))
        parts += [(SEND, b * stage.receive_seconds if sends is None else min(sends, left))]
        parts += [(WAIT, max(0.0, total - sum(seconds for _, seconds in parts)))]
        merged: dict[str, float] = {}
        for name, seconds in parts:
            merged[name] = merged.get(name, 0.0) + seconds
        present = tuple((name, seconds) for name, seconds in merged.items() if seconds > 0 or name == WAIT)
        times.append(StageTime(stage=stage.index, devices=len(stage.devices), parts=present))
    return tuple(times)


def _simulated_sends(plan: PlanValue) -> float | None:
    """Seconds of T that sends take; None where T is Eq. 2."""
    time = None if plan.options.pipeline.mode else iteration_time(plan)
    return None if time is None else time.sends_seconds


def mean_parts(times: Sequence[StageTime]) -> dict[str, float]:
    """Part -> its seconds in an iteration of the average device; they add up to T."""
    devices = sum(time.devices for time in times)
    mean: dict[str, float] = {}
    for time in times:
        for name, seconds in time.parts:
            mean[name] = mean.get(name, 0.0) + seconds * time.devices / devices
    return mean


def without_axes(parts: Mapping[str, float]) -> dict[str, float]:
    """The same with the collectives of all mesh axes together, which two plans may number differently."""
    merged: dict[str, float] = {}
    for name, seconds in parts.items():
        part = name.partition(", axis ")[0] if name.startswith(COLLECTIVES) else name
        merged[part] = merged.get(part, 0.0) + seconds
    return merged


def collective_seconds(plan: PlanValue, stage: PlanStage) -> list[tuple[str, float]] | None:
    """(where and over which axis, seconds of a microbatch) for each mesh axis of a stage; None if not recorded."""
    sizes = [(axis, size) for axis, size in enumerate(stage.logical_mesh) if size > 1]
    totals = [0.0] * len(sizes)
    recorded = [o.axis_seconds for o in stage.operators if o.axis_seconds]
    if sizes and not recorded:
        return None
    for seconds in recorded:
        totals = [a + b for a, b in zip(totals, seconds, strict=True)]
    return [
        (f"{COLLECTIVES} {_link(plan, stage, axis)}, axis {number}", total)
        for number, ((axis, _), total) in enumerate(zip(sizes, totals, strict=True))
    ]


def _link(plan: PlanValue, stage: PlanStage, axis: int) -> str:
    """The links that a ring along an axis of the logical mesh uses (see `cluster.mesh.logical_mesh`)."""
    stride = math.prod(stage.logical_mesh[axis + 1 :])
    inside = stage.logical_mesh[axis] * stride <= plan.stages[stage.index].submesh[1]
    return next(name for name, within in zip(_LINKS, (True, False), strict=True) if within is inside)


def limits(plan: Plan) -> tuple[Limit, ...]:
    """What makes the plan slower than it could be, the largest gain first; computed once for each plan value."""
    return plan.remembered("limits", lambda: _limits(plan))


def _limits(plan: Plan) -> tuple[Limit, ...]:
    b, total = plan.options.num_microbatches, plan.predicted.iteration_seconds
    parts = [dict(time.parts) for time in time_parts(plan)]
    sends = _simulated_sends(plan)
    latencies = [s.latency_seconds - (0.0 if sends is None else s.receive_seconds) for s in plan.stages]
    more = 0.0 if sends is None else total - plan.terms.iteration_seconds(latencies, plan.once_seconds)
    without: list[tuple[str, float, str]] = []
    apart = {WAIT, TIED, OVERHEAD} | ({SEND} if sends is not None else set())
    if sends:
        without.append((SEND, total - sends, "simulated, with sends that take no time"))
    for name in sorted({_resource(name) for of_stage in parts for name in of_stage} - apart):
        spent = [sum(s for part, s in of_stage.items() if _resource(part) == name) / b for of_stage in parts]
        left = [latency - seconds for latency, seconds in zip(latencies, spent, strict=True)]
        seconds = more + plan.terms.iteration_seconds(left, plan.once_seconds)
        without.append((name, seconds, "T of the same stages if this took no time"))
    if len(latencies) > 1:
        even = more + plan.terms.iteration_seconds(
            [sum(latencies) / len(latencies)] * len(latencies), plan.once_seconds
        )
        without.append(("imbalance of the stages", even, "T if all stages had the mean latency"))
        filled = more + b * max(latencies) + plan.once_seconds
        without.append(("filling and draining the pipeline", filled, "B · t_max: T if the pipeline were always full"))
    unlimited = _with_memory(plan, UNLIMITED_BYTES)
    if unlimited is not None:
        seconds = unlimited.predicted.iteration_seconds
        without.append(("memory of a device", seconds, "planned again without a limit on memory"))
    return tuple(
        sorted(
            (
                Limit(name=name, iteration_seconds=seconds, gain=max(0.0, 1.0 - seconds / total), how=how)
                for name, seconds, how in without
            ),
            key=lambda limit: -limit.gain,
        )
    )


def _resource(part: str) -> str:
    """The limit that a part of the time counts towards: collectives over several axes can share a link."""
    if part == COMPUTE:
        return COMPUTING
    return next((words for link, words in _LINKS.items() if part.startswith(f"{COLLECTIVES} {link}")), part)


def changes(plan: Plan) -> tuple[Change, ...]:
    """Plans that differ in one setting and that `replan` can make, the best first."""
    neighbours: dict[str, Plan] = {}
    for name, settings in _single_settings(plan):
        with suppress(AlpaExploreError):
            neighbours[name] = replan(plan, known_alone=True, **settings)
    per_sample = plan.predicted.iteration_seconds / plan.global_batch
    found = [
        Change(name=name, plan=other, gain=1.0 - other.predicted.iteration_seconds / other.global_batch / per_sample)
        for name, other in neighbours.items()
    ]
    return tuple(sorted(found, key=lambda change: -change.gain))


def _single_settings(plan: Plan) -> Iterator[tuple[str, dict[str, Any]]]:
    """Name of a change and its keywords for `replan`: twice and half of B, and each pipeline option set back."""
    b, options = plan.options.num_microbatches, plan.options.pipeline
    for count in (2 * b, b // 2):
        if count >= 1:
            yield f"B {b:,} → {count:,}", {"num_microbatches": count}
    defaults, phrase_of = PipelineOptions(), phrases(options)
    for field in fields(PipelineOptions):
        # What is counted changes what is predicted, not the plan.
        if field.name in phrase_of and field.name not in ("paper", "communication", "tied_weights"):
            freed: dict[str, Any] = {field.name: getattr(defaults, field.name)}
            yield f"without: {phrase_of[field.name]}", {"pipeline": replace(options, **freed)}


def _with_memory(plan: Plan, memory_bytes: int) -> Plan | None:
    """The best plan on devices with this much memory, among the candidates that the plan keeps."""
    cluster = plan.cluster.with_changes(memory_bytes=memory_bytes)
    alike = (memory_bytes,) * len(plan.costs.memory_of_kinds)
    costs = replace(plan.costs, device_memory_bytes=memory_bytes, memory_of_kinds=alike)
    with suppress(AlpaExploreError):
        return replan(replace(plan, cluster=cluster, costs=costs), known_alone=True)
    return None
