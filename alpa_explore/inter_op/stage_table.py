"""The latency table of the pipeline DP, with the user's options written into it.

    entry [k, i, m, s − 1] = t(k..i-1, m, held(s)) + receive(k..i-1, m)          inf where the options forbid it

t is the latency of the fastest candidate that fits in memory with the microbatches that the schedule holds at place s
from the end (`StageCosts.latency_table`).

receive is added when `communication` is on: the bytes that arrive from other stages (activations from earlier stages,
gradients from later ones, each counted where it is received) divided by the bandwidth of the stage's share of the
links. The devices of a node share its network card, so a stage of n × m devices has n·m/M cards; in a cluster of one
node every device has a link. Whether two neighbouring stages will share a node is unknown before they are placed: with
several nodes the network is assumed. Each direction pays one link latency; a stage of real software also waits for what
it sends. Where a microbatch passes through a submesh v times, its inputs are received v times.

Where the bubble or the microbatches held depend on the number of stages P, or a schedule exists only for some P, there
is a table and a DP for each P, and the best result is taken; of equal ones that with the fewest stages. DualPipe, which
runs two stages on every submesh, has equal submeshes: for each P there is a DP for each submesh of 1/P of the devices.

The gradients of a tied weight, which several stages read, are summed over these stages once an iteration. This is added
when `tied_weights` is on: every stage that reads the weight, except the first, pays an all-reduce of the gradient
between two ranks over the slowest link of the cluster; u stages make u − 1 all-reduces. The figure depends on the
stage's layers alone and is not part of its latency: it is `once_seconds` of the DP.

Entries are inf for: ranges with a cut inside; ranges with fewer layers than the schedule needs in a stage, and all
ranges where the schedule does not exist for that number of stages; a first stage at another place than `num_stages`;
another submesh than that of `stage_submeshes` at its place; submeshes outside the space; shares of FLOPs outside the
tolerance.

Devices of several kinds are one number, so that the recurrence counts them as it counts like ones. The devices left of
kinds 0, 1, … are its digits with bases 2·D_0 + 1, 2·D_1 + 1, …: adding a submesh (of at most D devices of a kind) to a
state (with at most D of it left) never carries into the next digit. Numbers with a digit above D are states with more
devices than there are; they are `outside`, and have no partition. States are about (2·D_0 + 1)·(D_1 + 1) for two kinds.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np

from alpa_explore.cluster import SUBMESH_SPACES, Cluster, submeshes
from alpa_explore.cost.collectives import collective_seconds, send_seconds, waited_share
from alpa_explore.errors import OptionError
from alpa_explore.inter_op.options import PipelineOptions, check_options
from alpa_explore.inter_op.pipeline_dp import NEAR, pipeline_dp
from alpa_explore.inter_op.result import PipelineResult
from alpa_explore.inter_op.schedule_terms import ScheduleTerms
from alpa_explore.numerics.arrays import Floats, Ints
from alpa_explore.pricing.stage_costs import RangeKey, StageCandidate, StageCosts
from alpa_explore.sharding.reshard import StepKind


def encoded(devices_of: Sequence[tuple[int, int]], totals: Sequence[int]) -> tuple[Ints, int, Ints]:
    """(the number of each submesh, that of all devices, the numbers outside) from the (kind, devices) of each submesh
    and the devices of each kind."""
    units = [math.prod(2 * total + 1 for total in totals[:kind]) for kind in range(len(totals))]
    numbers = np.array([units[kind] * devices for kind, devices in devices_of], dtype=np.int64)
    whole = sum(unit * total for unit, total in zip(units, totals, strict=True))
    states = np.arange(whole + 1)
    inside = np.ones(whole + 1, dtype=bool)
    for unit, total in zip(units, totals, strict=True):
        inside &= states // unit % (2 * total + 1) <= total
    return numbers, whole, np.flatnonzero(~inside)


def best_pipeline(
    costs: StageCosts,
    cluster: Cluster,
    options: PipelineOptions,
    num_microbatches: int,
    *,
    bound: bool = False,
    under: float | None = None,
) -> PipelineResult:
    """The best pipeline under the options; with `bound` by lower bounds on latencies in place of the candidates. With
    `under` the one of that t_max in seconds: of those whose stages take at most as long, that with the least Σt.

    Where sends are counted, what would be best without them is `near`: the sum that is minimised counts a send as if
    nothing ran beside it, and the latter as if all did. OptionError for options that contradict each other, or that
    need figures which `costs` does not have.
    """
    layers = costs.num_layers
    check_options(options, cluster, layers)
    found = _best_pipeline(costs, cluster, options, num_microbatches, bound=bound, under=under)
    if (
        bound
        or under is not None
        or options.paper
        or not options.communication
        or not costs.received_bytes
        or len(found.stages) == 0
    ):
        return found
    free = _best_pipeline(costs, cluster, replace(options, communication=False), num_microbatches, bound=False)
    others = dict.fromkeys((free.stages, *found.near, *free.near))
    return replace(found, near=tuple(stages for stages in others if stages != found.stages))


def _best_pipeline(
    costs: StageCosts,
    cluster: Cluster,
    options: PipelineOptions,
    num_microbatches: int,
    *,
    bound: bool,
    under: float | None = None,
) -> PipelineResult:
    layers = costs.num_layers
    terms = schedule_terms(costs, options, num_microbatches)
    if terms.copies != costs.copies:
        raise OptionError(
            "The stage costs are those of another number of copies of the model",
            found=f"{costs.copies}, and the schedule {options.schedule} runs {terms.copies}",
            remedy="Plan for that schedule: `ax.plan`, or `replan`, which plans anew where it must.",
        )
    once = once_seconds(costs, cluster, options)
    # What the software adds to an iteration is added to the first stage: every pipeline has exactly one.
    once[0, 1:] += cluster.software.iteration_seconds

    devices_of, total, outside = np.array([m.devices for m in costs.submeshes]), cluster.devices, None
    if cluster.others:
        of_kinds = [kind.devices for kind in cluster.kinds]
        devices_of, total, outside = encoded([(m.kind, m.devices) for m in costs.submeshes], of_kinds)

    def best(options: PipelineOptions, only: int | None = None) -> PipelineResult:
        table = stage_table(costs, cluster, options, num_microbatches, bound=bound)
        if only is not None:
            table[:, :, [shape for shape in range(len(costs.submeshes)) if shape != only]] = np.inf
        at_depth = replace(terms, num_stages=options.num_stages or 1)
        if under is not None:  # with B = 1 and a bubble of 1 the objective is Σt alone
            table[table > under] = np.inf
            more_once = at_depth.bubble_divisor * once
            return pipeline_dp(table, devices_of, total, 1, once_seconds=more_once, outside=outside)
        return pipeline_dp(
            table,
            devices_of,
            total,
            num_microbatches,
            bubble_divisor=at_depth.bubble_divisor,
            more_rounds=at_depth.more_rounds,
            rounds_symbols=at_depth.rounds_symbols,
            once_seconds=once,
            outside=outside,
        )

    if terms.copies > 1:
        even = terms.depths(layers) if options.num_stages is None else (options.num_stages,)
        equal = [(p, m) for p in even for m, shape in enumerate(costs.submeshes) if p * shape.devices == total]
        results = [best(replace(options, num_stages=depth), shape) for depth, shape in equal or [(2, 0)]]
        return _best_of(results)
    if options.num_stages is not None or not terms.depends_on_depth:
        return best(options)
    depths = [depth for depth in terms.depths(layers) if layers >= depth * terms.least_layers(depth)]
    return _best_of([best(replace(options, num_stages=depth)) for depth in depths])


def _best_of(results: Sequence[PipelineResult]) -> PipelineResult:
    """The best of them, and which partitions of the others are near it."""
    best = min(results, key=lambda result: result.total_seconds)
    others = sorted((r for r in results if r is not best and r.feasible), key=lambda result: result.total_seconds)
    near = [r for r in others if r.total_seconds <= (1.0 + NEAR) * best.total_seconds]
    return replace(best, near=(*(r.stages for r in near), *best.near)) if near else best


def schedule_terms(costs: StageCosts, options: PipelineOptions, num_microbatches: int) -> ScheduleTerms:
    """The schedule of `options` at this B."""
    return options.terms(num_microbatches, recomputes=costs.recomputes)


def stage_table(
    costs: StageCosts, cluster: Cluster, options: PipelineOptions, num_microbatches: int, *, bound: bool = False
) -> Floats:
    """The table of the module's docstring, [L, L + 1, submeshes, S]; S is `num_stages` where that is given, else L."""
    layers = costs.num_layers
    terms = schedule_terms(costs, options, num_microbatches)
    depth = options.num_stages or layers
    possible = options.num_stages is None or depth in terms.depths(depth)
    held = [held_at(costs, terms, s, depth) for s in range(1, layers + 1)]
    table = (costs.bound_table if bound else costs.latency_table)(num_microbatches, held)
    table += receive_seconds(costs, cluster, options)[..., None]
    starts, ends = np.ogrid[:layers, : layers + 1]
    table[ends - starts < (terms.least_layers(depth) if possible else layers + 1)] = np.inf
    _restrict(table, costs, cluster, options)
    return table[..., :depth]


