"""A plan from the results of the passes: graph, layers, stage costs and pipeline."""

import threading
from bisect import bisect_left
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace

from alpa_explore import units
from alpa_explore.cluster import Cluster, place
from alpa_explore.cost.stage import device_bytes
from alpa_explore.errors import CancelledError, ScheduleError
from alpa_explore.graph import TrainingGraph
from alpa_explore.graph.spelled_out import spelled_out_warnings, unrecognised_experts_warnings
from alpa_explore.graph.written import written_warnings
from alpa_explore.inter_op.options import PipelineOptions
from alpa_explore.inter_op.pipeline_dp import MOST_NEAR
from alpa_explore.inter_op.result import PipelineResult, Stage, SweepPoint
from alpa_explore.inter_op.stage_table import chosen_candidate, once_seconds
from alpa_explore.layering import Layering, crossing_bytes
from alpa_explore.plans.iteration_time import iteration, iteration_time, objective_seconds
from alpa_explore.plans.plan import Plan
from alpa_explore.plans.planned_stage import Descriptions, planned_stage, stage_descriptions
from alpa_explore.plans.records import (
    ModelSummary,
    PlanLayer,
    PlanOptions,
    PlanStage,
    Predicted,
    Statistics,
    TriedSchedule,
)
from alpa_explore.plans.report.text import fullest
from alpa_explore.plans.schedule_stages import interleaved_stages, planned_schedule
from alpa_explore.plans.stage_details import StageDetails
from alpa_explore.plans.timeline import Shares, layer_shares
from alpa_explore.schedules.catalog import INTERLEAVED
from alpa_explore.search.stage_profile import StageProfile
from alpa_explore.sharding.splits import replicated_warnings

_CLOSE = 2e-3
"""How much longer an iteration may take with the shares of other stages, for it to be simulated with its own.
The two differ by less than 1e-3."""
_UNSURE = 0.02
"""How much longer an iteration may take with the shares of another schedule's stages, for it to be simulated with its
own. The two differ by up to 0.8 % for a small model under schedules that divide the backward pass."""
NOTHING_PREDICTED = Predicted(
    iteration_seconds=0.0, t_max_seconds=0.0, sum_latency_seconds=0.0, bubble_fraction=0.0, peak_bytes_per_device=0.0
)

Found = tuple[PipelineOptions, PipelineResult | None]
"""A schedule, and its best pipeline; None where none fits."""


def assemble(
    graph: TrainingGraph,
    cluster: Cluster,
    options: PlanOptions,
    layering: Layering,
    profile: StageProfile,
    pipeline: PipelineResult,
    seconds: Sequence[tuple[str, float]],
) -> Plan:
    """The complete plan; `seconds` are (pass, seconds)."""
    empty = Plan(
        model=_summary(graph),
        cluster=cluster,
        options=options,
        layers=_layers(graph, layering),
        stages=(),
        predicted=NOTHING_PREDICTED,
        t_max_sweep=(),
        costs=profile.costs,
        warnings=(
            *graph.warnings,
            *written_warnings(graph),
            *spelled_out_warnings(graph),
            *unrecognised_experts_warnings(graph),
            *replicated_warnings(graph),
            *profile.warnings,
        ),
        statistics=Statistics(
            solves=profile.solves,
            distinct_solves=profile.distinct_solves,
            cached_solves=profile.cached_solves,
            variables=profile.variables,
            constraints=profile.constraints,
            seconds=tuple(seconds),
        ),
        details=StageDetails(profile.problem_of, profile.choices, graph),
    )
    return choose_stages(empty, pipeline)


def choose_stages(plan: Plan, pipeline: PipelineResult, shares: Shares | None = None) -> Plan:
    """`plan` with the stages of `pipeline`, or of another partition near it of which an iteration takes less, at its
    number of microbatches. `shares` are those of the layers in another plan of theirs (default: in that of
    `pipeline`), by which the partitions are first compared."""
    descriptions = stage_descriptions(plan)
    best = _with_stages(plan, pipeline.stages, descriptions)
    by_objective = Predicted(
        iteration_seconds=pipeline.total_seconds,
        t_max_seconds=pipeline.t_max_seconds,
        sum_latency_seconds=pipeline.sum_latency_seconds,
        bubble_fraction=0.0,
        peak_bytes_per_device=0.0,
    )
    best = with_predicted(replace(best, predicted=by_objective))
    if plan.options.pipeline.paper or iteration_time(best) is None:
        return replace(best, t_max_sweep=pipeline.sweep)
    return _fastest(best, pipeline, descriptions, shares)


