"""The sharding problems behind the stages of a plan, and the choices made in them; a plan file does not hold them."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from alpa_explore.cluster import LogicalMesh
from alpa_explore.graph import TrainingGraph
from alpa_explore.intra_op.stage.stage_problem import StageProblem
from alpa_explore.plans.describe import describe_stage, describe_tensors
from alpa_explore.plans.records import PlanOperator, PlanTensor
from alpa_explore.pricing.stage_costs import StageCandidate

_T = TypeVar("_T")
Range = tuple[int, int]
"""First and last layer, inclusive."""


@dataclass(frozen=True, eq=False)
class StageDetails:
    """Problems are built on first use and kept: moving the slider of B needs none of them."""

    problem_of: Callable[..., StageProblem]
    """(first layer, last layer, logical mesh[, version where it is not 0]) -> problem."""
    choices: Mapping[str, tuple[int, ...]]
    """`StageCandidate.solution_key` -> the choice of every node."""
    graph: TrainingGraph
    _known: dict[object, Any] = field(default_factory=dict)

    def remembered(self, key: object, make: Callable[[], _T]) -> _T:
        """What `make` gives, computed when it is first asked for; also under another schedule or B."""
        if key not in self._known:
            self._known[key] = make()
        found: _T = self._known[key]
        return found

    def problem(self, layers: Range, mesh: LogicalMesh, version: int = 0) -> StageProblem:
        """The sharding problem of these layers on `mesh`, rematerialised as in one of `StageCosts.versions`."""
        versions = (version,) if version else ()
        return self.remembered((layers, mesh, version), lambda: self.problem_of(*layers, mesh, *versions))

    def solved(self, layers: Range, candidate: StageCandidate) -> tuple[StageProblem, tuple[int, ...]]:
        """The problem of these layers that `candidate` solves, and its choice of every node."""
        problem = self.problem(layers, candidate.logical_mesh, candidate.version)
        return problem, self.choices[candidate.solution_key]

    def operators(self, layers: Range, candidate: StageCandidate) -> tuple[PlanOperator, ...]:
        """The operators of these layers under the choice of `candidate`."""
        key = ("operators", layers, candidate.solution_key)
        return self.remembered(key, lambda: describe_stage(*self.solved(layers, candidate)))

    def operators_of(
        self, layers: Range, candidate: StageCandidate, kinds: Collection[str]
    ) -> tuple[PlanOperator, ...]:
        """The forward and backward operators of these kinds under the choice of `candidate`."""
        return describe_stage(*self.solved(layers, candidate), kinds)

    def tensors(self, layers: Range, candidate: StageCandidate) -> tuple[PlanTensor, ...]:
        """The specs of sources, weights and accumulators under the choice of `candidate`."""
        key = ("tensors", layers, candidate.solution_key)
        return self.remembered(key, lambda: describe_tensors(*self.solved(layers, candidate)))
