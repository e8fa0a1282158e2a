"""The timeline of a plan: its stages as tasks, the links between their submeshes, one iteration simulated.

Where a schedule has more stages than the plan (interleaved), the layers are cut anew, each run with the fastest choice
that the plan's stage costs know for it on the submesh it falls to: into equal runs, or where the plan was made for that
schedule so that each submesh has as many layers as it was planned for.

The two directions and the two halves of the backward pass share the seconds of a stage as its operators do; the
backward pass includes what is computed again. Where the operators are not known (a plan file that was planned again for
another B), the shares are those of a matrix product: forward, input and weight gradient a third each.

A send carries the bytes that cross the cut between two layers once; it is as fast as the smaller side's links, or the
network between nodes. Sends between the same groups of nodes share the network.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import accumulate, pairwise

from alpa_explore.cluster import Cluster
from alpa_explore.errors import ScheduleError
from alpa_explore.inter_op.schedule_terms import SIMULATED_AS
from alpa_explore.plans.plan import Plan, PlanOperator, PlanStage
from alpa_explore.schedules.catalog import INTERLEAVED, SCHEDULES, build_schedule
from alpa_explore.schedules.simulate import simulate
from alpa_explore.schedules.task import Schedule
from alpa_explore.schedules.timeline import Timeline
from alpa_explore.schedules.times import Links, StageTimes

Range = tuple[int, int]
"""First and last layer, inclusive."""


def plan_timeline(
    plan: Plan, schedule: str | Schedule | None = None, *, stages_per_submesh: int | None = None
) -> Timeline:  # fmt: skip
    """One iteration of `plan` under a schedule, by name or as a table; under that of the plan unless given.

    UnknownNameError for a name that is none; ScheduleError where the schedule does not exist for this plan, does not
    fit it, or cannot run; OptionError for options that do not go together.
    """
    if schedule is None:
        schedule = planned_schedule(plan)
    table = schedule if isinstance(schedule, Schedule) else _named(plan, schedule, stages_per_submesh)
    _fits(plan, table)
    own = table.submesh_of_stage == tuple(range(len(plan.stages)))
    ranges = [s.layers for s in plan.stages] if own else _ranges(plan, table.num_stages)
    shares = _layer_shares(plan)
    links, sends = _links(plan, table.submesh_of_stage, [last for _, last in ranges])
    times = [
        _times(
            plan.stages[submesh], _whole(plan.stages[submesh]) if own else _chunk(plan, layers, submesh),
            _Shares.of([shares[layer] for layer in range(layers[0], layers[1] + 1)]), *sends[stage], own=own,
        )
        for stage, (submesh, layers) in enumerate(zip(table.submesh_of_stage, ranges, strict=True))
    ]  # fmt: skip
    return simulate(table, times, links)


def planned_schedule(plan: Plan) -> str:
    """The name in `schedules.catalog` of the schedule that a plan was made for; a single stage needs none but 1F1B."""
    asked = plan.options.pipeline.schedule
    return SIMULATED_AS.get(asked, asked) if len(plan.stages) > 1 else SCHEDULES[0]


def possible_schedules(plan: Plan) -> tuple[str, ...]:
    """The names of the schedules that exist for this plan; the first is what it was planned for, if that does."""
    found = []
    for name in dict.fromkeys((planned_schedule(plan), *SCHEDULES)):
        with suppress(ScheduleError):
            _named(plan, name, None)
            found.append(name)
    return tuple(found)


def _named(plan: Plan, name: str, stages_per_submesh: int | None) -> Schedule:
    submeshes, layers = len(plan.stages), len(plan.layers)
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


def _fits(plan: Plan, table: Schedule) -> None:
    submeshes, b = len(plan.stages), plan.options.num_microbatches
    if (table.num_submeshes, table.num_microbatches) != (submeshes, b):
        raise ScheduleError(
            "The schedule was made for another pipeline",
            found=f"{table.num_submeshes} submeshes and B = {table.num_microbatches}; the plan has {submeshes} and "
            f"B = {b}",
            remedy="Make a schedule for this plan, or plan again with that B.",
        )


def _planned_turns(plan: Plan) -> int | None:
    """How often a microbatch comes through a submesh of a plan that was made for the interleaved schedule."""
    return plan.terms.turns if planned_schedule(plan) == INTERLEAVED else None


def _ranges(plan: Plan, stages: int) -> list[Range]:
    """The layers cut into more stages than the plan has: as many layers for a submesh as it was planned for, where that
    was for so many stages; else equal runs."""
    layers, turns = len(plan.layers), stages // len(plan.stages)
    if turns == _planned_turns(plan):
        counts = [s.layers[1] - s.layers[0] + 1 for s in plan.stages]
        ends = [0, *accumulate(n * (t + 1) // turns - n * t // turns for t in range(turns) for n in counts)]
        return [(first, end - 1) for first, end in pairwise(ends)]
    if layers % stages:
        raise ScheduleError(
            "A schedule with other stages than the plan cuts the layers into equal runs",
            found=f"{layers} layers for {stages} stages", remedy=f"Plan with a multiple of {stages} layers.",
        )  # fmt: skip
    each = layers // stages
    return [(k * each, (k + 1) * each - 1) for k in range(stages)]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Costs:
    """What a run of layers takes on a submesh."""

    microbatch_seconds: float
    iteration_seconds: float
    weight_bytes: float
    activation_bytes: float
    workspace_bytes: float


def _whole(stage: PlanStage) -> _Costs:
    return _Costs(
        microbatch_seconds=stage.microbatch_seconds,
        iteration_seconds=stage.iteration_seconds + stage.tied_seconds,
        weight_bytes=stage.weight_bytes, activation_bytes=stage.activation_bytes,
        workspace_bytes=stage.workspace_bytes,
    )  # fmt: skip


def _chunk(plan: Plan, layers: Range, submesh: int) -> _Costs:
    shapes = [(m.nodes, m.devices_per_node) for m in plan.costs.submeshes]
    shape = shapes.index(plan.stages[submesh].submesh)
    found = plan.costs.choose((*layers, shape), 1, plan.options.num_microbatches)
    if found is None:
        raise ScheduleError(
            "A run of layers of this schedule has no known cost",
            found=f"layers {layers[0]} to {layers[1]} on submesh {plan.stages[submesh].submesh}",
            remedy="Choose a schedule with one stage on each submesh: that run does not fit on those devices.",
        )
    return _Costs(
        microbatch_seconds=found.microbatch_seconds, iteration_seconds=found.iteration_seconds,
        weight_bytes=found.weight_bytes, activation_bytes=found.activation_bytes,
        workspace_bytes=found.workspace_bytes,
    )  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class _Shares:
    """Seconds of the operators of some layers by part: (compute, collectives); and their resident bytes."""

    forward: tuple[float, float] = (0.0, 0.0)
    of_input: tuple[float, float] = (0.0, 0.0)
    of_weight: tuple[float, float] = (0.0, 0.0)
    again: tuple[float, float] = (0.0, 0.0)
    """Of `forward`, what the backward pass runs again."""

    @staticmethod
    def of(layers: Sequence[_Shares]) -> _Shares:
        def total(part: str) -> tuple[float, float]:
            found = [getattr(layer, part) for layer in layers]
            return (sum(f[0] for f in found), sum(f[1] for f in found))

        return _Shares(
            forward=total("forward"), of_input=total("of_input"), of_weight=total("of_weight"),
            again=total("again"),
        )  # fmt: skip


def _layer_shares(plan: Plan) -> list[_Shares]:
    sums = {(layer.index, part): [0.0, 0.0] for layer in plan.layers for part in ("forward", "input", "weight")}
    for stage in plan.stages:
        for o in stage.operators:
            if o.phase != "update":
                part = "forward" if o.phase == "forward" else "weight" if o.weight_half else "input"
                found = sums[o.layer, part]
                found[0] += o.compute_seconds
                found[1] += o.communication_seconds
    repeated = {layer for stage in plan.stages for layer in stage.rematerialized}
    found_of = {key: (found[0], found[1]) for key, found in sums.items()}
    return [
        _Shares(
            forward=found_of[i, "forward"], of_input=found_of[i, "input"], of_weight=found_of[i, "weight"],
            again=found_of[i, "forward"] if i in repeated else (0.0, 0.0),
        )
        for i in range(len(plan.layers))
    ]  # fmt: skip


def _times(
    stage: PlanStage, costs: _Costs, shares: _Shares, send_forward: float, send_backward: float, *, own: bool
) -> StageTimes:  # fmt: skip
    """`own`: the stage is one of the plan's, so that the seconds of its operators are those that it was chosen by."""
    forward, of_input, of_weight, again = map(sum, (shares.forward, shares.of_input, shares.of_weight, shares.again))
    known = forward + again + of_input + of_weight
    # What is computed again comes before either half can run: it belongs to the half that runs first. What a stage
    # takes beside its operators is adding gradients to those of earlier microbatches: work on weights.
    rest = max(costs.microbatch_seconds - known, 0.0) if own else 0.0
    total = known + rest
    parts = [forward / total, (again + of_input) / total, (of_weight + rest) / total] if known else [1 / 3] * 3
    gradients, optimizer = _resident_shares(stage)
    in_collectives = tuple(
        moved / (computed + moved) if moved else 0.0
        for computed, moved in (
            shares.forward,
            tuple(f + i for f, i in zip(shares.again, shares.of_input, strict=True)),
            shares.of_weight,
        )
    )
    return StageTimes(
        forward_seconds=parts[0] * costs.microbatch_seconds, backward_input_seconds=parts[1] * costs.microbatch_seconds,
        backward_weight_seconds=parts[2] * costs.microbatch_seconds, update_seconds=costs.iteration_seconds,
        collective_fraction=(in_collectives[0], in_collectives[1], in_collectives[2]),
        send_forward_seconds=send_forward, send_backward_seconds=send_backward,
        weight_bytes=costs.weight_bytes * (1 - gradients - optimizer), gradient_bytes=costs.weight_bytes * gradients,
        optimizer_bytes=costs.weight_bytes * optimizer, activation_bytes=costs.activation_bytes,
        workspace_bytes=costs.workspace_bytes,
    )  # fmt: skip


