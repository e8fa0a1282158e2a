"""A stage of a plan, made from the candidate that was chosen for it."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from typing import TypeAlias, TypeVar, overload

from alpa_explore.inter_op.stage_table import receive_seconds
from alpa_explore.intra_op.stage.recomputation import LAYERS, NONE
from alpa_explore.plans.records import PlanOperator, PlanStage, PlanTensor
from alpa_explore.plans.stage_details import Range, StageDetails
from alpa_explore.plans.value import PlanValue
from alpa_explore.pricing.stage_costs import RangeKey, StageCandidate

_Record = TypeVar("_Record", bound="PlanOperator | PlanTensor")
Descriptions: TypeAlias = Mapping[tuple[object, ...], tuple[Sequence[PlanOperator], Sequence[PlanTensor]]]
"""(layers, logical mesh, solution key) -> the operators and tensors of such a stage."""


def stage_descriptions(plan: PlanValue) -> Descriptions:
    """The operators and tensors of the plan's stages; a plan without details cannot describe other stages."""
    stages = (*plan.stages, *plan.interleaved)
    return {(s.layers, s.logical_mesh, s.solution_key): (s.operators, s.tensors) for s in stages}


def planned_stage(
    plan: PlanValue,
    descriptions: Descriptions,
    index: int,
    key: RangeKey,
    devices: tuple[int, ...],
    candidate: StageCandidate,
    *,
    held: float,
    tied_seconds: float,
    turns: int = 1,
) -> PlanStage:
    """Stage `index` with the layers and the submesh of `key`; its submesh runs `turns` such stages.

    `descriptions` serve where the plan has no details.
    """
    first, last, shape = key
    costs, options, b = plan.costs, plan.options.pipeline, plan.options.num_microbatches
    submesh, mesh, layers = costs.submeshes[shape], candidate.logical_mesh, (first, last)
    # What the software adds to a microbatch is part of each candidate, and paid once a submesh.
    fixed = plan.cluster.kinds[submesh.kind].device.software.microbatch_seconds * mesh.stragglers * (1 - 1 / turns)
    # It counts what all turns receive.
    receive = float(receive_seconds(costs, plan.cluster, options)[first, last + 1, shape]) / turns
    version = costs.versions[candidate.version]
    operators: Sequence[PlanOperator]
    tensors: Sequence[PlanTensor]
    if plan.details is not None:
        operators = PlannedOperators(plan.details, layers, candidate)
        tensors = Deferred(partial(plan.details.tensors, layers, candidate))
    else:
        operators, tensors = descriptions.get((layers, mesh.shape, candidate.solution_key), ((), ()))
    return PlanStage(
        index=index,
        layers=layers,
        submesh=(submesh.nodes, submesh.devices_per_node),
        logical_mesh=mesh.shape,
        devices=devices,
        latency_seconds=candidate.latency_seconds(b) - fixed + receive,
        microbatch_seconds=candidate.paced_seconds - fixed,
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
        rematerialized=tuple(k for k in version.layers if first <= k <= last),
        recomputation="" if version.name in (NONE, LAYERS) else version.name,
        device=plan.cluster.kinds[submesh.kind].device.name if plan.cluster.others else "",
    )


class Deferred(Sequence[_Record]):
    """Operators or tensors of a stage, described when they are first read: moving the slider of B reads none."""

    def __init__(self, describe: Callable[[], tuple[_Record, ...]]) -> None:
        self._describe = describe

    def __len__(self) -> int:
        return len(self._describe())

    def __iter__(self) -> Iterator[_Record]:
        # Sequence.__iter__ would take an IndexError inside `describe` for the end of the sequence.
        return iter(self._describe())

    @overload
    def __getitem__(self, index: int) -> _Record: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[_Record]: ...
    def __getitem__(self, index: int | slice) -> _Record | Sequence[_Record]:
        return self._describe()[index]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and tuple(self) == tuple(other)

    def __hash__(self) -> int:
        return hash(self._describe())


class PlannedOperators(Deferred[PlanOperator]):
    """The operators of a stage that was planned in this process."""

    def __init__(self, details: StageDetails, layers: Range, candidate: StageCandidate) -> None:
        super().__init__(partial(details.operators, layers, candidate))
        self._details, self._layers, self._candidate = details, layers, candidate

    def of(self, kinds: Collection[str]) -> tuple[PlanOperator, ...]:
        """The forward and backward operators of these kinds; describing all of a stage would take a tenth of a second
        or more."""
        return self._details.operators_of(self._layers, self._candidate, kinds)
