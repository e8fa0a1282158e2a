"""The stages that a schedule runs on a plan: the plan's own, or runs of its layers where a submesh has several in turn.

A plan that was made for the interleaved schedule has them (`Plan.interleaved`): each submesh has as many layers as it
was planned for. For other tables with more stages than the plan, layers are cut into equal runs. Each run takes the
fastest choice that the plan's stage costs know for it on the submesh it falls to, so that v such runs fit beside what
the schedule holds; the leanest, where none does.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from itertools import accumulate, pairwise

from alpa_explore.errors import ScheduleError
from alpa_explore.inter_op.schedule_terms import SIMULATED_AS, ScheduleTerms
from alpa_explore.inter_op.stage_table import once_seconds
from alpa_explore.plans.planned_stage import Words, known_words, planned_stage
from alpa_explore.plans.records import PlanStage
from alpa_explore.plans.value import PlanValue
from alpa_explore.schedules.catalog import INTERLEAVED, SCHEDULES, build_schedule
from alpa_explore.schedules.task import Schedule

Range = tuple[int, int]
"""First and last layer, inclusive."""


def schedule_stages(plan: PlanValue, table: Schedule) -> tuple[PlanStage, ...]:
    """What each stage of `table` is; stage k runs on the devices of the plan's stage `table.submesh_of_stage[k]`.

    ScheduleError where the table was made for another pipeline, or needs a run of layers whose cost is not known.
    """
    submeshes, b = len(plan.stages), plan.options.num_microbatches
    if (table.num_submeshes, table.num_microbatches) != (submeshes, b):
        raise ScheduleError(
            "The schedule was made for another pipeline",
            found=f"{table.num_submeshes} submeshes and B = {table.num_microbatches}; the plan has {submeshes} and "
            f"B = {b}",
            remedy="Make a schedule for this plan, or plan again with that B.",
        )
    order = table.submesh_of_stage
    if order == tuple(range(submeshes)):
        return plan.stages
    if order == tuple(k % submeshes for k in range(len(plan.interleaved))):
        return plan.interleaved
    turns = len(order) // submeshes
    if turns == _planned_turns(plan) and order == tuple(k % submeshes for k in range(turns * submeshes)):
        # Of a file from before plans held them.
        return interleaved_stages(plan, known_words(plan))
    layers = len(plan.layers)
    if layers % len(order):
        raise ScheduleError(
            "A schedule with other stages than the plan cuts the layers into equal runs",
            found=f"{layers} layers for {len(order)} stages",
            remedy=f"Plan with a multiple of {len(order)} layers.",
        )
    each = layers // len(order)
    return _cut(plan, [(k * each, (k + 1) * each - 1) for k in range(len(order))], order, known_words(plan))


def interleaved_stages(plan: PlanValue, words: Words) -> tuple[PlanStage, ...]:
    """The stages of the interleaved schedule that a plan was made for; none where it was made for another."""
    turns = _planned_turns(plan)
    if turns is None:
        return ()
    counts = [s.layers[1] - s.layers[0] + 1 for s in plan.stages]
    ends = [0, *accumulate(n * (t + 1) // turns - n * t // turns for t in range(turns) for n in counts)]
    order = [submesh for _ in range(turns) for submesh in range(len(counts))]
    return _cut(plan, [(first, end - 1) for first, end in pairwise(ends)], order, words)


def schedule_table(
    plan: PlanValue, schedule: str | Schedule | None = None, *, stages_per_submesh: int | None = None
) -> Schedule:
    """The table of a schedule for a plan's stages and B; of that which it was made for unless given.

    UnknownNameError for a name that is none; ScheduleError where the schedule does not exist for this plan;
    OptionError for options that do not go together.
    """
    if isinstance(schedule, Schedule):
        return schedule
    name, submeshes, layers = schedule or planned_schedule(plan), len(plan.stages), len(plan.layers)
    if name == INTERLEAVED and stages_per_submesh is None:
        stages_per_submesh = _planned_turns(plan) or 2
    wanted = 1 if stages_per_submesh is None else stages_per_submesh
    equal = name == INTERLEAVED and wanted != _planned_turns(plan)
    if equal and wanted > 0 and layers % (submeshes * wanted):
        works = [v for v in range(2, layers // submeshes + 1) if layers % (submeshes * v) == 0]
        raise ScheduleError(
            "The interleaved schedule cuts the layers into equal runs",
            found=f"{layers} layers for {submeshes} submeshes × {wanted} stages",
            remedy=f"Choose {' or '.join(map(str, works))} stages a submesh."
            if works
            else f"Plan with a multiple of {submeshes * wanted} layers.",
        )
    return build_schedule(name, submeshes, plan.options.num_microbatches, stages_per_submesh=stages_per_submesh)


def planned_schedule(plan: PlanValue) -> str:
    """The name in `schedules.catalog` of the schedule that a plan was made for; a single stage needs none but 1F1B."""
    asked = plan.options.pipeline.schedule
    return SIMULATED_AS.get(asked, asked) if len(plan.stages) > 1 else SCHEDULES[0]


def possible_schedules(plan: PlanValue) -> tuple[str, ...]:
    """The names of the schedules that exist for this plan; the first is what it was planned for, if that does."""
    found = []
    for name in dict.fromkeys((planned_schedule(plan), *SCHEDULES)):
        with suppress(ScheduleError):
            schedule_stages(plan, schedule_table(plan, name))
            found.append(name)
    return tuple(found)


def _planned_turns(plan: PlanValue) -> int | None:
    """How often a microbatch comes through a submesh of a plan that was made for the interleaved schedule."""
    return plan.terms.turns if planned_schedule(plan) == INTERLEAVED else None


def _cut(plan: PlanValue, ranges: Sequence[Range], order: Sequence[int], words: Words) -> tuple[PlanStage, ...]:
    costs, b, depth = plan.costs, plan.options.num_microbatches, len(plan.stages)
    shapes = [(m.nodes, m.devices_per_node) for m in costs.submeshes]
    turns, tied = len(order) // depth, once_seconds(costs, plan.cluster, plan.options.pipeline)
    terms = ScheduleTerms(schedule=INTERLEAVED, num_microbatches=b, stages_per_submesh=turns)
    stages = []
    for index, (layers, submesh) in enumerate(zip(ranges, order, strict=True)):
        stage, held = plan.stages[submesh], terms.held(depth - submesh, depth)
        key = (*layers, shapes.index(stage.submesh))
        known = costs.candidates.get(key, ())
        if not known:
            raise ScheduleError(
                "A run of layers of this schedule has no known cost",
                found=f"layers {layers[0]} to {layers[1]} on submesh {stage.submesh}",
                remedy="Plan for that schedule, or choose one with a stage on each submesh.",
            )
        fitting = [c for c in known if c.peak_bytes(held, turns) <= costs.device_memory_bytes]
        best = min(fitting, key=lambda c: c.latency_seconds(b), default=None)
        best = best or min(known, key=lambda c: c.peak_bytes(held, turns))
        once = float(tied[layers[0], layers[1] + 1])
        stages.append(
            planned_stage(plan, words, index, key, stage.devices, best, held=held, tied_seconds=once, turns=turns)
        )
    return tuple(stages)
