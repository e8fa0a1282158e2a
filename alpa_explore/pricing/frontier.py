"""All choices of one stage on one mesh that some plan may want: for every B, and when memory is short.

The seconds of a choice are microbatch + iteration / B, a line over 1/B, so the best choice for every B is the lower
envelope of such lines. It is found exactly with two solves for each of its corners (Eisner and Severance,
"Mathematical techniques for efficient record segmentation in large shared databases", JACM 1976).

Where the fastest choice overflows the device there is a frontier of (seconds, bytes): seconds at the B that was asked
for, bytes = weight + held × activation. The workspace, a peak and no sum, stands beside them and is counted where a
choice is asked to fit. Where Pareto sets stay small the frontier is exact (`intra_op.pareto`); else the same walk as
above goes from the fastest choice towards the leanest over a price for memory, which gives its convex part. Every point
says which (`Provenance`). Where a pipeline wants such a stage, a choice that fits, workspace included, is then sought
that is within TOLERANCE of the best.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from alpa_explore.errors import SolverError
from alpa_explore.intra_op.memory.pareto import Caps, ParetoPoint, pareto_frontier
from alpa_explore.intra_op.problem.sharding_problem import ShardingProblem
from alpa_explore.intra_op.problem.solution import ShardingSolution, Status
from alpa_explore.intra_op.solve_limited import solve_limited
from alpa_explore.intra_op.stage.stage_problem import StageProblem, StageTotals
from alpa_explore.intra_op.tuning import EASY_ILP_VARIABLES
from alpa_explore.pricing.stage_costs import Provenance

SMALLEST_INVERSE_B = 2.0**-20
"""1/B of the largest number of microbatches that the envelope covers (a million)."""
TOLERANCE = 2.5e-3
"""How far from the optimum a solve may stop, and by how much a corner of the envelope must be lower than its neighbours
to be worth its solves."""
FITTING_SECONDS = 10.0
"""What a choice near the fastest within the memory of a device may take to find."""
LEAN_GAP = 1e-4
"""How near the least bytes the leanest choice of a large stage comes: among thousands of choices with nearly the same
bytes a proof may take an ILP hours."""
PROVEN = 1e-12
"""Relative gap that is no more than rounding."""
TIE_SECONDS = 1e-10
"""What a whole device of memory costs when memory is not short: decides between equally fast choices, and nothing
else."""
EXACT_WHERE = Caps(joined_entries=1e5, points=2_000_000, sums=1e7)
"""How large Pareto sets may become in a solve of a stage: a second, or half of one to see that they are too large."""

Solve = Callable[[ShardingProblem, float], ShardingSolution]
"""(problem, gap) -> solution"""


@dataclass(frozen=True, slots=True)
class Point:
    """A choice, its totals, and how it was found."""

    choices: tuple[int, ...]
    """Of every node of the stage; empty where `pieces` has them."""
    totals: StageTotals
    provenance: Provenance = field(default=Provenance.UNKNOWN, compare=False)
    pieces: tuple[tuple[int, ...], ...] = ()
    """Of a composed range (`intra_op.compose`): the choices of the nodes that each piece owns."""


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
    """Of a memory frontier: no choice holds less than this beside the fewest microbatches, one more, …"""
    bounds_within: tuple[tuple[int, float], ...] = ()
    """(microbatches held, seconds): no choice that fits beside so many is faster at the B that was asked for."""


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

    def at(self, inverse_b: float, price: float, gap: float, provenance: Provenance) -> Sample | None:
        problem = self.problem.at(inverse_b=inverse_b, memory_price=price, microbatches_held=self.held)
        solution = self.solve(problem, gap)
        self.solves += 1
        self.optimal = self.optimal and solution.status is not Status.TIME_LIMIT
        if not solution.choices:
            return None
        point = self.keep(solution.choices, provenance)
        exact = solution.status is Status.OPTIMAL
        return Sample(
            inverse_b, point, line(point, inverse_b) * (1.0 if exact else solution.bound / solution.objective)
        )

    def keep(self, choices: tuple[int, ...], provenance: Provenance) -> Point:
        """The point of a choice, which may have been found before in a weaker way."""
        known = self.points.get(choices)
        if known is None:
            known = Point(choices, self.problem.totals(choices), provenance)
        self.points[choices] = stronger(known, replace(known, provenance=provenance))
        return self.points[choices]

    def fastest(self, inverse_b: float, gap: float) -> Sample | None:
        """The fastest choice, and among equally fast ones the leanest."""
        return self.at(inverse_b, TIE_SECONDS / self.memory, gap, Provenance.NEAR if gap else Provenance.FASTEST)

    def ends(self, inverse_b: float) -> tuple[Point, Point] | None:
        """The fastest choice and the leanest one, or near it; None when there is no choice."""
        quickest = self.fastest(inverse_b, TOLERANCE)
        if quickest is None:
            return None
        # So dear that no time saved pays for a byte: the leanest choice, and the fastest among equally lean ones.
        dear = 1e3 * max(line(quickest.point, inverse_b), 1e-6) / self.memory
        priced = self.problem.at(inverse_b=inverse_b, memory_price=dear, microbatches_held=self.held)
        lean = self.at(inverse_b, dear, 0.0 if priced.variables <= EASY_ILP_VARIABLES else LEAN_GAP, Provenance.CONVEX)
        return None if lean is None else (quickest.point, lean.point)

    def walk(
        self, fast: Point, lean: Point, inverse_b: float, most: int, worth: Callable[[Point, Point], bool]
    ) -> None:
        """Solve between two neighbours of the convex part while that is worth it, until `most` solves were made."""
        todo = [(fast, lean)]
        while todo and self.solves < most:
            quick, small = todo.pop(0)
            saved = self.bytes_of(quick) - self.bytes_of(small)
            slower = line(small, inverse_b) - line(quick, inverse_b)
            # Nothing lies between two of which one is better in both (a quick one is no more than near the fastest).
            if saved <= 0 or slower <= 0 or not worth(quick, small):
                continue
            price = slower / saved
            middle = self.at(inverse_b, price, TOLERANCE, Provenance.CONVEX)
            if middle is not None and middle.point not in (quick, small):
                todo += [(quick, middle.point), (middle.point, small)]

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


def stronger(a: Point, b: Point) -> Point:
    """Of two points of the same choice the one of which more is known."""
    ranks = list(Provenance)
    return b if ranks.index(b.provenance) > ranks.index(a.provenance) else a


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
    if found is not None and not explorer.optimal:
        explorer.points[found.point.choices] = replace(found.point, provenance=Provenance.NEAR)
    return explorer.result(found.bound if found is not None else math.inf, proven=explorer.optimal)


def fitting(
    problem: StageProblem, solve: Solve, device_memory_bytes: int, held: int, inverse_b: float, bound_seconds: float
) -> Frontier:
    """A choice within TOLERANCE of the fastest at one B that fits beside `held` microbatches; after FITTING_SECONDS the
    best that was found. The fastest choice without a limit takes `bound_seconds`, and does not fit.

    No points when nothing fits, or nothing was found in time.
    """
    explorer = _Explorer(problem, solve, device_memory_bytes, held)
    priced = problem.at(inverse_b=inverse_b, memory_price=TIE_SECONDS / device_memory_bytes, microbatches_held=held)
    try:
        found = solve_limited(
            priced,
            problem.memory_limit(held, device_memory_bytes),
            time_limit_seconds=FITTING_SECONDS,
            gap=TOLERANCE,
            bound=bound_seconds,
        )
    except SolverError:
        explorer.optimal = False
        return explorer.result(0.0, proven=False)
    explorer.solves += 1
    explorer.optimal = found.status is not Status.TIME_LIMIT
    if found.choices:
        explorer.keep(found.choices, Provenance.FITTING)
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
    problem: StageProblem,
    solve: Solve,
    device_memory_bytes: int,
    held: tuple[int, int],
    inverse_b: float,
    most: int = 8,
) -> Frontier:
    """Leaner, slower choices at one B, down to the leanest.

    Of an exact frontier the fastest that fits at every place, and `most` more that are spread over it; else at most
    `most` solves of the convex part, where a place fits or does not. `held` are the fewest and the most microbatches
    that a place may hold; the frontier is for the most.
    """
    fewest, held_most = held
    counts = range(fewest, held_most + 1)
    explorer = _Explorer(problem, solve, device_memory_bytes, held_most)

    def straddles(fast: Point, lean: Point) -> bool:
        return any(peak(lean, h) <= device_memory_bytes < peak(fast, h) for h in counts)

    ends = explorer.ends(inverse_b)
    if ends is None:
        return explorer.result(math.inf, proven=True)
    fast, lean = ends
    least = tuple(problem.memory_limit(h, device_memory_bytes).least_peak() for h in counts)
    if straddles(fast, lean):
        exact = exact_frontier(problem, held_most, inverse_b, line(lean, inverse_b), EXACT_WHERE)
        if exact:
            points = [explorer.keep(p.choices, Provenance.EXACT) for p in exact]
            wanted = {round(i * (len(points) - 1) / max(most - 1, 1)) for i in range(most)}
            for h in counts:
                fits = (i for i, p in enumerate(points) if peak(p, h) <= device_memory_bytes)
                wanted |= {i for i in [next(fits, None)] if i is not None}
            explorer.points = {points[i].choices: points[i] for i in sorted(wanted)}
            return replace(explorer.result(exact[0].seconds, proven=True), least_peaks=least)
    explorer.walk(fast, lean, inverse_b, most, straddles)
    return replace(explorer.result(0.0, proven=False), least_peaks=least)


def whole_frontier(
    problem: StageProblem, solve: Solve, device_memory_bytes: int, held: int, inverse_b: float, most: int, caps: Caps
) -> Frontier:
    """All of the frontier at one B: every point where Pareto sets stay within `caps`, else the convex part in `most`
    solves. `proven` says which."""
    explorer = _Explorer(problem, solve, device_memory_bytes, held)
    ends = explorer.ends(inverse_b)
    if ends is None:
        return explorer.result(math.inf, proven=True)
    exact = exact_frontier(problem, held, inverse_b, line(ends[1], inverse_b), caps)
    if exact:
        points = [explorer.keep(p.choices, Provenance.EXACT) for p in exact]
        explorer.points = {p.choices: p for p in points}
        return explorer.result(exact[0].seconds, proven=True)
    explorer.walk(*ends, inverse_b, most, lambda _quick, _small: True)
    return explorer.result(0.0, proven=False)


def exact_frontier(
    problem: StageProblem, held: int, inverse_b: float, most_seconds: float, caps: Caps
) -> tuple[ParetoPoint, ...] | None:
    """All pairs of (seconds, weight + held × activation bytes) that no choice beats, up to `most_seconds`; None where
    that passes `caps`."""
    unpriced = problem.at(inverse_b=inverse_b, memory_price=0.0, microbatches_held=held)
    sizes = [n.weight_bytes + held * n.activation_bytes for n in problem.nodes]
    return pareto_frontier(unpriced, sizes, most_seconds=most_seconds * (1 + 1e3 * PROVEN), caps=caps)