def _resident_shares(stage: PlanStage) -> tuple[float, float]:
    """Shares of gradients and of optimizer state in the weight bytes of a stage; (0, 0) where they are not known."""
    updates: list[PlanOperator] = [o for o in stage.operators if o.phase == "update"]
    if not updates or not stage.weight_bytes:
        return 0.0, 0.0
    return (
        sum(o.gradient_bytes for o in updates) / stage.weight_bytes,
        sum(o.optimizer_bytes for o in updates) / stage.weight_bytes,
    )


def _links(
    plan: Plan, submesh_of_stage: Sequence[int], last_layers: Sequence[int]
) -> tuple[Links, list[tuple[float, float]]]:
    """The links of all stages, and for each stage the seconds of (its output forward, its gradient backward)."""
    names: dict[str, int] = {}
    forward, backward = [-1] * len(submesh_of_stage), [-1] * len(submesh_of_stage)
    seconds = [[0.0, 0.0] for _ in submesh_of_stage]
    for stage, (a, b) in enumerate(pairwise(submesh_of_stage)):
        if a == b:
            continue
        crossing = plan.layers[last_layers[stage]].operator_cut_bytes
        sent = float(crossing[-1]) if crossing else 0.0
        name, back, taken = _between(plan.cluster, plan.stages[a], plan.stages[b], sent)
        forward[stage] = names.setdefault(name, len(names))
        backward[stage + 1] = names.setdefault(back, len(names))
        seconds[stage][0] = seconds[stage + 1][1] = taken
    links = Links(names=tuple(names), forward=tuple(forward), backward=tuple(backward))
    return links, [(ahead, back) for ahead, back in seconds]


def _between(cluster: Cluster, a: PlanStage, b: PlanStage, sent: float) -> tuple[str, str, float]:
    """Names of the link and of its opposite, and the seconds that `sent` bytes take on either."""
    nodes = [sorted({d // cluster.devices_per_node for d in stage.devices}) for stage in (a, b)]
    if nodes[0] == nodes[1]:
        rate = cluster.inside_node.bandwidth * min(len(a.devices), len(b.devices))
        taken = cluster.inside_node.latency_seconds + sent / rate
        return f"submesh {a.index} → {b.index}", f"submesh {b.index} → {a.index}", taken
    rate = cluster.between_nodes.bandwidth * min(len(nodes[0]), len(nodes[1]))
    names = ["node " + "+".join(map(str, group)) for group in nodes]
    taken = cluster.between_nodes.latency_seconds + sent / rate
    return f"{names[0]} → {names[1]}", f"{names[1]} → {names[0]}", taken
