"""A baseline as a plan of the planner's cost model.

Stages with roles are priced here, those of the other baselines by the planner under constraints. The iteration
is that of Eq. 2 (Alpa, §5.1), as for the planner's own plans, so figures, files and `replan` work alike. A baseline
that is the planner under constraints is never faster than the automatic plan cut at the same layers.
"""

from __future__ import annotations

import math
import threading
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from alpa_explore import units
from alpa_explore.baselines.dims import Label, dim_labels
from alpa_explore.baselines.equal_stages import block_counts, planner_pipelines
from alpa_explore.baselines.kinds import EXCHANGES, WITH_ROLES, Degrees, dividing_sequences, ordered, resolve, takes
from alpa_explore.baselines.role_pipelines import Divisible, RolePipeline, role_pipelines
from alpa_explore.baselines.stage_pricer import StagePricer, stop_if_cancelled
from alpa_explore.cluster import Cluster
from alpa_explore.errors import InfeasiblePlanError, OptionError
from alpa_explore.graph import TrainingGraph
from alpa_explore.graph.blocks import block_starts
from alpa_explore.graph.counts import ROUTED, packet
from alpa_explore.inter_op.options import PipelineOptions, check_like_nodes
from alpa_explore.inter_op.result import PipelineResult
from alpa_explore.inter_op.schedule_terms import ScheduleTerms
from alpa_explore.inter_op.stage_table import best_pipeline, held_at
from alpa_explore.intra_op.stage.recomputation import asked_for
from alpa_explore.layering import Layering, cluster_operators, manual_layers
from alpa_explore.planner import interface
from alpa_explore.planner.default_layering import clustered, default_layering
from alpa_explore.planner.microbatch_graph import microbatch_graph
from alpa_explore.planner.request import in_its_mode
from alpa_explore.plans.assemble import assemble
from alpa_explore.plans.plan import Plan
from alpa_explore.plans.records import PlanOptions
from alpa_explore.pricing.stage_costs import StageCosts
from alpa_explore.schedules.catalog import INTERLEAVED
from alpa_explore.search.stage_profile import StageProfile
from alpa_explore.search.stages.versions import kinds_of, layered_versions
from alpa_explore.sharding.rules.attention import HEAVY as ATTENTION
from alpa_explore.tracing.cancelling import cancelled_by

_NEAR, _MOST_NEAR = 0.01, 4
"""Of pipelines whose objective is longer than the least by at most this share, at most so many have an iteration
simulated. Degrees that the objective put first took 0.04 % longer than others: a 25th of this share."""


