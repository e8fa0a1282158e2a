"""One stage of a plan from the candidate that was chosen for it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import TypeAlias, TypeVar, overload

from alpa_explore.inter_op.stage_table import receive_seconds
from alpa_explore.plans.records import PlanOperator, PlanStage, PlanTensor
from alpa_explore.plans.value import PlanValue
from alpa_explore.pricing.stage_costs import RangeKey, StageCandidate

_Described = TypeVar("_Described", bound="PlanOperator | PlanTensor")
Words: TypeAlias = Mapping[tuple[object, ...], tuple[Sequence[PlanOperator], Sequence[PlanTensor]]]


def known_words(plan: PlanValue) -> Words:
    """What the stages of a plan say of their operators and tensors, for a plan that cannot describe others."""
    stages = (*plan.stages, *plan.interleaved)
    return {(s.layers, s.logical_mesh, s.solution_key): (s.operators, s.tensors) for s in stages}


def planned_stage(
    plan: PlanValue,
    words: Words,
    index: int,
    key: RangeKey,
    devices: tuple[int, ...],
    candidate: StageCandidate,
    *,
    held: int,
    tied_seconds: float,
    turns: int = 1,
) -> PlanStage:
    """The stage `index` with the layers and the submesh of `key`: one of `turns` that its submesh runs."""
    first, last, shape = key
    costs, asked, b = plan.costs, plan.options.pipeline, plan.options.num_microbatches
    piece, mesh, layers = costs.submeshes[shape], candidate.logical_mesh, (first, last)
    receive = receive_seconds(costs, plan.cluster, asked, key) / turns  # it counts what all of them receive
    operators: Sequence[PlanOperator]
    tensors: Sequence[PlanTensor]
    if plan.details is not None:
        operators = Deferred(partial(plan.details.operators, layers, candidate))
        tensors = Deferred(partial(plan.details.tensors, layers, candidate))
    else:
        operators, tensors = words.get((layers, mesh.shape, candidate.solution_key), ((), ()))
    return PlanStage(
        index=index,
        layers=layers,
        submesh=(piece.nodes, piece.devices_per_node),
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
        tied_seconds=tied_seconds,
        rematerialized=tuple(k for k in costs.versions[candidate.version] if first <= k <= last),
    )


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
