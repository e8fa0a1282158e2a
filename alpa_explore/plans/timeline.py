"""The timeline of a plan: its stages as tasks, the links between their submeshes, one iteration simulated.

The forward pass and the two halves of the backward pass divide the seconds of a stage in proportion to its operators;
the backward pass includes rematerialisation. Where the operators are not known (a plan file that was planned again for
another B), the shares are those of a matrix product: forward, input gradient and weight gradient a third each.

A send carries the bytes that cross the cut between two layers once. Its bandwidth is that of the links of the smaller
side, or of the network between nodes. Sends between the same groups of nodes share the network. With ideal software it
runs beside computation. Real software waits for what it sends and receives: sends make its tasks longer, apart from
the share that it hides where a submesh runs several stages in turn.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TypeAlias

import numpy as np

from alpa_explore.cost.collectives import nodes_of, stage_send_seconds, waited_share
from alpa_explore.numerics.arrays import Floats
from alpa_explore.plans.records import PlanStage
from alpa_explore.plans.schedule_stages import planned_schedule, schedule_stages, schedule_table
from alpa_explore.plans.value import PlanValue
from alpa_explore.schedules.simulator.simulate import simulate
from alpa_explore.schedules.simulator.timeline import Timeline
from alpa_explore.schedules.simulator.times import Links, StageTimes, links_between, with_sends
from alpa_explore.schedules.task import Schedule


def plan_timeline(
    plan: PlanValue,
    schedule: str | Schedule | None = None,
    *,
    stages_per_submesh: int | None = None,
    shares: Shares | None = None,
) -> Timeline:
    """One iteration of `plan` under a schedule, by name or as a table; by default under the plan's own, which is
    simulated once per plan value. `shares` of each layer, where they are known well enough from another plan of the
    same layers, save describing operators.

    UnknownNameError for a name that is none; ScheduleError where the schedule does not exist for this plan, does not
    fit it, or cannot run; OptionError for options that do not go together.
    """
    if shares is not None:
        return _simulated(plan, schedule_table(plan), shares)
    if schedule not in (None, planned_schedule(plan)) or stages_per_submesh is not None:
        return _simulated(plan, schedule_table(plan, schedule, stages_per_submesh=stages_per_submesh))
    return plan.remembered("timeline", lambda: _simulated(plan, schedule_table(plan)))


def layer_shares(plan: PlanValue) -> Shares:
    """How the seconds of each layer are divided, by the operators of the stages that the plan's schedule runs; zeros
    where these are not known."""
    shares: dict[int, Floats] = dict.fromkeys(range(len(plan.layers)), np.zeros((len(_HALVES), 4)))
    for stage in plan.interleaved or plan.stages:
        if (described := _described(plan, stage)) is not None:
            shares |= described.of_layers(stage)
    return shares


def _simulated(plan: PlanValue, table: Schedule, known: Shares | None = None) -> Timeline:
    stages = schedule_stages(plan, table)
    described = [None if known is not None else _described(plan, stage) for stage in stages]
    if known is None and None in described:  # of a plan from a file only its own stages may be described
        known = layer_shares(replace(plan, interleaved=()))
    links, sends = _links(plan, table.submesh_of_stage, [stage.layers[1] for stage in stages])
    # A submesh that runs several stages updates once: each of them has its part of what that adds.
    overhead = plan.overhead_seconds * table.num_submeshes / table.num_stages
    times = [
        _times(stage, by, by.of_layers(stage) if by is not None else known or {}, overhead, plan.costs.copies)
        for stage, by in zip(stages, described, strict=True)
    ]
    turns = table.num_stages // table.num_submeshes // table.copies
    return simulate(table, with_sends(times, sends, waited_share(plan.cluster.software, turns)), links)


_HALVES = ("forward", "input", "weight")
Shares: TypeAlias = Mapping[int, Floats]
"""Layer -> the seconds that its operators spend in each of `_HALVES` of a microbatch: the forward pass, the backward
pass to inputs and that to weights; shape [3, 4]: computing, in collectives, and of those of stored weights and their
gradients exposed and hidden."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Described:
    """What the operators of a stage say of all stages that are `alike`."""

    shares: Floats
    """[layers, 3, 4], as `Shares`."""
    gradient_bytes: float
    optimizer_bytes: float

    def of_layers(self, stage: PlanStage) -> Shares:
        """The shares of the layers of a stage that is alike."""
        return dict(enumerate(self.shares, stage.layers[0]))


