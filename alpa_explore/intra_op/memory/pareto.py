"""The exact frontier of (seconds, bytes) of a sharding problem, by elimination over Pareto sets.

Every choice s of the problem has two sums: its cost, and the bytes Σ_v node_bytes[v][s_v]. The frontier holds the pairs
that no other choice dominates, that is, improves in one sum without being worse in the other. It is computed by
variable elimination, as in `elimination`, with the numbers of min-plus replaced by Pareto sets of pairs:

    a + b      all sums of a pair of a and a pair of b, without the dominated ones     (Minkowski sum)
    min(a, b)  the union of both sets, without the dominated pairs

These form a semiring like (min, +): + distributes over min, and a dominated pair stays dominated whatever is added to
both. So no pair of the frontier is lost. Nodes whose bytes are the same for every strategy are eliminated first, by
plain min-plus (`simplify`). Sets can grow exponentially: Caps decides when to give up, by counts and never by the
clock, so that the outcome does not depend on the machine.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from alpa_explore.intra_op.elimination.elimination_order import elimination_order
from alpa_explore.intra_op.memory import tuning
from alpa_explore.intra_op.memory.pareto_bounds import Bounds, pareto_bounds
from alpa_explore.intra_op.memory.pareto_kernels import Sets, minimal_sums
from alpa_explore.intra_op.problem.sharding_problem import FORBIDDEN, Choices, ShardingProblem
from alpa_explore.intra_op.reduction.factor_graph import Contradiction, Restricted, Scope, Trail
from alpa_explore.intra_op.reduction.simplify import simplify
from alpa_explore.numerics.arrays import Floats, Ints


@dataclass(frozen=True, slots=True, kw_only=True)
class Caps:
    """When to give up. The defaults allow about five seconds and 300 MB on one core."""

    joined_entries: float = tuning.MAX_PARETO_JOINS
    """Entries of all joins, known before anything is summed."""
    points: int = tuning.MAX_PARETO_POINTS
    """Points kept in all tables together."""
    sums: float = tuning.MAX_PARETO_SUMS
    """Sums of two points formed in all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ParetoPoint:
    """A non-dominated choice: none has fewer seconds without more bytes, or fewer bytes without more seconds."""

    choices: Choices
    seconds: float
    bytes: float


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Table:
    """A Pareto set for every combination of strategies of the nodes in `scope` (C order)."""

    scope: Scope
    sets: Sets


class _TooLarge(Exception):
    """A cap was exceeded."""


def pareto_frontier(
    problem: ShardingProblem, node_bytes: Sequence[Floats], *, most_seconds: float = np.inf, caps: Caps | None = None
) -> tuple[ParetoPoint, ...] | None:
    """The whole frontier up to `most_seconds`, fastest first, one choice per point; None where it exceeds `caps`.

    Empty when there is no choice. `node_bytes[v]` has one entry per strategy of node v.
    """
    caps = caps or Caps()
    varying = frozenset(v for v, b in enumerate(node_bytes) if np.ptp(b) > 0)
    try:
        reduced = simplify(problem, dominance=False, keep=varying)
    except Contradiction:
        return ()
    core = reduced.core
    # A kept node may have lost strategies to arc consistency: the trail records which remain.
    kept = _remaining_strategies(reduced.trail, [len(c) for c in problem.node_costs])
    weights = [node_bytes[v][kept[v]] for v in reduced.nodes]
    try:
        frontier = _core_frontier(core, weights, most_seconds - reduced.constant, caps)
    except _TooLarge:
        return None
    points = []
    for core_choices in frontier:
        choices = reduced.restore(core_choices)
        size = sum(float(b[c]) for b, c in zip(node_bytes, choices, strict=True))
        points.append(ParetoPoint(choices=choices, seconds=problem.evaluate(choices), bytes=size))
    return tuple(points)


def _remaining_strategies(trail: Trail, sizes: Sequence[int]) -> list[Ints]:
    """For every node the strategies that remain at the end of the trail."""
    kept = [np.arange(size) for size in sizes]
    for step in trail:
        if isinstance(step, Restricted):
            kept[step.node] = kept[step.node][step.kept]
    return kept


def _core_frontier(core: ShardingProblem, weights: Sequence[Floats], most_seconds: float, caps: Caps) -> list[Choices]:
    """A choice for every point of the frontier of the core, fastest first."""
    sizes = [len(costs) for costs in core.node_costs]
    order = elimination_order(sizes, core.edges)
    if order.joined_entries > caps.joined_entries:
        raise _TooLarge
    sums = _SetSums(sizes, most_seconds, caps, pareto_bounds(core, weights, order.nodes))
    tables: list[_Table] = [sums.leaf(v, core.node_costs[v], weights[v]) for v in range(len(sizes))]
    for (a, b), matrix in zip(core.edges, core.edge_costs, strict=True):
        tables.append(sums.edge((a, b), matrix) if a < b else sums.edge((b, a), matrix.T))
    for step, v in enumerate(order.nodes):
        reading = sorted((t for t in tables if v in t.scope), key=lambda t: (len(t.scope), len(t.sets[1])))
        tables = [t for t in tables if v not in t.scope]
        total = reading[0]
        for other in reading[1:-1]:
            total = sums.add(total, other)
        last = reading[-1]
        tables.append(sums.add(total, last, v, step) if len(reading) > 1 else sums.add(sums.zero(), last, v, step))
    total = sums.zero()
    for table in tables:
        total = sums.add(total, table)
    return [sums.choice(int(number)) for number in total.sets[3]]