def _fastest(best: Plan, pipeline: PipelineResult, descriptions: Descriptions, shares: Shares | None) -> Plan:
    """Of `best` and the partitions near it the one of which an iteration takes least; what each takes is in the sweep.

    Another partition is first simulated with the shares of forward and backward pass that the layers have in `best`:
    to describe its operators would take longer than all else. What may be the fastest is simulated with its own.
    """
    evaluated = [best]
    for stages in pipeline.near[:MOST_NEAR]:
        shares = layer_shares(best) if shares is None else shares
        other = _with_stages(best, stages, descriptions)
        with suppress(ScheduleError):
            seconds = iteration(other, shares).planned_seconds
            least = min(plan.predicted.iteration_seconds for plan in evaluated)
            if seconds < (1.0 + _CLOSE) * least:
                other = with_predicted(other)
            else:
                predicted = replace(other.predicted, iteration_seconds=seconds, t_max_seconds=_slowest(other))
                other = replace(other, predicted=predicted)
            evaluated.append(other)
    chosen = min(evaluated, key=lambda plan: plan.predicted.iteration_seconds)
    sweep = list(pipeline.sweep)
    # A pipeline that no DP found has no sweep.
    for other in sorted(evaluated, key=lambda plan: -plan.predicted.iteration_seconds) if sweep else ():
        index = min(bisect_left(pipeline.candidates, _slowest(other) * (1 - 1e-12)), len(sweep) - 1)
        total, objective = other.predicted.iteration_seconds, objective_seconds(other)
        said = f"an iteration takes {units.seconds(total)}, the objective is {units.seconds(objective)}"
        sweep[index] = SweepPoint(
            t_max_seconds=sweep[index].t_max_seconds,
            iteration_seconds=total,
            pruned=False,
            reason=f"the best: {said}" if other is chosen else said,
            objective_seconds=objective,
        )
    return chosen.with_memo(t_max_sweep=tuple(sweep))


def fastest_schedule(plan: Plan, found: Sequence[Found], cancel: threading.Event | None = None) -> Plan:
    """The plan with the schedule of `found` under which an iteration takes least; what each takes is in its
    `schedules`. `plan` has the first schedule that fits. CancelledError, with the fastest so far, once `cancel` is set.

    As for the partitions of one schedule, each is first simulated with the shares that the layers have in `plan`.
    """
    own = plan.options.pipeline
    descriptions, shares = stage_descriptions(plan), layer_shares(plan)
    least: dict[PipelineOptions, float] = {own: plan.predicted.iteration_seconds}
    plans = {own: plan}
    for options, pipeline in found:
        if options == own or pipeline is None:
            continue
        under = replace(plan, options=replace(plan.options, pipeline=options))
        for stages in (pipeline.stages, *pipeline.near[:MOST_NEAR]):
            _stop(cancel, plans, least, found)
            other = _with_stages(under, stages, descriptions)
            with suppress(ScheduleError):  # it cannot run for this partition
                if _turns_fit(other):
                    seconds = iteration(other, shares).planned_seconds
                    least[options] = min(seconds, least.get(options, seconds))
    for options, pipeline in sorted(found, key=lambda one: least.get(one[0], float("inf"))):
        if pipeline is None or options in plans or options not in least:
            continue
        if least[options] < (1.0 + _UNSURE) * min(least[known] for known in plans):
            _stop(cancel, plans, least, found)
            under = replace(plan, options=replace(plan.options, pipeline=options))
            made = choose_stages(under, pipeline, shares)
            if _turns_fit(made):
                plans[options], least[options] = made, made.predicted.iteration_seconds
            else:
                del least[options]
    return _of_schedules(plans, least, found)


def _turns_fit(plan: Plan) -> bool:
    """Whether the stages that each submesh runs in turn fit in memory together: each has a choice of its own, which may
    need more than its part of the choice for all their layers."""
    of_submesh: dict[tuple[int, ...], list[PlanStage]] = {}
    for stage in plan.interleaved:
        of_submesh.setdefault(stage.devices, []).append(stage)
    return all(
        sum(device_bytes([s.bytes for s in stages])) <= plan.device_of(stages[0]).memory_bytes
        for stages in of_submesh.values()
    )


def _of_schedules(
    plans: dict[PipelineOptions, Plan], least: dict[PipelineOptions, float], found: Sequence[Found]
) -> Plan:
    best = min(plans.values(), key=lambda plan: plan.predicted.iteration_seconds)
    tried = tuple(
        TriedSchedule(
            schedule=options.schedule,
            stages_per_submesh=options.terms(1).turns,
            iteration_seconds=least.get(options),
            stages=None if pipeline is None else len(plans[options].stages if options in plans else pipeline.stages),
        )
        for options, pipeline in found
    )
    return best.with_memo(schedules=tried)