def once_seconds(costs: StageCosts, cluster: Cluster, options: PipelineOptions) -> Floats:
    """Seconds [L, L + 1] that layers k..i-1 as a stage spend once an iteration on weights that earlier stages read too.

    0 where that is not counted.
    """
    link = cluster.inside_node if cluster.nodes == 1 else cluster.between_nodes
    once = np.zeros((costs.num_layers, costs.num_layers + 1))
    for readers, gradient_bytes in costs.tied_weights if options.tied_weights else ():
        seconds = collective_seconds(StepKind.ALL_REDUCE, gradient_bytes, 2, link.bandwidth, link.latency_seconds)
        for first, last in _ranges(costs.num_layers):
            if min(readers) < first and any(first <= layer <= last for layer in readers):
                once[first, last + 1] += seconds
    return once


def receive_seconds(costs: StageCosts, cluster: Cluster, options: PipelineOptions) -> Floats:
    """Seconds [L, L + 1, submeshes] that layers k..i-1 as a stage wait in each microbatch for inputs from other stages.

    0 where that is not counted, or not recorded, as in an early plan file: `plans.iteration_time` has them all the
    same.
    """
    layers, devices = costs.num_layers, np.array([submesh.devices for submesh in costs.submeshes])
    seconds = np.zeros((layers, layers + 1, len(devices)))
    if not options.communication or not costs.received_bytes:
        return seconds
    first, last = np.array(list(costs.received_bytes)).T
    received = np.array(list(costs.received_bytes.values()))
    directions = (first > 0) + (last < layers - 1).astype(np.int64)
    one = send_seconds(cluster, 0.0, crosses_nodes=cluster.nodes > 1)
    moved = send_seconds(cluster, received[:, None] / devices, crosses_nodes=cluster.nodes > 1) - one
    turns = options.terms(1).turns
    # Real software waits for what it sends, too.
    waits = 1.0 if cluster.software.ideal_sends else 2.0 * waited_share(cluster.software, turns)
    seconds[first, last + 1] = np.where(
        directions[:, None] > 0, turns * (directions[:, None] * one + moved) * waits, 0.0
    )
    return seconds