class _SetSums:
    """Sums tables of Pareto sets, and records for every point the two points that it is the sum of.

    Points are numbered: first a leaf for every strategy of every node, then the points of one sum after the other. A
    point without a choice of its own has the number -1.
    """

    def __init__(self, sizes: Sequence[int], most_seconds: float, caps: Caps, bounds: Bounds | None) -> None:
        self.sizes, self.most_seconds, self.caps, self.bounds = sizes, most_seconds, caps, bounds
        self.first_leaf = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
        self.bases = [int(self.first_leaf[-1])]
        """Number of the first point of each sum; below the first of them stand the leaves."""
        self.summands: list[tuple[Ints, Ints]] = []
        self.formed = 0.0
        """Sums of two points formed so far."""

    def leaf(self, v: int, costs: Floats, weight: Floats) -> _Table:
        """A point for every legal strategy of v."""
        return self._single((v,), costs, weight, np.arange(len(costs)) + self.first_leaf[v])

    def edge(self, scope: Scope, costs: Floats) -> _Table:
        """A point without bytes for every pair of strategies that is legal."""
        flat = costs.ravel()
        return self._single(scope, flat, np.zeros(len(flat)), np.full(len(flat), -1))

    def zero(self) -> _Table:
        """The neutral element of the sum."""
        return self._single((), np.zeros(1), np.zeros(1), np.full(1, -1))

    def _single(self, scope: Scope, costs: Floats, weight: Floats, numbers: Ints) -> _Table:
        legal = costs < FORBIDDEN
        start = np.concatenate([[0], np.cumsum(legal)]).astype(np.int64)
        sets = (start, np.array(costs[legal]), np.array(weight[legal], dtype=float), numbers[legal].astype(np.int64))
        return _Table(scope=scope, sets=sets)

    def add(self, a: _Table, b: _Table, without: int | None = None, step: int = -1) -> _Table:
        """a + b, and where `without` is given the minimum over its strategies, which completes that step."""
        scope = tuple(sorted({*a.scope, *b.scope} - {without}))
        axes = scope if without is None else (without, *scope)
        shape = [self.sizes[u] for u in axes]
        count = 1 if without is None else shape[0]
        entry_a, entry_b = (self._entries(t.scope, axes).reshape(count, -1) for t in (a, b))
        start, seconds, size, left, right, formed = minimal_sums(
            a.sets,
            b.sets,
            entry_a,
            entry_b,
            self.most_seconds,
            self.caps.points - self.bases[-1],
            self.caps.sums - self.formed,
            *self._bounds(step),
        )
        self.formed += formed
        if self.formed > self.caps.sums:
            raise _TooLarge
        numbers = np.arange(len(seconds)) + self.bases[-1]
        self.summands.append((left, right))
        self.bases.append(self.bases[-1] + len(seconds))
        return _Table(scope=scope, sets=(start, seconds, size, numbers))

    def _bounds(self, step: int) -> tuple[Floats, Floats, Floats, Floats, float]:
        """The bounds for the kernel; without contexts where the table is not the result of a step."""
        if self.bounds is None or step < 0:
            return np.zeros((1, 2)), np.zeros(1), np.zeros(1), np.zeros((1, 0)), tuning.PARETO_SLACK
        b = self.bounds
        # Of one type for all, as `_entries`: numba compiles the kernel, which takes seconds, for each other one.
        context = np.ascontiguousarray(b.contexts[step], dtype=float)
        return b.prices, b.corner_seconds, b.corner_bytes, context, tuning.PARETO_SLACK

    def _entries(self, scope: Scope, axes: Scope) -> Ints:
        """For every combination of strategies of the nodes in `axes` the entry of a table over `scope`."""
        entry = np.zeros((1,) * len(axes), dtype=np.int64)
        stride = 1
        for u in reversed(scope):
            spread = [1] * len(axes)
            spread[axes.index(u)] = self.sizes[u]
            entry = entry + stride * np.arange(self.sizes[u], dtype=np.int64).reshape(spread)
            stride *= self.sizes[u]
        return np.array(np.broadcast_to(entry, [self.sizes[u] for u in axes]), order="C")  # a copy may be written to

    def choice(self, number: int) -> Choices:
        """The strategies of all nodes that a point stands for."""
        choices = [0] * len(self.sizes)
        stack = [number]
        while stack:
            number = stack.pop()
            if number < 0:
                continue
            if number < self.bases[0]:
                v = int(np.searchsorted(self.first_leaf, number, side="right")) - 1
                choices[v] = number - int(self.first_leaf[v])
                continue
            place = bisect_right(self.bases, number) - 1
            left, right = self.summands[place]
            stack += [int(left[number - self.bases[place]]), int(right[number - self.bases[place]])]
        return tuple(choices)