def _stop(
    cancel: threading.Event | None,
    plans: dict[PipelineOptions, Plan],
    least: dict[PipelineOptions, float],
    found: Sequence[Found],
) -> None:
    if cancel is None or not cancel.is_set():
        return
    error = CancelledError(
        "The comparison of schedules was cancelled",
        found=f"{len(least)} of {len(found)} were compared",
        remedy="Start again: what was solved is kept.",
    )
    error.known = _of_schedules(plans, least, [one for one in found if one[0] in least or one[1] is None])
    raise error


def _slowest(plan: Plan) -> float:
    return max(stage.latency_seconds for stage in plan.stages)


def with_predicted(plan: Plan) -> Plan:
    """`plan` with the predicted figures of its stages: T and the bubble of the simulated iteration, or by Eq. 2 in the
    paper's mode, and where the schedule cannot be simulated. Figures of Eq. 2 that it has already are kept."""
    latencies, b = [s.latency_seconds for s in plan.stages], plan.options.num_microbatches
    known = plan.predicted if plan.predicted.iteration_seconds else None
    objective = known.iteration_seconds if known else objective_seconds(plan)
    busy = sum(b * seconds for seconds in latencies)
    eq_2 = Predicted(
        iteration_seconds=objective,
        t_max_seconds=known.t_max_seconds if known else max(latencies),
        sum_latency_seconds=known.sum_latency_seconds if known else sum(latencies),
        bubble_fraction=max(0.0, 1.0 - busy / (len(latencies) * (objective - plan.overhead_seconds))),
        peak_bytes_per_device=fullest(plan).peak_bytes,
    )
    plan = replace(plan, predicted=eq_2)
    time = None if plan.options.pipeline.paper else iteration_time(plan)
    if time is None:
        return plan
    predicted = replace(eq_2, iteration_seconds=time.planned_seconds, bubble_fraction=time.bubble_fraction)
    return plan.with_memo(predicted=predicted)


def _with_stages(plan: Plan, chosen: Sequence[Stage], descriptions: Descriptions) -> Plan:
    """`plan` with these stages; nothing is predicted yet."""
    b, costs, options = plan.options.num_microbatches, plan.costs, plan.options.pipeline
    submeshes = [costs.submeshes[shape] for _, _, shape in chosen]
    tied, stages = once_seconds(costs, plan.cluster, options), []
    for index, ((first, end, shape), devices) in enumerate(zip(chosen, place(plan.cluster, submeshes), strict=True)):
        key = (first, end - 1, shape)
        candidate, held = chosen_candidate(costs, options, key, len(submeshes) - index, len(submeshes), b)
        once = float(tied[first, end])
        stages.append(planned_stage(plan, descriptions, index, key, devices, candidate, held=held, tied_seconds=once))
    plan = replace(plan, stages=tuple(stages), interleaved=(), predicted=NOTHING_PREDICTED, t_max_sweep=())
    with suppress(ScheduleError):  # stage costs of an earlier version lack layer ranges; `timeline` raises the error
        plan = replace(plan, interleaved=interleaved_stages(plan, descriptions))
    if planned_schedule(plan) != INTERLEAVED:
        return plan
    return replace(plan, stages=tuple(held_in_turns(stage, plan.interleaved) for stage in plan.stages))


def held_in_turns(stage: PlanStage, interleaved: Sequence[PlanStage]) -> PlanStage:
    """`stage` with the weights and the workspace of the stages that its submesh runs in turn, and as many microbatches
    as have the bytes that these hold: the last of them has the head, and holds fewer of them than the others."""
    own = device_bytes([one.bytes for one in interleaved if one.devices == stage.devices] or [stage.bytes])
    if not own.kept:
        return stage
    held = own.kept / stage.activation_bytes
    return replace(stage, weight_bytes=own.stored, workspace_bytes=own.workspace, microbatches_held=held)


def _summary(graph: TrainingGraph) -> ModelSummary:
    return ModelSummary(
        name=graph.name,
        recipe=graph.recipe,
        parameters=graph.parameter_count,
        model_flops=graph.model_flops,
        samples=graph.samples,
        tokens=graph.tokens,
        precision=graph.precision,
        optimizer=graph.optimizer,
        rematerialization=graph.rematerialization,
        content_key=graph.content_key,
        warnings=graph.warnings,
        zigzag=graph.zigzag,
    )


def _layers(graph: TrainingGraph, layering: Layering) -> tuple[PlanLayer, ...]:
    forward = graph.forward_operators
    cut_bytes = crossing_bytes(graph)
    return tuple(
        PlanLayer(
            index=layer.index,
            operators=tuple(o.name for o in forward[layer.first : layer.last + 1]),
            operator_flops=tuple(o.flops for o in forward[layer.first : layer.last + 1]),
            operator_cut_bytes=tuple(cut_bytes[layer.first : layer.last + 1]),
            flops=layer.flops,
            cut_bytes=layer.cut_bytes,
        )
        for layer in layering.layers
    )