def held_at(costs: StageCosts, terms: ScheduleTerms, place: int, depth: int) -> float:
    """The most microbatches that a stage holds at `place` from the end of `depth` stages."""
    if len(costs.turns) == depth >= place:
        return costs.held_beside(place, terms.held_in_turns(place, depth))
    return terms.held(place, depth)


def chosen_candidate(
    costs: StageCosts, options: PipelineOptions, key: RangeKey, place: int, depth: int, num_microbatches: int
) -> tuple[StageCandidate, float]:
    """The candidate for a stage at `place` from the end of `depth` stages, and the microbatches that it holds."""
    held = held_at(costs, schedule_terms(costs, options, num_microbatches), place, depth)
    candidate = costs.choose(key, held, num_microbatches)
    assert candidate is not None, "the pipeline has a stage that does not fit in memory"
    return candidate, held


def _restrict(table: Floats, costs: StageCosts, cluster: Cluster, options: PipelineOptions) -> None:
    layers = costs.num_layers
    for cut in options.cuts:
        table[:cut, cut + 1 :] = np.inf
    if options.num_stages is not None:
        table[0, ..., [s for s in range(layers) if s + 1 != options.num_stages]] = np.inf
    for stage, nodes, devices in options.stage_submeshes:
        others = [m for m, s in enumerate(costs.submeshes) if (s.nodes, s.devices_per_node) != (nodes, devices)]
        if stage == 0 or (options.num_stages is not None and stage == -options.num_stages):
            table[0][:, others] = np.inf
        else:
            place = -stage if stage < 0 else (options.num_stages or 0) - stage
            table[:, :, others, place - 1] = np.inf
    _restrict_submeshes(table, costs, cluster, options.submesh_space)
    if options.imbalance_tolerance is not None:
        _balance(table, costs, cluster, 1.0 + options.imbalance_tolerance)


def _restrict_submeshes(table: Floats, costs: StageCosts, cluster: Cluster, space_name: str) -> None:
    priced = set(costs.submeshes)
    if all(priced != set(submeshes(cluster, name)) for name in SUBMESH_SPACES):
        return  # a baseline, which chooses its submeshes itself
    space = set(submeshes(cluster, space_name))
    if not space <= priced:
        missing = next(s for s in submeshes(cluster, space_name) if s not in priced)
        raise OptionError(
            "The plan holds no costs for these submeshes",
            found=f"{missing} in the space '{space_name}'",
            remedy="Plan again with this space: its solves are kept.",
        )
    table[:, :, [m for m, s in enumerate(costs.submeshes) if s not in space]] = np.inf


def _balance(table: Floats, costs: StageCosts, cluster: Cluster, factor: float) -> None:
    total = sum(costs.layer_flops)
    for first, last in _ranges(costs.num_layers):
        flops = sum(costs.layer_flops[first : last + 1])
        for shape, submesh in enumerate(costs.submeshes):
            # flops / total against devices / D, multiplied out so that equal shares compare equal.
            work, share = flops * cluster.devices, total * submesh.devices
            if not share <= work * factor * (1 + 1e-12) or not work <= share * factor * (1 + 1e-12):
                table[first, last + 1, shape] = np.inf


def _ranges(layers: int) -> Iterable[tuple[int, int]]:
    return ((first, last) for first in range(layers) for last in range(first, layers))
