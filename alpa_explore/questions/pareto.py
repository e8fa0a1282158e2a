"""The exact frontier of (seconds, bytes) of a small sharding problem, by elimination over Pareto sets.

Every choice s of the problem has two sums: its cost, and the bytes Σ_v node_bytes[v][s_v]. The frontier holds the pairs
that no other choice dominates, that is, improves in one sum without being worse in the other. It is computed by
variable elimination (`intra_op.elimination`), with the numbers of (min, +) replaced by Pareto sets of pairs:

    a + b      all sums of a pair of a and a pair of b, without the dominated ones     (Minkowski sum)
    min(a, b)  the union of both sets, without the dominated pairs

+ distributes over min, and a dominated pair stays dominated whatever is added to both: no pair of the frontier is lost.
Sets can grow exponentially. MOST_SUMS decides when to give up, by a count and never by the clock, so that the outcome
does not depend on the machine.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from alpa_explore.intra_op.elimination.elimination_order import elimination_order
from alpa_explore.intra_op.problem.sharding_problem import FORBIDDEN, Choices, ShardingProblem
from alpa_explore.intra_op.reduction.factor_graph import Contradiction, Restricted, Scope
from alpa_explore.intra_op.reduction.simplify import simplify
from alpa_explore.numerics.arrays import Floats, Ints

MOST_SUMS = 10_000_000
"""Most sums of two pairs, and joined entries, for an exact frontier: about 3 s on one core and 1 GB. A transformer
block on one mesh axis takes 0.5 to 7 million, two blocks 15 to 100 million."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Table:
    """A Pareto set for every combination of strategies of the nodes in `scope` (C order): its pairs, entry after entry,
    the fastest first."""

    scope: Scope
    entry: Ints
    seconds: Floats
    bytes: Floats
    parts: tuple[tuple[_Table, Ints], ...] = ()
    """The tables whose pairs each pair is the sum of, and which pairs these are; empty for a node or an edge."""


class _TooLarge(Exception):
    """More sums than were allowed."""


def pareto_frontier(
    problem: ShardingProblem,
    node_bytes: Sequence[Floats],
    *,
    most_seconds: float = np.inf,
    most_sums: float = MOST_SUMS,
) -> tuple[Choices, ...] | None:
    """A choice for every point of the frontier up to `most_seconds`, fastest first; None where that takes more than
    `most_sums`.

    Empty when there is no choice. `node_bytes[v]` has one entry per strategy of node v.
    """
    varying = frozenset(v for v, b in enumerate(node_bytes) if np.ptp(b) > 0)
    try:
        reduced = simplify(problem, keep=varying)
    except Contradiction:
        return ()
    # A kept node may have lost strategies to arc consistency: the trail records which remain.
    weights = list(node_bytes)
    for step in reduced.trail:
        if isinstance(step, Restricted):
            weights[step.node] = weights[step.node][step.kept]
    sums = _Sums(reduced.core, most_seconds - reduced.constant, most_sums)
    try:
        frontier = sums.frontier([weights[v] for v in reduced.nodes])
    except _TooLarge:
        return None
    return tuple(reduced.restore(sums.choice(frontier, pair)) for pair in range(len(frontier.entry)))