def baseline(
    model: TrainingGraph | str,
    cluster: Cluster | str,
    kind: str,
    *,
    num_microbatches: int,
    tp: int | None = None,
    dp: int | None = None,
    pp: int | None = None,
    replicas: int | None = None,
    cp: int | None = None,
    ep: int | None = None,
    zero: int | None = None,
    chunks: int | None = None,
    blocks: Sequence[int] | None = None,
    exchange: str | None = None,
    num_layers: int | None = None,
    delta: float = 0.5,
    rematerialization: bool | str | None = None,
    precision: str | None = None,
    paper: bool | None = None,
    cancel: threading.Event | None = None,
) -> Plan:
    """The baseline `kind` (see `kinds`) for a captured graph or a catalogue model, cut at the layers of `ax.plan`.

    Where `pp` is given and `num_layers` is not, layers are the blocks of the model, and stages have equally many of
    them, or those of each part in `blocks`. `zero` and `chunks` (megatron) are the ZeRO stage and the parts of the
    model on each stage, which run interleaved. `tp`, `dp`, `pp` are the degrees of megatron and fsdp+tp+pp (`pp` also
    of gpipe-equal-layers), `replicas` those of hsdp and fsdp+tp+pp. `ep`: so many of the dp devices hold different
    experts. `cp` (megatron): so many devices share a sequence, 1 where it is not given; `exchange` says how their
    attention does, by a name of `kinds.EXCHANGES` (default: by a ring, in zig-zag order where that is faster). Values
    of another degree that is not given are tried, and the fastest plan that fits is returned. `rematerialization` is
    that of `ax.plan` but for 'auto': Megatron-LM's selective recomputation repeats what 'attention' does, its full
    one what 'full' does. `paper` is that of `PipelineOptions`. InfeasiblePlanError where none fits in memory,
    OptionError for degrees that do not divide; otherwise raises as `ax.plan` does.
    """
    cluster = (cluster if isinstance(cluster, Cluster) else Cluster.parse(cluster)).in_precision(precision)
    given = Degrees(tp=tp, dp=dp, pp=pp, replicas=replicas, cp=cp, ep=ep, zero=zero, chunks=chunks)
    kind, degrees = resolve(kind, given, exchange)
    check_like_nodes(
        cluster,
        "Manual parallelism divides a model equally",
        f"Plan, which gives each kind its stages, or take one of: {', '.join(map(str, cluster.kinds))}.",
    )
    started = time.perf_counter()
    with cancelled_by(cancel):
        whole = rematerialization if isinstance(rematerialization, bool) else None
        graph = microbatch_graph(model, num_microbatches, rematerialization=whole, precision=precision)
    rematerialization = asked_for(rematerialization, graph)
    parts = (degrees.pp or 1) * (degrees.chunks or 1)
    starts = block_starts(graph) if "zero" in takes(kind) and num_layers is None and degrees.pp is not None else ()
    by_block = len(starts) >= max(parts, 2)
    if blocks is not None and not by_block:
        raise OptionError(
            "Only a pipeline of megatron whose layers are blocks takes the blocks of its parts",
            found=f"blocks={tuple(blocks)} for {kind}, pp={degrees.pp}, num_layers={num_layers}",
            remedy="Give pp and no num_layers, of a model with numbered blocks, or leave blocks out.",
        )
    if by_block:
        layering = manual_layers(graph, starts[1:])
        blocks = _checked_blocks(blocks or block_counts(len(starts), parts), len(starts), parts)
    elif num_layers is not None:
        layering = cluster_operators(graph, num_layers, delta=delta)
    else:
        layering = default_layering(graph, delta, devices=cluster.devices)
    mode = PipelineOptions(paper=paper)
    if degrees.chunks is not None and degrees.chunks > 1:
        mode = replace(mode, schedule=INTERLEAVED, stages_per_submesh=degrees.chunks)
    count = len(layering.layers)
    if num_microbatches < 1:
        raise OptionError(
            "The number of microbatches must be at least 1", found=f"B = {num_microbatches}", remedy="Give 1 or more."
        )
    (recomputation, *others) = kinds_of(rematerialization, count)
    if others:
        raise OptionError(
            "A baseline recomputes the same in all stages",
            found=f"rematerialization={rematerialization!r}",
            remedy="Give the name of what is recomputed, such as 'attention' or 'full'.",
        )
    options = PlanOptions(
        num_microbatches=num_microbatches,
        delta=delta,
        num_layers=count,
        solver="auto",
        pipeline=in_its_mode(mode, graph.recipe, cluster),
        rematerialization=recomputation.name if recomputation is not None else "",
    )
    if kind in WITH_ROLES:
        plan = _with_roles(
            graph, layering, tuple(blocks or ()), cluster, kind, degrees, exchange, options, cancel, started
        )
        return _exchanging(plan, exchange, degrees) if exchange is not None else plan
    if kind == "equal-operators":
        operators = len(graph.forward_operators)
        cuts = tuple(str(round(i * operators / count)) for i in range(1, count))
        pipelines: Sequence[tuple[str, PipelineOptions]] = [("layers of its own", mode)]
        layers: dict[str, Any] = {"boundaries": cuts} if cuts else {"num_layers": 1}
    else:
        constraints = planner_pipelines(kind, cluster, count, graph.samples, degrees)
        pipelines = [(t, replace(one, paper=paper, communication=None, tied_weights=None)) for t, one in constraints]
        layers = {"num_layers": count}
    return _constrained(
        graph,
        cluster,
        kind,
        pipelines,
        cancel,
        num_microbatches=num_microbatches,
        delta=delta,
        rematerialization=rematerialization,
        **layers,
    )


