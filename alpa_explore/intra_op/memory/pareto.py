"""The exact frontier of (seconds, bytes) of a sharding problem, by elimination over Pareto sets.

Every choice s of the problem has two sums: its cost, and the bytes Σ_v node_bytes[v][s_v]. The frontier is all pairs
that no other choice beats in one without losing in the other. It follows from the elimination of `elimination`, with
the numbers of min-plus replaced by Pareto sets of pairs:

    a + b      all sums of a pair of a and a pair of b, the dominated ones left out     (Minkowski sum)
    min(a, b)  both sets, the dominated pairs left out

These form a semiring like (min, +): + distributes over min, and a dominated pair stays dominated whatever is added to
both. So no pair of the frontier is lost. Nodes whose bytes are the same for every strategy go first, by plain min-plus
(`simplify`). Sets can grow exponentially: Caps decides, by counting and never by the clock, when it is given up.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from alpa_explore.intra_op.elimination.elimination_order import elimination_order
from alpa_explore.intra_op.memory.pareto_bounds import SLACK, Bounds, pareto_bounds
from alpa_explore.intra_op.memory.pareto_kernels import Sets, minimal_sums
from alpa_explore.intra_op.problem.sharding_problem import FORBIDDEN, ShardingProblem
from alpa_explore.intra_op.reduction.factor_graph import Contradiction, Scope
from alpa_explore.intra_op.reduction.simplify import simplify
from alpa_explore.numerics.arrays import Floats, Ints


@dataclass(frozen=True, slots=True, kw_only=True)
class Caps:
    """When the sets are too large. The defaults are about five seconds and 300 MB on one core."""

    joined_entries: float = 1e6
    """Entries of all joins, known before anything is summed."""
    points: int = 4_000_000
    """Points kept in all tables together."""
    sums: float = 4e7
    """Sums of two points formed in all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ParetoPoint:
    """A choice that no other beats in seconds without more bytes, nor in bytes without more seconds."""

    choices: tuple[int, ...]
    seconds: float
    bytes: float


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Table:
    """A Pareto set for every combination of strategies of the nodes in `scope` (C order)."""

    scope: Scope
    sets: Sets


class _TooLarge(Exception):
    """A cap was passed."""


def pareto_frontier(
    problem: ShardingProblem, node_bytes: Sequence[Floats], *, most_seconds: float = np.inf, caps: Caps | None = None
) -> tuple[ParetoPoint, ...] | None:
    """The whole frontier up to `most_seconds`, fastest first, one choice a point; None where it passes `caps`.

    Empty when there is no choice. `node_bytes[v]` has one entry a strategy of node v.
    """
    caps = caps or Caps()
    heavy = frozenset(v for v, b in enumerate(node_bytes) if np.ptp(b) > 0)
    try:
        reduced = simplify(problem, dominance=False, keep=heavy)
    except Contradiction:
        return ()
    core = reduced.core
    # A kept node may have lost strategies to arc consistency: the trail says which of the old ones are left.
    kept = _kept(reduced.trail, [len(c) for c in problem.node_costs])
    weights = [node_bytes[v][kept[v]] for v in reduced.nodes]
    try:
        eliminated = _eliminate(core, weights, most_seconds - reduced.constant, caps)
    except _TooLarge:
        return None
    found = []
    for core_choices in eliminated:
        choices = reduced.restore(core_choices)
        size = sum(float(b[c]) for b, c in zip(node_bytes, choices, strict=True))
        found.append(ParetoPoint(choices=choices, seconds=problem.evaluate(choices), bytes=size))
    return tuple(found)


def _kept(trail: Sequence[object], sizes: Sequence[int]) -> list[Ints]:
    """For every node which of its strategies are left at the end of the trail."""
    from alpa_explore.intra_op.reduction.factor_graph import Restricted

    kept = [np.arange(size) for size in sizes]
    for step in trail:
        if isinstance(step, Restricted):
            kept[step.node] = kept[step.node][step.kept]
    return kept


