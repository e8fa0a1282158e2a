"""From the books of problems to the candidates of stages, and back from a candidate to the choice behind it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from alpa_explore.cluster import LogicalMesh
from alpa_explore.intra_op.composition.compose import whole_choice
from alpa_explore.intra_op.stage.stage_totals import StageTotals
from alpa_explore.pricing.price_book import PriceBook, Reading, StageChoice
from alpa_explore.pricing.stage_costs import RangeKey, StageCandidate
from alpa_explore.pricing.tasks import chain
from alpa_explore.search.stages.stage_problems import StageProblems


class CellProblem(NamedTuple):
    """A cell of the cost table (layer range, submesh), one of its logical meshes, a version of the layering, and the
    key of their problem."""

    cell: RangeKey
    mesh: LogicalMesh
    version: int
    key: str


class Candidates:
    """The candidates of every cell; for each solution key, the choice behind it and a stage that has it."""

    def __init__(self) -> None:
        self.points: dict[str, tuple[StageChoice, CellProblem]] = {}
        self._made: dict[tuple[LogicalMesh, int, str], tuple[PriceBook, list[StageCandidate]]] = {}
        """(book used, candidates) of every problem on a mesh, in a version."""

    def of(
        self, stages: Iterable[CellProblem], reading: Callable[[str], Reading]
    ) -> dict[RangeKey, tuple[StageCandidate, ...]]:
        """From what is known of their problems."""
        candidates: dict[RangeKey, list[StageCandidate]] = {}
        for stage in stages:
            read = reading(stage.key)
            made = self._made.get(stage[1:])
            if made is None or made[0] is not read.book:
                made = self._made[stage[1:]] = read.book, self._of(stage, read)
            candidates.setdefault(stage.cell, []).extend(made[1])
        return {cell: tuple(of_cell) for cell, of_cell in candidates.items()}

    def _of(self, stage: CellProblem, reading: Reading) -> list[StageCandidate]:
        candidates = []
        for number, point in enumerate(reading.choices()):
            name = f"{stage.key[:24]}-{number}"
            self.points[name] = point, stage
            figures = {figure: getattr(point.totals, figure) for figure in StageTotals.__slots__}
            candidates.append(
                StageCandidate(
                    logical_mesh=stage.mesh,
                    solution_key=name,
                    provenance=point.provenance,
                    version=stage.version,
                    **figures,
                )
            )
        return candidates


class Choices(Mapping[str, tuple[int, ...]]):
    """Solution key -> choice of every node; for a composed range it is put together on reading."""

    def __init__(
        self, points: Mapping[str, tuple[StageChoice, CellProblem]], problems: Sequence[StageProblems]
    ) -> None:
        """`problems` are those of each version."""
        self._points, self._problems = points, problems

    def __getitem__(self, name: str) -> tuple[int, ...]:
        point, stage = self._points[name]
        if not point.block_choices:
            return point.choices
        (first, last, _), problems = stage.cell, self._problems[stage.version]
        problem = problems.equal_problem(first, last, stage.mesh)
        return whole_choice(chain(problems.layered), problem, point.block_choices)

    def __iter__(self) -> Iterator[str]:
        return iter(self._points)

    def __len__(self) -> int:
        return len(self._points)
