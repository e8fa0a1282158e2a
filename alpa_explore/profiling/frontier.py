"""All choices of one stage on one mesh that some plan may want: for every B, and when memory is short.

The seconds of a choice are microbatch + iteration / B, a line over 1/B, so the best choice for every B is the lower
envelope of such lines. It is found exactly with two solves for each of its corners (Eisner and Severance,
"Mathematical techniques for efficient record segmentation in large shared databases", JACM 1976). Where the fastest
choice overflows the device the same method walks from it towards the leanest one, over a price for memory; this gives
the convex part of the frontier of (seconds, bytes). Where a pipeline wants such a stage, the best choice that fits is
then found exactly.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

from alpa_explore.errors import SolverError
from alpa_explore.intra_op.limited import solve_limited
from alpa_explore.intra_op.problem import ShardingProblem
from alpa_explore.intra_op.solution import ShardingSolution, Status
from alpa_explore.intra_op.stage_problem import StageProblem, StageTotals

SMALLEST_INVERSE_B = 2.0**-20
"""1/B of the largest number of microbatches that the envelope covers (a million)."""
TOLERANCE = 2.5e-3
"""How far from the optimum a solve may stop, and by how much a corner of the envelope must be lower than its neighbours
to be worth its solves."""
FITTING_SECONDS = 10.0
"""What the fastest choice within the memory of a device may take to find."""
PROVEN = 1e-12
"""Relative gap that is no more than rounding."""
TIE_SECONDS = 1e-10
"""What a whole device of memory costs when memory is not short: decides between equally fast choices, and nothing
else."""

Solve = Callable[[ShardingProblem, float], ShardingSolution]
"""(problem, gap) -> solution"""


@dataclass(frozen=True, slots=True)
class Point:
    """A choice and its totals."""

    choices: tuple[int, ...]
    """Of every node of the stage; empty where `layers` has them."""
    totals: StageTotals
    layers: tuple[tuple[int, ...], ...] = ()
    """Of a composed range (`intra_op.compose`): the choices of the nodes that each layer owns."""


@dataclass(frozen=True, slots=True)
class Frontier:
    """The points found, and what finding them took."""

    points: tuple[Point, ...]
    solves: int
    variables: int
    constraints: int
    optimal: bool
    """False when a solve hit its time limit."""
    bound_seconds: float
    """No choice is faster than this at the B that was asked for (0: nothing is known)."""
    proven: bool
    """True when the fastest choice at that B is among the points, or there is none."""
    least_peaks: tuple[float, ...] = ()
    """Of a memory frontier: no choice holds less than this beside 1, 2, … microbatches."""


@dataclass(frozen=True, slots=True)
class Sample:
    """The answer at one 1/B: no choice has a line below `bound` there."""

    inverse_b: float
    point: Point
    bound: float


class _Explorer:
    """One stage problem, solved at several prices; remembers every distinct choice."""

    def __init__(self, problem: StageProblem, solve: Solve, device_memory_bytes: int, held: int) -> None:
        self.problem, self.solve = problem, solve
        self.memory, self.held = device_memory_bytes, held
        self.points: dict[tuple[int, ...], Point] = {}
        self.solves = 0
        self.optimal = True

    def at(self, inverse_b: float, price: float, gap: float) -> Sample | None:
        problem = self.problem.at(inverse_b=inverse_b, memory_price=price, microbatches_held=self.held)
        solution = self.solve(problem, gap)
        self.solves += 1
        self.optimal = self.optimal and solution.status is not Status.TIME_LIMIT
        if not solution.choices:
            return None
        point = self.points.get(solution.choices)
        if point is None:
            point = Point(solution.choices, self.problem.totals(solution.choices))
            self.points[solution.choices] = point
        exact = solution.status is Status.OPTIMAL
        return Sample(
            inverse_b, point, line(point, inverse_b) * (1.0 if exact else solution.bound / solution.objective)
        )

    def fastest(self, inverse_b: float, gap: float) -> Sample | None:
        """The fastest choice, and among equally fast ones the leanest."""
        return self.at(inverse_b, TIE_SECONDS / self.memory, gap)

    def bytes_of(self, point: Point) -> float:
        return point.totals.weight_bytes + self.held * point.totals.activation_bytes

    def result(self, bound_seconds: float, *, proven: bool) -> Frontier:
        problem = self.problem.at(inverse_b=1.0, memory_price=0.0, microbatches_held=1)
        constraints = len(problem.node_costs) + sum(sum(m.shape) for m in problem.edge_costs)
        return Frontier(
            tuple(self.points.values()),
            self.solves,
            problem.variables,
            constraints,
            self.optimal,
            bound_seconds,
            proven,
        )


def line(point: Point, inverse_b: float) -> float:
    """Seconds of a choice at 1/B."""
    return point.totals.microbatch_seconds + point.totals.iteration_seconds * inverse_b


def peak(point: Point, held: int) -> float:
    """Bytes of one device that holds a choice beside `held` microbatches."""
    t = point.totals
    return t.weight_bytes + held * t.activation_bytes + t.workspace_bytes


def corner_between(low: Sample, high: Sample) -> float | None:
    """The 1/B at which the lines of two neighbouring samples cross, where another choice may be clearly lower there.

    `low` was solved at a smaller 1/B than `high`. The least seconds are concave in 1/B, so between the samples they lie
    above the line that joins their bounds: a corner that comes near that line needs no solve.
    """
    slope = low.point.totals.iteration_seconds - high.point.totals.iteration_seconds
    if slope <= 0:
        return None
    corner = (high.point.totals.microbatch_seconds - low.point.totals.microbatch_seconds) / slope
    if not low.inverse_b < corner < high.inverse_b:
        return None
    share = (corner - low.inverse_b) / (high.inverse_b - low.inverse_b)
    near = line(low.point, corner) * (1 - 2 * TOLERANCE) <= low.bound + share * (high.bound - low.bound)
    return None if near else corner


def fastest(problem: StageProblem, solve: Solve, device_memory_bytes: int, held: int, inverse_b: float) -> Frontier:
    """The fastest choice at one B, exactly. No points when no choice exists."""
    explorer = _Explorer(problem, solve, device_memory_bytes, held)
    found = explorer.fastest(inverse_b, 0.0)
    return explorer.result(found.bound if found is not None else math.inf, proven=explorer.optimal)


def fitting(problem: StageProblem, solve: Solve, device_memory_bytes: int, held: int, inverse_b: float) -> Frontier:
    """The fastest choice at one B that fits beside `held` microbatches; after FITTING_SECONDS the best that was found.

    No points when nothing fits, or nothing was found in time.
    """
    explorer = _Explorer(problem, solve, device_memory_bytes, held)
    priced = problem.at(inverse_b=inverse_b, memory_price=TIE_SECONDS / device_memory_bytes, microbatches_held=held)
    try:
        found = solve_limited(
            priced, problem.memory_limit(held, device_memory_bytes), time_limit_seconds=FITTING_SECONDS
        )
    except SolverError:
        explorer.optimal = False
        return explorer.result(0.0, proven=False)
    explorer.solves += 1
    explorer.optimal = found.status in (Status.OPTIMAL, Status.INFEASIBLE)
    if found.choices:
        explorer.points[found.choices] = Point(found.choices, problem.totals(found.choices))
    return explorer.result(0.0, proven=False)


def envelope(problem: StageProblem, solve: Solve, device_memory_bytes: int, held: int, inverse_b: float) -> Frontier:
    """Choices within TOLERANCE of the fastest at `inverse_b`, and within 2 × TOLERANCE for every B to a million.

    No points when no choice exists.
    """
    explorer = _Explorer(problem, solve, device_memory_bytes, held)

    def between(low: Sample, high: Sample) -> None:
        if (corner := corner_between(low, high)) is None:
            return
        middle = explorer.fastest(corner, TOLERANCE)
        if middle is None or line(middle.point, corner) >= line(low.point, corner) * (1 - TOLERANCE):
            return
        between(low, middle)
        between(middle, high)

    asked = explorer.fastest(inverse_b, TOLERANCE)
    if asked is None:
        return explorer.result(math.inf, proven=True)
    few = explorer.fastest(1.0, TOLERANCE) if inverse_b < 1.0 else asked
    many = explorer.fastest(SMALLEST_INVERSE_B, TOLERANCE)
    if few is None or many is None:
        raise AssertionError("a choice is legal at every B or at none")
    between(many, asked)
    between(asked, few)
    least = min(line(point, inverse_b) for point in explorer.points.values())
    return explorer.result(asked.bound, proven=asked.bound >= least * (1 - PROVEN))


def memory_frontier(
    problem: StageProblem, solve: Solve, device_memory_bytes: int, held: int, inverse_b: float, most: int = 8
) -> Frontier:
    """Leaner, slower choices at one B, down to the leanest: at most `most` solves, where a place fits or does not."""
    explorer = _Explorer(problem, solve, device_memory_bytes, held)

    def straddles(fast: Point, lean: Point) -> bool:
        return any(peak(lean, h) <= device_memory_bytes < peak(fast, h) for h in range(1, held + 1))

    quickest = explorer.fastest(inverse_b, TOLERANCE)
    if quickest is None:
        return explorer.result(math.inf, proven=True)
    fast = quickest.point
    # So dear that no time saved pays for a byte: the leanest choice, and the fastest among equally lean ones.
    lean = explorer.at(inverse_b, 1e3 * max(line(fast, inverse_b), 1e-6) / device_memory_bytes, 0.0)
    todo = [(fast, lean.point)] if lean is not None else []
    while todo and explorer.solves < most:
        quick, small = todo.pop(0)
        if not straddles(quick, small):
            continue
        saved = explorer.bytes_of(quick) - explorer.bytes_of(small)
        if saved <= 0:
            continue
        price = (line(small, inverse_b) - line(quick, inverse_b)) / saved
        middle = explorer.at(inverse_b, price, TOLERANCE)
        if middle is not None and middle.point not in (quick, small):
            todo += [(quick, middle.point), (middle.point, small)]
    least = tuple(problem.memory_limit(h, device_memory_bytes).least_peak() for h in range(1, held + 1))
    return replace(explorer.result(0.0, proven=False), least_peaks=least)
