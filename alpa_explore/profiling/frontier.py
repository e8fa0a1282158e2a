"""All choices of one stage on one mesh that some plan may want: for every B, and when memory is short.

The seconds of a choice are microbatch + iteration / B, a line over 1/B, so the best choice for every B is the lower
envelope of such lines. It is found exactly with two solves for each of its corners (Eisner and Severance,
"Mathematical techniques for efficient record segmentation in large shared databases", JACM 1976). Where the fastest
choice overflows the device the same method walks from it towards the leanest one, over a price for memory; this gives
the convex part of the frontier of (seconds, bytes).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from alpa_explore.intra_op.problem import ShardingProblem
from alpa_explore.intra_op.solution import ShardingSolution, Status
from alpa_explore.intra_op.stage_problem import StageProblem, StageTotals

SMALLEST_INVERSE_B = 2.0**-20
"""1/B of the largest number of microbatches that the envelope covers (a million)."""
TOLERANCE = 2.5e-3
"""For other B than the one asked for: how far from the optimum a solve may stop, and by how much a corner of the
envelope must be lower than its neighbours to be worth its solves."""
TIE_SECONDS = 1e-10
"""What a whole device of memory costs when memory is not short: decides between equally fast choices, and nothing
else."""

Solve = Callable[[ShardingProblem, float], ShardingSolution]
"""(problem, gap) -> solution"""


@dataclass(frozen=True, slots=True)
class Point:
    """A choice and its totals."""

    choices: tuple[int, ...]
    totals: StageTotals


@dataclass(frozen=True, slots=True)
class Frontier:
    """The points found, and what finding them took."""

    points: tuple[Point, ...]
    solves: int
    variables: int
    constraints: int
    optimal: bool
    """False when a solve hit its time limit."""


class _Explorer:
    """One stage problem, solved at several prices; remembers every distinct choice."""

    def __init__(self, problem: StageProblem, solve: Solve, device_memory_bytes: int, held: int) -> None:
        self.problem, self.solve = problem, solve
        self.memory, self.held = device_memory_bytes, held
        self.points: dict[tuple[int, ...], Point] = {}
        self.solves = 0
        self.optimal = True
        self.hard = False
        """True once a solve needed an ILP: then only what was asked for is solved."""

    def at(self, inverse_b: float, price: float, gap: float = 0.0) -> Point | None:
        problem = self.problem.at(inverse_b=inverse_b, memory_price=price, microbatches_held=self.held)
        solution = self.solve(problem, gap)
        self.solves += 1
        self.optimal = self.optimal and solution.status is not Status.TIME_LIMIT
        self.hard = self.hard or solution.variables > 0
        if not solution.choices:
            return None
        point = self.points.get(solution.choices)
        if point is None:
            point = Point(solution.choices, self.problem.totals(solution.choices))
            self.points[solution.choices] = point
        return point

    def bytes_of(self, point: Point) -> float:
        return point.totals.weight_bytes + self.held * point.totals.activation_bytes

    def peak(self, point: Point, held: int) -> float:
        t = point.totals
        return t.weight_bytes + held * t.activation_bytes + t.workspace_bytes

    def result(self) -> Frontier:
        problem = self.problem.at(inverse_b=1.0, memory_price=0.0, microbatches_held=1)
        constraints = len(problem.node_costs) + sum(sum(m.shape) for m in problem.edge_costs)
        return Frontier(tuple(self.points.values()), self.solves, problem.variables, constraints, self.optimal)


def envelope(problem: StageProblem, solve: Solve, device_memory_bytes: int, held: int, inverse_b: float) -> Frontier:
    """The fastest choice at `inverse_b`, and choices within 2 × TOLERANCE of the fastest for every B to a million.

    A problem that needs an ILP for the B that is asked for is not solved for others: it takes seconds each time.

    No points when no choice exists.
    """
    explorer = _Explorer(problem, solve, device_memory_bytes, held)
    price = TIE_SECONDS / device_memory_bytes

    def line(point: Point, inverse_b: float) -> float:
        return point.totals.microbatch_seconds + point.totals.iteration_seconds * inverse_b

    def between(low: Point, high: Point) -> None:
        """`low` is best at a smaller 1/B than `high`."""
        slope = low.totals.iteration_seconds - high.totals.iteration_seconds
        if slope <= 0:
            return
        corner = (high.totals.microbatch_seconds - low.totals.microbatch_seconds) / slope
        if not SMALLEST_INVERSE_B < corner < 1.0:
            return
        middle = explorer.at(corner, price, TOLERANCE)
        if middle is None or line(middle, corner) >= line(low, corner) * (1 - TOLERANCE):
            return
        between(low, middle)
        between(middle, high)

    asked = explorer.at(inverse_b, price)
    if explorer.hard:
        return explorer.result()
    few, many = explorer.at(1.0, price, TOLERANCE), explorer.at(SMALLEST_INVERSE_B, price, TOLERANCE)
    if few is not None and many is not None and asked is not None:
        between(many, asked)
        between(asked, few)
    return explorer.result()


def memory_frontier(
    problem: StageProblem, solve: Solve, device_memory_bytes: int, held: int, inverse_b: float, most: int = 8
) -> Frontier:
    """Leaner, slower choices at one B, down to the leanest: at most `most` solves, where a place fits or does not."""
    explorer = _Explorer(problem, solve, device_memory_bytes, held)

    def seconds(point: Point) -> float:
        return point.totals.microbatch_seconds + point.totals.iteration_seconds * inverse_b

    def straddles(fast: Point, lean: Point) -> bool:
        return any(explorer.peak(lean, h) <= device_memory_bytes < explorer.peak(fast, h) for h in range(1, held + 1))

    fast = explorer.at(inverse_b, TIE_SECONDS / device_memory_bytes)
    if fast is None:
        return explorer.result()
    # So dear that no time saved pays for a byte: the leanest choice, and the fastest among equally lean ones.
    lean = explorer.at(inverse_b, 1e3 * max(seconds(fast), 1e-6) / device_memory_bytes)
    todo = [(fast, lean)] if lean is not None else []
    while todo and explorer.solves < most and not explorer.hard:
        quick, small = todo.pop(0)
        if small is None or not straddles(quick, small):
            continue
        saved = explorer.bytes_of(quick) - explorer.bytes_of(small)
        if saved <= 0:
            continue
        price = (seconds(small) - seconds(quick)) / saved
        middle = explorer.at(inverse_b, price, TOLERANCE)
        known = (quick.choices, small.choices)
        if middle is not None and middle.choices not in known:
            todo += [(quick, middle), (middle, small)]
    return explorer.result()