class _Sums:
    """Adds tables of Pareto sets over the nodes of one problem, and counts the sums."""

    def __init__(self, core: ShardingProblem, most_seconds: float, most_sums: float) -> None:
        self.core, self.most_seconds, self.left = core, most_seconds, most_sums
        self.sizes = [len(costs) for costs in core.node_costs]

    def frontier(self, weights: Sequence[Floats]) -> _Table:
        """All nodes eliminated: a table with one entry."""
        core, order = self.core, elimination_order(self.sizes, self.core.edges)
        if order.joined_entries > self.left:
            raise _TooLarge
        tables = [_given((v,), costs, weights[v]) for v, costs in enumerate(core.node_costs)]
        for (a, b), costs in zip(core.edges, core.edge_costs, strict=True):
            tables.append(_given((a, b), costs) if a < b else _given((b, a), costs.T))
        for v in order.nodes:
            reading = sorted((t for t in tables if v in t.scope), key=lambda t: (len(t.scope), len(t.entry)))
            tables = [t for t in tables if v not in t.scope]
            total = reading[0] if len(reading) > 1 else _given((), np.zeros(1))
            for other in reading[1:-1]:
                total = self.add(total, other)
            tables.append(self.add(total, reading[-1], v))
        total = _given((), np.zeros(1))
        for table in tables:
            total = self.add(total, table)
        return total

    def add(self, a: _Table, b: _Table, without: int | None = None) -> _Table:
        """a + b, and where `without` is given the minimum over its strategies."""
        scope = tuple(sorted({*a.scope, *b.scope} - {without}))
        axes = scope if without is None else (without, *scope)
        (begin_a, count_a), (begin_b, count_b) = (self._runs(t, axes) for t in (a, b))
        count = count_a * count_b
        self.left -= int(count.sum())
        if self.left < 0:
            raise _TooLarge
        joined = np.repeat(np.arange(len(count)), count)
        place = np.arange(len(joined)) - np.repeat(np.cumsum(count) - count, count)
        first, second = np.divmod(place, np.maximum(count_b, 1)[joined])
        of_a, of_b = begin_a[joined] + first, begin_b[joined] + second
        entry = joined % prod(self.sizes[u] for u in scope)
        seconds, size = a.seconds[of_a] + b.seconds[of_b], a.bytes[of_a] + b.bytes[of_b]
        within = np.flatnonzero(seconds <= self.most_seconds)
        kept = within[_not_dominated(entry[within], seconds[within], size[within])]
        return _Table(
            scope=scope,
            entry=entry[kept],
            seconds=seconds[kept],
            bytes=size[kept],
            parts=((a, of_a[kept]), (b, of_b[kept])),
        )

    def _runs(self, table: _Table, axes: Scope) -> tuple[Ints, Ints]:
        """For every combination of strategies of the nodes in `axes` where the pairs of `table` begin, and how many
        they are."""
        entries = np.arange(prod(self.sizes[u] for u in table.scope)).reshape([self.sizes[u] for u in table.scope])
        remaining = [u for u in axes if u in table.scope]
        shaped = np.transpose(entries, [table.scope.index(u) for u in remaining]).reshape(
            [self.sizes[u] if u in table.scope else 1 for u in axes]
        )
        entry = np.broadcast_to(shaped, [self.sizes[u] for u in axes]).ravel()
        begin = np.searchsorted(table.entry, entry)
        return begin, np.searchsorted(table.entry, entry, side="right") - begin

    def choice(self, table: _Table, pair: int) -> Choices:
        """The strategies of all nodes that a pair stands for."""
        choices, stack = [0] * len(self.sizes), [(table, pair)]
        while stack:
            table, pair = stack.pop()
            if not table.parts and len(table.scope) == 1:
                choices[table.scope[0]] = int(table.entry[pair])
            stack += [(part, int(pairs[pair])) for part, pairs in table.parts]
        return tuple(choices)


def _given(scope: Scope, costs: Floats, weight: Floats | None = None) -> _Table:
    """A pair for every legal entry; without a `weight` it has no bytes."""
    legal = np.flatnonzero(costs < FORBIDDEN)
    size = np.zeros(len(legal)) if weight is None else np.asarray(weight, dtype=np.float64)[legal]
    return _Table(scope=scope, entry=legal, seconds=costs.ravel()[legal], bytes=size)


def _not_dominated(entry: Ints, seconds: Floats, size: Floats) -> Ints:
    """Of these pairs those that no other one of the same entry dominates: entry after entry, the fastest first."""
    order = np.lexsort((size, seconds, entry))
    # By ranks, so that one running minimum serves all entries: it begins anew at each.
    ranks = np.unique(size[order], return_inverse=True)[1] - entry[order] * (len(order) + 1)
    smallest = np.minimum.accumulate(ranks)
    improves = np.ones(len(order), dtype=np.bool_)
    improves[1:] = ranks[1:] < smallest[:-1]
    return order[improves]
