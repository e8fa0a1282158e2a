"""The stages that a schedule runs for a plan: the plan's own, or shorter ones where a submesh runs several in turn.

A plan made for the interleaved schedule or a V shape has them (`PlanValue.interleaved`): each submesh keeps the number
of layers that it was planned with, and these are cut into v ranges, one for each turn. For another table with more
stages than the plan, the layers are cut into equal ranges. Under DualPipe each submesh also runs the stage of the
submesh at the same place from the other end, as that one would on this submesh; a plan made for it has equal submeshes,
and both copies of a stage have the plan's choice. Each
range takes the fastest candidate in the plan's stage costs, on the submesh that it falls to, with which v such stages
fit in memory under the schedule; where none fits, the one that needs least memory.

The stage costs of a plan made for DualPipe are those of two copies (`StageCosts.copies`); what a schedule runs is one.
"""

import math
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import accumulate, pairwise

from alpa_explore.errors import ScheduleError
from alpa_explore.inter_op.schedule_terms import SIMULATED_AS, ScheduleTerms
from alpa_explore.inter_op.stage_table import once_seconds
from alpa_explore.numerics.multiple_choice import cheapest_within
from alpa_explore.plans.phrases import on_submesh
from alpa_explore.plans.planned_stage import Descriptions, planned_stage, stage_descriptions
from alpa_explore.plans.records import PlanStage
from alpa_explore.plans.stage_details import Range
from alpa_explore.plans.value import PlanValue
from alpa_explore.pricing.stage_costs import RangeKey, StageCandidate
from alpa_explore.schedules.catalog import (
    DUAL_PIPE,
    INTERLEAVED,
    SCHEDULES,
    V_SHAPES,
    build_schedule,
    layers_in_turns,
    submeshes_in_turn,
)
from alpa_explore.schedules.task import Schedule