def _experts(graph: TrainingGraph) -> int:
    """Routed experts of a block: their greatest common divisor over the blocks; 1 where there are none."""
    routed = [o for o in graph.forward_operators if packet(o.kind) in ROUTED]
    found = math.gcd(*(graph.tensors[o.inputs[ROUTED[packet(o.kind)].matrices]].shape[0] for o in routed))
    return found or 1


def _checked_blocks(blocks: Sequence[int], found: int, parts: int) -> tuple[int, ...]:
    if sum(blocks) != found or len(blocks) != parts or min(blocks) < 1:
        raise OptionError(
            "The blocks of the parts are not those of the model",
            found=f"{tuple(blocks)} for {found} blocks in {parts} parts",
            remedy="Give a number of 1 or more for each part, in order; together they are all blocks.",
        )
    return tuple(blocks)


def _with_roles(
    graph: TrainingGraph,
    layering: Layering,
    blocks: tuple[int, ...],
    cluster: Cluster,
    kind: str,
    degrees: Degrees,
    exchange: str | None,
    options: PlanOptions,
    cancel: threading.Event | None,
    started: float,
) -> Plan:
    """The fastest of the pipelines that a baseline with roles may be, with so many blocks in each part where they are
    given."""
    b, count, pp = options.num_microbatches, options.num_layers, degrees.pp or 1
    # A device has one sample of a sequence that others share.
    shared = (degrees.cp or (cluster.devices if "cp" in takes(kind) and graph.samples < cluster.devices else 1)) > 1
    whole = Divisible(
        layers=count,
        samples=graph.samples,
        positions=_positions(graph) if shared else 1,
        experts=_experts(graph),
        of_stages=tuple(sum(blocks[stage::pp]) for stage in range(pp)) if blocks else (),
    )
    candidates = role_pipelines(kind, cluster, whole, degrees)
    found: list[tuple[TrainingGraph, Cluster, PlanOptions, Layering, StageProfile, PipelineResult]] = []
    unfit: list[tuple[RolePipeline, StageCosts]] = []
    for cp in sorted({candidate.cp for candidate in candidates}):
        arranged, layers, offering = graph, layering, cluster
        if cp > 1:
            offering = dividing_sequences(cluster, exchange)
            arranged = ordered(graph, cp, exchange)
            if arranged is not graph:
                by_block = block_starts(arranged)[1:]
                layers = manual_layers(arranged, by_block) if blocks else clustered(arranged, count, options.delta)
        (layered,) = layered_versions(
            arranged, layers.layer_of_forward, options.rematerialization or None, software=offering.software
        )
        pricer = StagePricer(layered, layers, offering, options, cancel, blocks)
        for candidate in candidates:
            if candidate.cp != cp:
                continue
            costs = pricer.costs(candidate)
            pipeline = best_pipeline(costs, offering, options.pipeline, b)
            if not pipeline.feasible:
                unfit.append((candidate, costs))
            else:
                named = replace(options, baseline=f"{kind} ({candidate.text})")
                found.append((arranged, offering, named, layers, pricer.profile(costs), pipeline))
    if not found:
        raise _no_role_pipeline_fits(kind, cluster, options.pipeline.terms(b), unfit)
    found.sort(key=lambda one: one[-1].total_seconds)
    near = [one for one in found[:_MOST_NEAR] if one[-1].total_seconds <= (1.0 + _NEAR) * found[0][-1].total_seconds]
    plans = [assemble(*one, [("baseline", time.perf_counter() - started)]) for one in near]
    return min(plans, key=lambda plan: plan.predicted.iteration_seconds)


def _positions(graph: TrainingGraph) -> int:
    """The length of a sequence: that of most tensors; 1 where no dim is known to be of positions."""
    labels = dim_labels(graph)
    lengths = Counter(graph.tensors[t].shape[d] for (t, d), label in labels.items() if label is Label.POSITIONS)
    return lengths.most_common(1)[0][0] if lengths else 1


