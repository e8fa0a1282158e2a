"""The Pareto frontier of a stage: how much slower it becomes with less memory.

Seconds are those of one microbatch at the plan's B. Bytes are weight + held × activation bytes, and over these two the
frontier is exact where `complete` is True. The workspace is a peak over time, not a sum over operators, so the search
does not minimise it: it is added to the points afterwards (`peak_bytes`), and a point fits if that sum does.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from alpa_explore.arguments import checked
from alpa_explore.errors import OptionError
from alpa_explore.intra_op.problem.sharding_problem import ShardingProblem
from alpa_explore.intra_op.solve import solve
from alpa_explore.intra_op.stage.stage_problem import StageProblem
from alpa_explore.intra_op.stage.stage_totals import StageTotals
from alpa_explore.intra_op.tuning import EASY_ILP_VARIABLES
from alpa_explore.numerics.lower_envelope import search_between
from alpa_explore.plans.plan import Plan
from alpa_explore.plans.records import PlanStage
from alpa_explore.plans.report.tables import Row, row_of, stage_named
from alpa_explore.plans.report.text import PROVENANCE_PHRASES
from alpa_explore.pricing.price_book import StageChoice
from alpa_explore.pricing.stage_costs import Provenance
from alpa_explore.pricing.tuning import LEAN_GAP, PROVEN, TIE_SECONDS, TOLERANCE
from alpa_explore.questions.pareto import MOST_SUMS, pareto_frontier
from alpa_explore.questions.what_if import solved_stage

FRONTIER_SOLVES = 24
"""Most solves for the convex part of a stage's frontier: one finds a corner, one proves an edge, so these find a dozen
corners, as many as the figure of a stage's memory has bars for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FrontierPoint:
    """One choice for a stage."""

    seconds: float
    """Latency for one microbatch: microbatch + iteration / B."""
    weight_bytes: float
    """Weights, gradients and optimizer state of one device."""
    held_bytes: float
    """`weight_bytes` + held × activations."""
    peak_bytes: float
    """`held_bytes` + the workspace."""
    logical_mesh: tuple[int, ...]
    provenance: Provenance
    fits: bool
    chosen: bool
    """Whether the plan chose it."""

    @property
    def activations_held_bytes(self) -> float:
        """Activations of all the microbatches that it holds."""
        return self.held_bytes - self.weight_bytes

    @property
    def workspace_bytes(self) -> float:
        """Temporary tensors, at their peak."""
        return self.peak_bytes - self.held_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class StageFrontier:
    """The frontier of one stage."""

    stage: int
    layers: tuple[int, int]
    microbatches_held: float
    memory_bytes: int
    """Memory of a device."""
    complete: bool
    """Whether no choice on the stage's logical mesh dominates or lies between these points in (seconds, held_bytes)."""
    points: tuple[FrontierPoint, ...]
    """The fastest first."""


@checked("plan", "stage", "held", "most")
def frontier(plan: Plan, stage: int, *, held: int | None = None, most: int = FRONTIER_SOLVES) -> StageFrontier:
    """The frontier of stage `stage` on its logical mesh, holding `held` microbatches (by default as in the plan).

    Exact where Pareto sets stay small, else its convex part in at most `most` solves; `provenance` of a point says
    which. OptionError for a stage that does not exist, and for a plan that was read from a file (see
    `known_frontier`).
    """
    planned, problem, chosen = solved_stage(plan, stage)
    if held is not None and held < 1:
        raise OptionError(
            "A stage holds at least one microbatch", found=f"held={held}", remedy="Give 1 or more, or omit it."
        )
    beside = planned.microbatches_held if held is None else held

    memory, b = plan.device_of(planned).memory_bytes, plan.options.num_microbatches
    solved, complete = whole_frontier(problem, memory, beside, 1.0 / b, most)
    shape = plan.candidate_of(planned).logical_mesh.shape
    points = [_point(plan, planned, beside, p.totals, shape, p.provenance, chosen=p.choices == chosen) for p in solved]
    return _stage_frontier(plan, planned, beside, points, complete=complete)