def _eliminate(
    core: ShardingProblem, weights: Sequence[Floats], most_seconds: float, caps: Caps
) -> list[tuple[int, ...]]:
    """A choice for every point of the frontier of the core, fastest first."""
    sizes = [len(costs) for costs in core.node_costs]
    order = elimination_order(sizes, core.edges)
    if order.joined_entries > caps.joined_entries:
        raise _TooLarge
    work = _Work(sizes, most_seconds, caps, pareto_bounds(core, weights, order.nodes))
    tables: list[_Table] = [work.leaf(v, core.node_costs[v], weights[v]) for v in range(len(sizes))]
    for (a, b), matrix in zip(core.edges, core.edge_costs, strict=True):
        tables.append(work.edge((a, b), matrix) if a < b else work.edge((b, a), matrix.T))
    for step, v in enumerate(order.nodes):
        reading = sorted((t for t in tables if v in t.scope), key=lambda t: (len(t.scope), len(t.sets[1])))
        tables = [t for t in tables if v not in t.scope]
        total = reading[0]
        for other in reading[1:-1]:
            total = work.joined(total, other)
        last = reading[-1]
        tables.append(
            work.joined(total, last, v, step) if len(reading) > 1 else work.joined(work.nothing(), last, v, step)
        )
    total = work.nothing()
    for table in tables:
        total = work.joined(total, table)
    return [work.choice(int(number)) for number in total.sets[3]]


class _Work:
    """Sums tables, and remembers of every point what it is the sum of."""

    def __init__(self, sizes: Sequence[int], most_seconds: float, caps: Caps, bounds: Bounds | None) -> None:
        self.sizes, self.most_seconds, self.caps, self.bounds = sizes, most_seconds, caps, bounds
        self.first_leaf = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
        self.bases = [int(self.first_leaf[-1])]
        """Number of the first point of each sum; below the first of them stand the leaves."""
        self.summands: list[tuple[Ints, Ints]] = []
        self.formed = 0.0

    def leaf(self, v: int, costs: Floats, weight: Floats) -> _Table:
        """A point for every strategy of v that is possible."""
        return self._single((v,), costs, weight, np.arange(len(costs)) + self.first_leaf[v])

    def edge(self, scope: Scope, costs: Floats) -> _Table:
        """A point without bytes, and without a choice of its own (number −1), for every pair that is possible."""
        flat = costs.ravel()
        return self._single(scope, flat, np.zeros(len(flat)), np.full(len(flat), -1))

    def nothing(self) -> _Table:
        """What adds nothing."""
        return self._single((), np.zeros(1), np.zeros(1), np.full(1, -1))

    def _single(self, scope: Scope, costs: Floats, weight: Floats, numbers: Ints) -> _Table:
        legal = costs < FORBIDDEN
        start = np.concatenate([[0], np.cumsum(legal)]).astype(np.int64)
        sets = (start, np.array(costs[legal]), np.array(weight[legal], dtype=float), numbers[legal].astype(np.int64))
        return _Table(scope=scope, sets=sets)

    def joined(self, a: _Table, b: _Table, without: int | None = None, step: int = -1) -> _Table:
        """a + b, and then the minimum over the strategies of `without`, which ends that step of the elimination."""
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
        """What the kernel rules points out by; no context where a table is not one that a step ends with."""
        if self.bounds is None or step < 0:
            return np.zeros((1, 2)), np.zeros(1), np.zeros(1), np.zeros((1, 0)), SLACK
        b = self.bounds
        return b.prices, b.corner_seconds, b.corner_bytes, np.ascontiguousarray(b.contexts[step]), SLACK

    def _entries(self, scope: Scope, axes: Scope) -> Ints:
        """For every combination of the nodes in `axes` the entry of a table over `scope`."""
        entry = np.zeros((1,) * len(axes), dtype=np.int64)
        step = 1
        for u in reversed(scope):
            spread = [1] * len(axes)
            spread[axes.index(u)] = self.sizes[u]
            entry = entry + step * np.arange(self.sizes[u], dtype=np.int64).reshape(spread)
            step *= self.sizes[u]
        return np.ascontiguousarray(np.broadcast_to(entry, [self.sizes[u] for u in axes]))

    def choice(self, number: int) -> tuple[int, ...]:
        """The strategies of all nodes in a point."""
        choices = [0] * len(self.sizes)
        todo = [number]
        while todo:
            number = todo.pop()
            if number < 0:
                continue
            if number < self.bases[0]:
                v = int(np.searchsorted(self.first_leaf, number, side="right")) - 1
                choices[v] = number - int(self.first_leaf[v])
                continue
            place = bisect_right(self.bases, number) - 1
            left, right = self.summands[place]
            todo += [int(left[number - self.bases[place]]), int(right[number - self.bases[place]])]
        return tuple(choices)
