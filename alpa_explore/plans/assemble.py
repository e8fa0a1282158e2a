"""A plan from the results of the passes: graph, layers, stage costs and pipeline."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace

from alpa_explore.cluster import Cluster, place
from alpa_explore.errors import ScheduleError
from alpa_explore.graph import TrainingGraph
from alpa_explore.graph.spelled_out import spelled_out_warnings
from alpa_explore.graph.unrecognised_experts import unrecognised_experts_warnings
from alpa_explore.graph.written import written_warnings
from alpa_explore.inter_op.result import PipelineResult
from alpa_explore.inter_op.stage_table import chosen_candidate, once_seconds
from alpa_explore.layering import Layering, crossing_bytes
from alpa_explore.plans.plan import Plan
from alpa_explore.plans.planned_stage import planned_stage, stage_descriptions
from alpa_explore.plans.records import ModelSummary, PlanLayer, PlanOptions, Predicted, Statistics
from alpa_explore.plans.report.text import fullest
from alpa_explore.plans.schedule_stages import interleaved_stages
from alpa_explore.plans.stage_details import StageDetails
from alpa_explore.search.stage_profile import StageProfile
from alpa_explore.sharding.coverage import replicated_warnings


def assemble(
    graph: TrainingGraph,
    cluster: Cluster,
    options: PlanOptions,
    layering: Layering,
    profile: StageProfile,
    pipeline: PipelineResult,
    seconds: Sequence[tuple[str, float]],
    basis: Plan | None = None,
) -> Plan:
    """The complete plan; `seconds` are (pass, seconds), `basis` as in `PlanValue`."""
    empty = Plan(
        model=_summary(graph),
        cluster=cluster,
        options=options,
        layers=_layers(graph, layering),
        stages=(),
        predicted=Predicted(
            iteration_seconds=0.0,
            t_max_seconds=0.0,
            sum_latency_seconds=0.0,
            bubble_fraction=0.0,
            peak_bytes_per_device=0.0,
        ),
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
        basis=basis,
    )
    return choose_stages(empty, pipeline)


def choose_stages(plan: Plan, pipeline: PipelineResult) -> Plan:
    """`plan` with the stages of `pipeline`, evaluated at its number of microbatches."""
    b, costs, options = plan.options.num_microbatches, plan.costs, plan.options.pipeline
    descriptions = stage_descriptions(plan)
    submeshes = [costs.submeshes[shape] for _, _, shape in pipeline.stages]
    tied, stages = once_seconds(costs, plan.cluster, options), []
    for index, ((first, end, shape), devices) in enumerate(
        zip(pipeline.stages, place(plan.cluster, submeshes), strict=True)
    ):
        key = (first, end - 1, shape)
        candidate, held = chosen_candidate(costs, options, key, len(submeshes) - index, len(submeshes), b)
        once = float(tied[first, end])
        stages.append(planned_stage(plan, descriptions, index, key, devices, candidate, held=held, tied_seconds=once))
    total = pipeline.total_seconds
    busy = sum(b * s.latency_seconds for s in stages)
    plan = replace(plan, stages=tuple(stages), interleaved=())
    plan = replace(
        plan,
        predicted=Predicted(
            iteration_seconds=total,
            t_max_seconds=pipeline.t_max_seconds,
            sum_latency_seconds=pipeline.sum_latency_seconds,
            bubble_fraction=max(0.0, 1.0 - busy / (len(stages) * (total - plan.overhead_seconds))),
            peak_bytes_per_device=fullest(plan).peak_bytes,
        ),
        t_max_sweep=pipeline.sweep,
    )
    with suppress(ScheduleError):  # stage costs of an earlier version lack layer ranges; `timeline` raises the error
        plan = replace(plan, interleaved=interleaved_stages(plan, descriptions))
    return plan


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