def _exchanging(plan: Plan, exchange: str, degrees: Degrees) -> Plan:
    """`plan`, whose name says the exchange. OptionError where an attention operator is not divided so."""
    asked = set(EXCHANGES[exchange].split())
    attention = [o for stage in plan.stages for o in stage.operators if o.op in ATTENTION]
    others = [f"{o.name} is divided by {o.strategy}" for o in attention if not asked & set(o.strategy.split("·"))]
    if others or not attention:
        raise OptionError(
            "Attention cannot be divided so over the sequence",
            found=f"exchange={exchange} with cp={degrees.cp}: {others[0] if others else 'no fused attention'}",
            remedy="ulysses needs heads of keys that tp × cp divides, ring-zigzag a causal mask and positions that "
            "2 × cp divides: give another exchange or cp.",
        )
    return _named(plan, f"{plan.options.baseline[:-1]}, {exchange})")


def _constrained(
    graph: TrainingGraph,
    cluster: Cluster,
    kind: str,
    pipelines: Sequence[tuple[str, PipelineOptions]],
    cancel: threading.Event | None,
    **options: Any,
) -> Plan:
    """The fastest of several (description, constraints), each planned by the planner."""
    plans: list[Plan] = []
    errors: list[tuple[str, InfeasiblePlanError]] = []
    for text, pipeline in pipelines:
        stop_if_cancelled(cancel, f"{len(plans) + len(errors)} of its pipelines were planned")
        try:
            plan = interface.plan(graph, cluster, cancel=cancel, pipeline=pipeline, **options)
        except InfeasiblePlanError as error:
            errors.append((text, error))
        else:
            plans.append(_named(plan, f"{kind} ({text})"))
    if not plans:
        raise _no_planned_pipeline_fits(kind, cluster, errors)
    return min(plans, key=lambda plan: plan.predicted.iteration_seconds)


def _named(plan: Plan, name: str) -> Plan:
    return replace(plan, options=replace(plan.options, baseline=name))


def _no_role_pipeline_fits(
    kind: str, cluster: Cluster, terms: ScheduleTerms, priced: Sequence[tuple[RolePipeline, StageCosts]]
) -> InfeasiblePlanError:
    """Names the pipeline with the lowest peak, and the stage where that peak is, with the microbatches that it holds
    under the schedule of `terms`. OptionError where the schedule exists for none of these pipelines."""
    needs = []
    possible = [(p, costs) for p, costs in priced if len(p.ranges) in terms.depths(len(p.ranges))]
    if priced and not possible:
        terms.check_depth(len(priced[0][0].ranges))
    for pipeline, costs in possible:
        stages, depth = [], len(pipeline.ranges)
        for place, (first, last) in zip(range(depth, 0, -1), pipeline.ranges, strict=True):
            held = held_at(costs, terms, place, depth)
            if candidates := costs.candidates[first, last, 0]:
                stages.append((min(c.peak_bytes(held) for c in candidates), first, last))
        if stages:
            needs.append((*max(stages), pipeline))
    if not needs:
        return InfeasiblePlanError(
            f"The baseline {kind} has no plan",
            found=f"no legal choice of strategies on {cluster}",
            remedy="Try another baseline, or `ax.plan`.",
        )
    peak, first, last, closest = min(needs, key=lambda need: need[0])
    return _too_large(kind, f"layers {first}–{last} ({closest.text}) need", peak, cluster.device.memory_bytes)


def _no_planned_pipeline_fits(
    kind: str, cluster: Cluster, errors: Sequence[tuple[str, InfeasiblePlanError]]
) -> InfeasiblePlanError:
    """Names the pipeline that lacks the fewest bytes; `errors` are (its description, the planner's error)."""
    text, error = min(errors, key=lambda pair: math.inf if pair[1].over_bytes is None else pair[1].over_bytes)
    if error.over_bytes is None:
        return error
    memory = cluster.device.memory_bytes
    return _too_large(kind, f"{text} needs", memory + error.over_bytes, memory)


def _too_large(kind: str, needs: str, peak_bytes: float, memory_bytes: float) -> InfeasiblePlanError:
    return InfeasiblePlanError(
        f"The baseline {kind} does not fit in memory",
        found=f"{needs} {units.bytes_(peak_bytes)} of {units.bytes_(memory_bytes)} on a device",
        remedy="Give more microbatches of a smaller size, more devices, or a baseline that shards weights (zero-3, "
        "megatron with a larger tp or pp).",
        over_bytes=peak_bytes - memory_bytes,
    )