def whole_frontier(
    problem: StageProblem,
    device_memory_bytes: int,
    held: float,
    inverse_b: float,
    most: int,
    most_sums: float = MOST_SUMS,
) -> tuple[list[StageChoice], bool]:
    """The whole frontier at one B: all points if they take at most `most_sums` (`pareto`), and True; otherwise the
    convex part, with `most` solves, and False."""
    found: dict[tuple[int, ...], StageChoice] = {}
    solves = 0

    def at(choices: tuple[int, ...], provenance: Provenance) -> StageChoice:
        return found.setdefault(choices, StageChoice(choices, problem.totals(choices), provenance))

    def figures(choice: StageChoice) -> tuple[float, float]:
        return choice.totals.latency_at(inverse_b), choice.totals.held_bytes(held)

    def priced(price: float) -> ShardingProblem:
        return problem.at(inverse_b=inverse_b, memory_price=price, microbatches_held=held)

    def solve_at(
        price: float, gap: float = TOLERANCE, provenance: Provenance = Provenance.CONVEX
    ) -> StageChoice | None:
        nonlocal solves
        solves += 1
        solution = solve(priced(price), gap=gap)
        return at(solution.choices, provenance) if solution.choices else None

    fastest = solve_at(TIE_SECONDS / device_memory_bytes, provenance=Provenance.NEAR)
    if fastest is None:
        return [], True
    # At so high a price no saved time justifies a byte: the leanest choice wins, and the fastest of equally lean ones.
    high = 1e3 * max(figures(fastest)[0], 1e-6) / device_memory_bytes
    leanest = solve_at(high, 0.0 if priced(high).variables <= EASY_ILP_VARIABLES else LEAN_GAP)
    assert leanest is not None, "a choice is legal at every price or at none"
    sizes = [n.weight_bytes + held * n.activation_bytes for n in problem.nodes]
    most_seconds = figures(leanest)[0] * (1 + 1e3 * PROVEN)
    exact = pareto_frontier(priced(0.0), sizes, most_seconds=most_seconds, most_sums=most_sums)
    if exact:
        found.clear()
        return [at(choices, Provenance.EXACT) for choices in exact], True
    search_between(fastest, leanest, figures=figures, solve_at=solve_at, may_solve=lambda: solves < most)
    return list(found.values()), False


def known_frontier(plan: Plan, stage: int) -> StageFrontier:
    """The points that the plan's stage costs hold for stage `stage`, on all logical meshes, without a solve.

    Dominated points are left out, except the plan's choice. OptionError for a stage that does not exist.
    """
    planned = stage_named(plan, stage)
    held, key = planned.microbatches_held, planned.solution_key
    points = [
        _point(plan, planned, held, c, c.logical_mesh.shape, c.provenance, chosen=c.solution_key == key)
        for c in plan.costs.candidates[plan.key_of(planned)]
    ]
    kept = [p for p in points if p.chosen or not any(_dominates(q, p) for q in points)]
    return _stage_frontier(plan, planned, held, kept, complete=False)


def frontier_table(frontier: StageFrontier) -> list[Row]:
    """One row per point, the fastest first."""
    return [
        {
            **row_of(
                p,
                "latency_seconds=seconds weight_bytes held_bytes=activations_held_bytes workspace_bytes "
                "peak_bytes logical_mesh",
            ),
            "what_is_proven": PROVENANCE_PHRASES[p.provenance],
            "fits": p.fits,
            "chosen": p.chosen,
        }
        for p in frontier.points
    ]


def _point(
    plan: Plan,
    stage: PlanStage,
    held: float,
    totals: StageTotals,
    logical_mesh: tuple[int, ...],
    provenance: Provenance,
    *,
    chosen: bool,
) -> FrontierPoint:
    held_bytes = totals.held_bytes(held)
    peak_bytes = held_bytes + totals.workspace_bytes
    return FrontierPoint(
        seconds=totals.latency_seconds(plan.options.num_microbatches),
        weight_bytes=totals.weight_bytes,
        held_bytes=held_bytes,
        peak_bytes=peak_bytes,
        logical_mesh=logical_mesh,
        provenance=provenance,
        fits=peak_bytes <= plan.device_of(stage).memory_bytes,
        chosen=chosen,
    )


def _seconds_and_bytes(point: FrontierPoint) -> tuple[float, float]:
    return point.seconds, point.held_bytes


def _dominates(a: FrontierPoint, b: FrontierPoint) -> bool:
    pairs = list(zip(_seconds_and_bytes(a), _seconds_and_bytes(b), strict=True))
    return all(x <= y for x, y in pairs) and any(x < y for x, y in pairs)


def _stage_frontier(
    plan: Plan, stage: PlanStage, held: float, points: Iterable[FrontierPoint], *, complete: bool
) -> StageFrontier:
    return StageFrontier(
        stage=stage.index,
        layers=stage.layers,
        microbatches_held=held,
        memory_bytes=plan.device_of(stage).memory_bytes,
        complete=complete,
        points=tuple(sorted(points, key=_seconds_and_bytes)),
    )
