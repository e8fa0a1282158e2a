"""One stage problem, solved at several prices."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace

from alpa_explore.intra_op.problem.sharding_problem import ShardingProblem
from alpa_explore.intra_op.problem.solution import ShardingSolution, Status
from alpa_explore.intra_op.stage.stage_problem import StageProblem
from alpa_explore.intra_op.tuning import EASY_ILP_VARIABLES
from alpa_explore.numerics.lower_envelope import search_between
from alpa_explore.pricing import tuning
from alpa_explore.pricing.price_book import PriceBook, StageChoice, stronger
from alpa_explore.pricing.stage_costs import Provenance

Solve = Callable[[ShardingProblem, float], ShardingSolution]
"""(problem, gap) -> solution"""


@dataclass(frozen=True, slots=True)
class Sample:
    """The solution at one 1/B, with a lower bound on the seconds of every choice there."""

    inverse_b: float
    point: StageChoice
    bound: float


class Explorer:
    """Solves one stage problem at several prices; remembers every distinct choice."""

    def __init__(self, problem: StageProblem, solve: Solve, device_memory_bytes: int, held: float) -> None:
        self.problem, self.solve = problem, solve
        self.memory, self.held = device_memory_bytes, held
        self.points: dict[tuple[int, ...], StageChoice] = {}
        self.solves = 0

    def at(self, inverse_b: float, memory_price: float, gap: float, provenance: Provenance) -> Sample | None:
        """Solve at one price, to within a relative gap; None where no choice is legal."""
        problem = self.problem.at(inverse_b=inverse_b, memory_price=memory_price, microbatches_held=self.held)
        solution = self.solve(problem, gap)
        self.solves += 1
        if not solution.choices:
            return None
        point = self.keep(solution.choices, provenance)
        exact = solution.status is Status.OPTIMAL
        seconds = point.totals.device_latency_at(inverse_b)
        return Sample(inverse_b, point, seconds * (1.0 if exact else solution.bound / solution.objective))

    def keep(self, choices: tuple[int, ...], provenance: Provenance) -> StageChoice:
        """Record a choice, which may have been found before with a weaker provenance."""
        known = self.points.get(choices)
        if known is None:
            known = StageChoice(choices, self.problem.totals(choices), provenance)
        self.points[choices] = stronger(known, replace(known, provenance=provenance))
        return self.points[choices]

    def fastest(self, inverse_b: float, gap: float) -> Sample | None:
        """The fastest choice, and among equally fast ones the leanest."""
        provenance = Provenance.NEAR if gap else Provenance.FASTEST
        return self.at(inverse_b, tuning.TIE_SECONDS / self.memory, gap, provenance)

    def ends(self, inverse_b: float) -> tuple[StageChoice, StageChoice] | None:
        """The fastest choice and a choice near the leanest; None when no choice is legal."""
        fastest = self.fastest(inverse_b, tuning.TOLERANCE)
        if fastest is None:
            return None
        # At so high a price no saved time justifies a byte: the leanest choice wins, and the fastest of equally lean
        # ones.
        high_price = 1e3 * max(fastest.point.totals.latency_at(inverse_b), 1e-6) / self.memory
        priced = self.problem.at(inverse_b=inverse_b, memory_price=high_price, microbatches_held=self.held)
        gap = 0.0 if priced.variables <= EASY_ILP_VARIABLES else tuning.LEAN_GAP
        leanest = self.at(inverse_b, high_price, gap, Provenance.CONVEX)
        return None if leanest is None else (fastest.point, leanest.point)

    def convex_part(
        self,
        ends: tuple[StageChoice, StageChoice],
        inverse_b: float,
        most_solves: int,
        is_wanted: Callable[[StageChoice, StageChoice], bool],
    ) -> None:
        """Search for more points of the convex part of (seconds, bytes) between neighbours, up to `most_solves` solves.

        The ends are only near the fastest and the leanest choice, so one end may dominate the other.
        """

        def figures(point: StageChoice) -> tuple[float, float]:
            return point.totals.latency_at(inverse_b), point.totals.held_bytes(self.held)

        def solve_at(price: float) -> StageChoice | None:
            sample = self.at(inverse_b, price, tuning.TOLERANCE, Provenance.CONVEX)
            return None if sample is None else sample.point

        search_between(
            *ends, figures=figures, solve_at=solve_at, is_wanted=is_wanted, may_solve=lambda: self.solves < most_solves
        )

    def book(self, bounds: Sequence[tuple[float, float]] = (), counts: Collection[int] = ()) -> PriceBook:
        """All choices found, with lower bounds on the device seconds at some 1/B, and on the peak bytes with each of
        `counts` microbatches held."""
        problem = self.problem.at(inverse_b=1.0, memory_price=0.0, microbatches_held=1)
        return PriceBook(
            choices=tuple(self.points.values()),
            bounds=tuple(sorted(bounds)),
            least_peaks=tuple((held, self.problem.memory_limit(held, self.memory).least_peak()) for held in counts),
            solves=self.solves,
            variables=problem.variables,
            constraints=len(problem.node_costs) + sum(sum(m.shape) for m in problem.edge_costs),
        )

    def no_choice(self) -> PriceBook:
        """That no choice is legal."""
        return self.book([(1.0, math.inf)])
