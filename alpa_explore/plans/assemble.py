"""The plan as a value, put together from what the passes found."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import TypeVar, overload

from alpa_explore.cluster import Cluster, place
from alpa_explore.graph import TrainingGraph
from alpa_explore.inter_op.result import PipelineResult
from alpa_explore.inter_op.stage_table import chosen_candidate, once_seconds, receive_seconds
from alpa_explore.layering import Layering, crossing_bytes
from alpa_explore.plans.plan import (
    ModelSummary,
    Plan,
    PlanLayer,
    PlanOperator,
    PlanOptions,
    PlanStage,
    PlanTensor,
    Predicted,
    Statistics,
)
from alpa_explore.plans.stage_details import StageDetails
from alpa_explore.profiling.profile_stages import StageProfile
from alpa_explore.sharding.coverage import replicated_warnings

_Described = TypeVar("_Described", bound="PlanOperator | PlanTensor")


def assemble(
    graph: TrainingGraph, cluster: Cluster, options: PlanOptions, layering: Layering, profile: StageProfile,
    pipeline: PipelineResult, seconds: Sequence[tuple[str, float]],
) -> Plan:  # fmt: skip
    """The complete plan; `seconds` are (pass, seconds)."""
    empty = Plan(
        model=_summary(graph), cluster=cluster, options=options, layers=_layers(graph, layering), stages=(),
        predicted=Predicted(
            iteration_seconds=0.0, t_max_seconds=0.0, sum_latency_seconds=0.0, bubble_fraction=0.0,
            peak_bytes_per_device=0.0,
        ),
        t_max_sweep=(), costs=profile.costs, warnings=(*graph.warnings, *replicated_warnings(graph), *profile.warnings),
        statistics=Statistics(
            solves=profile.solves, distinct_solves=profile.distinct_solves, cached_solves=profile.cached_solves,
            variables=profile.variables, constraints=profile.constraints, seconds=tuple(seconds),
        ),
        details=StageDetails(profile.problem_of, profile.choices),
    )  # fmt: skip
    return choose_stages(empty, pipeline)


def choose_stages(plan: Plan, pipeline: PipelineResult) -> Plan:
    """`plan` with the stages of `pipeline`, evaluated at its number of microbatches."""
    b, costs = plan.options.num_microbatches, plan.costs
    pieces = [costs.submeshes[shape] for _, _, shape in pipeline.stages]
    known = {(s.layers, s.logical_mesh, s.solution_key): (s.operators, s.tensors) for s in plan.stages}
    stages = []
    tied = once_seconds(costs, plan.cluster, plan.options.pipeline)
    for index, ((first, end, shape), devices) in enumerate(
        zip(pipeline.stages, place(plan.cluster, pieces), strict=True)
    ):
        from_end = len(pipeline.stages) - index
        key, asked = (first, end - 1, shape), plan.options.pipeline
        candidate, held = chosen_candidate(costs, asked, key, from_end, len(pieces), b)
        receive = receive_seconds(costs, plan.cluster, asked, key)
        mesh, layers = candidate.logical_mesh, (first, end - 1)
        operators: Sequence[PlanOperator]
        tensors: Sequence[PlanTensor]
        if plan.details is not None:
            operators = Deferred(partial(plan.details.operators, layers, candidate))
            tensors = Deferred(partial(plan.details.tensors, layers, candidate))
        else:
            operators, tensors = known.get((layers, mesh.shape, candidate.solution_key), ((), ()))
        stages.append(
            PlanStage(
                index=index,
                layers=layers,
                submesh=(pieces[index].nodes, pieces[index].devices_per_node),
                logical_mesh=mesh.shape,
                devices=devices,
                latency_seconds=candidate.latency_seconds(b) + receive,
                microbatch_seconds=candidate.microbatch_seconds,
                iteration_seconds=candidate.iteration_seconds,
                weight_bytes=candidate.weight_bytes,
                activation_bytes=candidate.activation_bytes,
                workspace_bytes=candidate.workspace_bytes,
                microbatches_held=held,
                solution_key=candidate.solution_key,
                operators=operators,
                receive_seconds=receive,
                tensors=tensors,
                tied_seconds=float(tied[first, end]),
                rematerialized=tuple(k for k in costs.versions[candidate.version] if first <= k < end),
            )
        )
    total = pipeline.total_seconds
    busy = sum(b * s.latency_seconds for s in stages)
    return replace(
        plan,
        stages=tuple(stages),
        predicted=Predicted(
            iteration_seconds=total, t_max_seconds=pipeline.t_max_seconds,
            sum_latency_seconds=pipeline.sum_latency_seconds,
            bubble_fraction=max(0.0, 1.0 - busy / (len(stages) * total)),
            peak_bytes_per_device=max(s.peak_bytes for s in stages),
        ),
        t_max_sweep=pipeline.sweep,
    )  # fmt: skip


class Deferred(Sequence[_Described]):
    """What a stage is in words, described when first looked at: a slider that moves B need not describe it."""

    def __init__(self, describe: Callable[[], tuple[_Described, ...]]) -> None:
        self._describe = describe

    def __len__(self) -> int:
        return len(self._describe())

    def __iter__(self) -> Iterator[_Described]:
        # Sequence's own would take an IndexError inside `describe` for the end of the operators.
        return iter(self._describe())

    @overload
    def __getitem__(self, index: int) -> _Described: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[_Described]: ...
    def __getitem__(self, index: int | slice) -> _Described | Sequence[_Described]:
        return self._describe()[index]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and tuple(self) == tuple(other)

    def __hash__(self) -> int:
        return hash(self._describe())


def _summary(graph: TrainingGraph) -> ModelSummary:
    return ModelSummary(
        name=graph.name, recipe=graph.recipe, parameters=graph.parameter_count, model_flops=graph.model_flops,
        samples=graph.samples, tokens=graph.tokens, precision=graph.precision, optimizer=graph.optimizer,
        rematerialization=graph.rematerialization, content_key=graph.content_key, warnings=graph.warnings,
    )  # fmt: skip


def _layers(graph: TrainingGraph, layering: Layering) -> tuple[PlanLayer, ...]:
    forward = graph.forward_operators
    cut_bytes = crossing_bytes(graph)
    return tuple(
        PlanLayer(
            index=layer.index,
            operators=tuple(o.name for o in forward[layer.first : layer.last + 1]),
            operator_flops=tuple(o.flops for o in forward[layer.first : layer.last + 1]),
            operator_cut_bytes=tuple(cut_bytes[layer.first : layer.last + 1]),
            flops=layer.flops, cut_bytes=layer.cut_bytes,
        )
        for layer in layering.layers
    )  # fmt: skip
