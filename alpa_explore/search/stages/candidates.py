"""From the frontiers of problems to the candidates of stages, and back from a candidate to the choice behind it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from alpa_explore.cluster import LogicalMesh
from alpa_explore.intra_op.composition.compose import whole_choice
from alpa_explore.intra_op.stage.layered_graph import LayeredGraph
from alpa_explore.intra_op.stage.stage_problem import StageProblem
from alpa_explore.pricing.frontier import Frontier, StageChoice, stronger
from alpa_explore.pricing.mesh_tasks import chain
from alpa_explore.pricing.stage_costs import RangeKey, StageCandidate


class CellProblem(NamedTuple):
    """A cell of the cost table (layer range, submesh), one of its logical meshes, and the key of their problem."""

    cell: RangeKey
    mesh: LogicalMesh
    key: str


class Candidates:
    """The candidates of every cell; for each solution key, the choice behind it and a stage that has it."""

    def __init__(self, wanted: Sequence[CellProblem], frontiers: Mapping[str, Sequence[Frontier]]) -> None:
        self.wanted, self.frontiers = wanted, frontiers
        self.points: dict[str, tuple[StageChoice, CellProblem]] = {}
        self._made: dict[tuple[str, LogicalMesh], tuple[tuple[Frontier, ...], list[StageCandidate]]] = {}
        """(frontiers used, candidates) of every problem on a mesh."""

    def __call__(self, *, known_alone: bool = False) -> dict[RangeKey, tuple[StageCandidate, ...]]:
        """From all frontiers so far; `known_alone`: where some problems have none yet."""
        candidates: dict[RangeKey, list[StageCandidate]] = {}
        for stage in self.wanted:
            if known_alone and stage.key not in self.frontiers:
                continue
            frontiers = self.frontiers[stage.key]
            made = self._made.get((stage.key, stage.mesh))
            if made is None or not same_frontiers(made[0], frontiers):
                made = self._made[stage.key, stage.mesh] = tuple(frontiers), self._of(stage, frontiers)
            candidates.setdefault(stage.cell, []).extend(made[1])
        return {cell: tuple(of_cell) for cell, of_cell in candidates.items()}

    def _of(self, stage: CellProblem, frontiers: Sequence[Frontier]) -> list[StageCandidate]:
        points: dict[object, StageChoice] = {}
        for point in (p for frontier in frontiers for p in frontier.points):
            # The points of one frontier are distinct; a number is a shorter key than the whole choice.
            choice = (point.choices, point.block_choices) if len(frontiers) > 1 else len(points)
            points[choice] = stronger(points.get(choice, point), point)
        candidates = []
        for number, point in enumerate(points.values()):
            name = f"{stage.key[:24]}-{number}"
            self.points[name] = point, stage
            totals = point.totals
            candidates.append(
                StageCandidate(
                    logical_mesh=stage.mesh,
                    solution_key=name,
                    provenance=point.provenance,
                    microbatch_seconds=totals.microbatch_seconds,
                    iteration_seconds=totals.iteration_seconds,
                    weight_bytes=totals.weight_bytes,
                    activation_bytes=totals.activation_bytes,
                    workspace_bytes=totals.workspace_bytes,
                    paced_seconds=totals.paced_seconds,
                )
            )
        number = len(candidates)
        while self.points.pop(f"{stage.key[:24]}-{number}", None) is not None:  # of a frontier that was replaced
            number += 1
        return candidates


def same_frontiers(used: Sequence[Frontier], frontiers: Sequence[Frontier]) -> bool:
    """Whether a problem has the frontiers that were used, and no others: frontiers are added, and the first one is
    replaced when it came from another B."""
    return len(used) == len(frontiers) and used[0] is frontiers[0]


class Choices(Mapping[str, tuple[int, ...]]):
    """Solution key -> choice of every node; for a composed range it is put together on reading."""

    def __init__(
        self,
        points: Mapping[str, tuple[StageChoice, CellProblem]],
        layered: LayeredGraph,
        problem_of: Callable[[int, int, LogicalMesh], StageProblem],
    ) -> None:
        """`problem_of` gives a problem with the nodes of that of these layers on this mesh."""
        self._points, self._layered, self._problem_of = points, layered, problem_of

    def __getitem__(self, name: str) -> tuple[int, ...]:
        point, stage = self._points[name]
        if not point.block_choices:
            return point.choices
        first, last, _ = stage.cell
        return whole_choice(chain(self._layered), self._problem_of(first, last, stage.mesh), point.block_choices)

    def __iter__(self) -> Iterator[str]:
        return iter(self._points)

    def __len__(self) -> int:
        return len(self._points)