def schedule_stages(plan: PlanValue, table: Schedule) -> tuple[PlanStage, ...]:
    """The stages of `table`; stage k runs on the devices of the plan's stage `table.submesh_of_stage[k]`.

    ScheduleError where the table was made for another pipeline, or needs a layer range that was not priced.
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
        return tuple(_one_copy(stage, plan.costs.copies) for stage in plan.stages)
    if table.copies == plan.costs.copies > 1:
        of_plan = [_one_copy(stage, table.copies) for stage in plan.stages]
        return tuple(
            replace(of_plan[k % submeshes], index=k, devices=plan.stages[submesh].devices)
            for k, submesh in enumerate(order)
        )
    if table.copies > 1:
        ranges = [stage.layers for stage in plan.stages] * table.copies
        return _stages_of_ranges(plan, ranges, table, stage_descriptions(plan))
    if order == _planned_order(plan):
        # A plan file of an early version did not store them.
        return plan.interleaved or interleaved_stages(plan, stage_descriptions(plan))
    layers = len(plan.layers)
    if layers % len(order):
        raise ScheduleError(
            "A schedule with other stages than the plan cuts the layers into equal runs",
            found=f"{layers} layers for {len(order)} stages",
            remedy=f"Plan with a multiple of {len(order)} layers.",
        )
    each = layers // len(order)
    ranges = [(k * each, (k + 1) * each - 1) for k in range(len(order))]
    return _stages_of_ranges(plan, ranges, table, stage_descriptions(plan))


def _one_copy(stage: PlanStage, copies: int) -> PlanStage:
    """One of the copies of a stage that its figures are the sum of."""
    if copies == 1:
        return stage
    return replace(
        stage,
        iteration_seconds=stage.iteration_seconds / copies,
        weight_bytes=stage.weight_bytes / copies,
        microbatches_held=-(-stage.microbatches_held // copies),
    )


def interleaved_stages(plan: PlanValue, descriptions: Descriptions) -> tuple[PlanStage, ...]:
    """The stages of the interleaved schedule or V shape that a plan was made for; none where of another schedule."""
    order = _planned_order(plan)
    if not order:
        return ()
    given = [layers for turn in zip(*plan.costs.turns.values(), strict=True) for layers in turn]
    ends = [0, *accumulate(layers_in_turns([s.layers[1] - s.layers[0] + 1 for s in plan.stages], order))]
    ranges = given if len(given) == len(order) else [(first, end - 1) for first, end in pairwise(ends)]
    return _stages_of_ranges(plan, ranges, schedule_table(plan), descriptions)


def schedule_table(
    plan: PlanValue, schedule: str | Schedule | None = None, *, stages_per_submesh: int | None = None
) -> Schedule:
    """The table of a schedule for a plan's stages and B; by default of the schedule that the plan was made for.

    UnknownNameError for a name that is none; ScheduleError where the schedule does not exist for this plan;
    OptionError for options that do not go together.
    """
    if isinstance(schedule, Schedule):
        return schedule
    name, submeshes, layers = schedule or planned_schedule(plan), len(plan.stages), len(plan.layers)
    if name == INTERLEAVED and stages_per_submesh is None:
        stages_per_submesh = plan.terms.turns if planned_schedule(plan) == INTERLEAVED else 2
    turns = 1 if stages_per_submesh is None else stages_per_submesh
    if name in V_SHAPES:
        turns = 2
    if plan.cluster.others and name in (INTERLEAVED, *V_SHAPES, DUAL_PIPE):
        raise ScheduleError(
            f"The schedule {name} needs like stages, and the nodes of this cluster are unlike",
            found=str(plan.cluster),
            remedy="Use 1f1b, gpipe or zb-h1, or plan on nodes of one kind.",
        )
    equal = name in (INTERLEAVED, *V_SHAPES) and submeshes_in_turn(name, submeshes, turns) != _planned_order(plan)
    if equal and turns > 0 and layers % (submeshes * turns):
        possible = [v for v in range(2, layers // submeshes + 1) if layers % (submeshes * v) == 0]
        possible = possible if name == INTERLEAVED else []
        raise ScheduleError(
            f"The schedule {name} cuts the layers into equal runs",
            found=f"{layers} layers for {submeshes} submeshes × {turns} stages",
            remedy=f"Choose {' or '.join(map(str, possible))} stages a submesh."
            if possible
            else f"Plan with a multiple of {submeshes * turns} layers.",
        )
    return build_schedule(name, submeshes, plan.options.num_microbatches, stages_per_submesh=stages_per_submesh)


def planned_schedule(plan: PlanValue) -> str:
    """The name in `schedules.catalog` of the schedule that a plan was made for; 1F1B for a plan of one stage."""
    schedule = plan.options.pipeline.schedule
    return SIMULATED_AS.get(schedule, schedule) if len(plan.stages) > 1 else SCHEDULES[0]


def possible_schedules(plan: PlanValue) -> tuple[str, ...]:
    """The names of the schedules that exist for this plan; first the one that it was made for, if it exists."""
    names = []
    for name in dict.fromkeys((planned_schedule(plan), *SCHEDULES)):
        with suppress(ScheduleError):
            schedule_stages(plan, schedule_table(plan, name))
            names.append(name)
    return tuple(names)


def _planned_order(plan: PlanValue) -> tuple[int, ...]:
    """The submesh of each of the stages that the plan's schedule runs; () where these are the plan's stages."""
    name, turns = planned_schedule(plan), plan.terms.turns
    return submeshes_in_turn(name, len(plan.stages), turns) if turns > 1 and len(plan.stages) > 1 else ()


def _stages_of_ranges(
    plan: PlanValue, ranges: Sequence[Range], table: Schedule, descriptions: Descriptions
) -> tuple[PlanStage, ...]:
    costs, b, depth, order = plan.costs, plan.options.num_microbatches, len(plan.stages), table.submesh_of_stage
    turns, tied = len(order) // depth, once_seconds(costs, plan.cluster, plan.options.pipeline)
    name = table.name if table.name in (*V_SHAPES, DUAL_PIPE) else INTERLEAVED
    terms = ScheduleTerms(schedule=name, num_microbatches=b, stages_per_submesh=turns)
    keys: list[RangeKey] = []
    chosen: list[StageCandidate] = []
    holds: list[float] = []
    for index, (layers, submesh) in enumerate(zip(ranges, order, strict=True)):
        stage, in_turns = plan.stages[submesh], terms.held_in_turns(depth - submesh, depth)
        held = in_turns[index // depth % len(in_turns)]
        held = held if terms.copies == 1 else math.ceil(held / terms.copies)
        key = (*layers, costs.submeshes.index(plan.submesh_of(stage)))
        candidates = costs.candidates.get(key, ())
        if not candidates:
            raise ScheduleError(
                "A layer range of this schedule has no known cost",
                found=on_submesh(layers, stage.submesh),
                remedy="Plan for that schedule, or choose one with a stage on each submesh.",
            )
        keys.append(key)
        holds.append(held)
        chosen.append(min(candidates, key=lambda c: c.peak_bytes(held, turns)))
    for submesh in range(depth):
        own = [index for index, of in enumerate(order) if of == submesh]
        room = costs.memory_of(chosen[own[0]].logical_mesh)
        together = _fastest_together([costs.candidates[keys[k]] for k in own], [holds[k] for k in own], room, b)
        for k, candidate in zip(own, together, strict=bool(together)):
            chosen[k] = candidate
    stages = []
    for index, (key, candidate, held) in enumerate(zip(keys, chosen, holds, strict=True)):
        once, devices = float(tied[key[0], key[1] + 1]), plan.stages[order[index]].devices
        made = planned_stage(
            plan, descriptions, index, key, devices, candidate, held=held, tied_seconds=once, turns=turns
        )
        stages.append(_one_copy(made, costs.copies))
    return tuple(stages)


def _fastest_together(
    candidates: Sequence[Sequence[StageCandidate]], holds: Sequence[float], room: float, b: int
) -> tuple[StageCandidate, ...]:
    """A choice for each of the stages that one submesh runs in turn: the fastest that fit in `room` bytes together;
    () where none do. They share one workspace, which is the largest of theirs."""
    seconds, fastest = math.inf, tuple[StageCandidate, ...]()
    for most in sorted({c.workspace_bytes for of_turn in candidates for c in of_turn}, reverse=True):
        turns = [[c for c in of_turn if c.workspace_bytes <= most] for of_turn in candidates]
        if not all(turns) or sum(min(c.latency_seconds(b) for c in of_turn) for of_turn in turns) >= seconds:
            break  # a smaller workspace leaves fewer choices
        items = [
            [(c.latency_seconds(b), c.held_bytes(held)) for c in of_turn]
            for of_turn, held in zip(turns, holds, strict=True)
        ]
        together, places = cheapest_within(items, room - most, below=seconds)
        if together < seconds:
            seconds, fastest = together, tuple(of_turn[n] for of_turn, n in zip(turns, places, strict=True))
    return fastest