def _described(plan: PlanValue, stage: PlanStage) -> _Described | None:
    """What the operators of a stage say; None where they are not known. Computed once for all plans from the same stage
    costs."""

    def described() -> _Described | None:
        if not len(stage.operators):
            return None
        updates = [o for o in stage.operators if o.phase == "update"]
        return _Described(
            shares=_shares_of(stage),
            gradient_bytes=sum(o.gradient_bytes for o in updates),
            optimizer_bytes=sum(o.optimizer_bytes for o in updates),
        )

    return (plan.details or plan).remembered(("described", plan.alike(stage)), described)


def _shares_of(stage: PlanStage) -> Floats:
    """The shares of each layer of a stage. What is recomputed counts in the half whose operators first need it."""
    first, last = stage.layers
    sums = [[[0.0] * 4 for _ in _HALVES] for _ in range(first, last + 1)]
    for o in stage.operators:
        exposed, hidden = o.stored_seconds or (0.0, 0.0)
        of_layer = sums[o.layer - first]
        if o.phase == "update":  # its gradient is scattered in every microbatch
            of_layer[2][2] += exposed
            of_layer[2][3] += hidden
        else:
            half = "forward" if o.phase == "forward" else "weight" if o.weight_half else "input"
            for of_half in (half, o.recomputed) if o.recomputed else (half,):
                seconds = of_layer[_HALVES.index(of_half)]
                seconds[0] += o.compute_seconds
                seconds[1] += o.communication_seconds
                seconds[2] += exposed
                seconds[3] += hidden
    return np.array(sums)


def _times(
    stage: PlanStage, described: _Described | None, of_layer: Shares, overhead_seconds: float, copies: int
) -> StageTimes:
    """The times of `stage`, which the schedule runs. Its seconds are divided as those of its layers in `of_layer`,
    which are those of its operators where it is `described`: these are of `copies` of it. The software's overhead is
    part of its update."""
    halves = np.sum([of_layer[layer] for layer in range(stage.layers[0], stage.layers[1] + 1)], axis=0).tolist()
    forward, of_input, of_weight = (computed + moved for computed, moved, _, _ in halves)
    in_operators = forward + of_input + of_weight
    # Beside its operators a stage adds gradients to those of earlier microbatches, which belongs to the weight half.
    rest = max(stage.microbatch_seconds - in_operators, 0.0) if described is not None else 0.0
    total = in_operators + rest
    parts = [forward / total, of_input / total, (of_weight + rest) / total] if in_operators else [1 / 3] * 3
    gradients, optimizer = 0.0, 0.0
    if described is not None and stage.weight_bytes:
        gradients = described.gradient_bytes / copies / stage.weight_bytes
        optimizer = described.optimizer_bytes / copies / stage.weight_bytes
    in_collectives = tuple(moved / (computed + moved) if moved else 0.0 for computed, moved, _, _ in halves)
    seconds = stage.microbatch_seconds
    pace = seconds / total if in_operators else 0.0
    return StageTimes(
        forward_seconds=parts[0] * seconds,
        backward_input_seconds=parts[1] * seconds,
        backward_weight_seconds=parts[2] * seconds,
        update_seconds=stage.iteration_seconds + stage.tied_seconds + overhead_seconds,
        collective_fraction=(in_collectives[0], in_collectives[1], in_collectives[2]),
        stored_seconds=tuple((pace * exposed, pace * hidden) for _, _, exposed, hidden in halves),
        weight_bytes=stage.weight_bytes * (1 - gradients - optimizer),
        gradient_bytes=stage.weight_bytes * gradients,
        optimizer_bytes=stage.weight_bytes * optimizer,
        activation_bytes=stage.activation_bytes,
        workspace_bytes=stage.workspace_bytes,
    )


def _links(
    plan: PlanValue, submesh_of_stage: Sequence[int], last_layers: Sequence[int]
) -> tuple[Links, list[tuple[float, float]]]:
    """The links of all stages, and for each stage the seconds to send (its output forward, its gradient backward)."""
    seconds = [[0.0, 0.0] for _ in submesh_of_stage]
    for stage, (a, b) in enumerate(pairwise(submesh_of_stage)):
        if a != b:
            crossing = plan.layers[last_layers[stage]].operator_cut_bytes
            sent = float(crossing[-1]) if crossing else 0.0
            taken = stage_send_seconds(plan.cluster, plan.stages[a].devices, plan.stages[b].devices, sent)
            seconds[stage][0] = seconds[stage + 1][1] = taken
    nodes = [nodes_of(plan.cluster, stage.devices) for stage in plan.stages]
    return links_between(submesh_of_stage, nodes), [(ahead, back) for ahead, back in seconds]
