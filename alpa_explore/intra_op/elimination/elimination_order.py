"""In which order to eliminate the nodes of a problem, worked out on sizes alone before any table is made.

Eliminating v joins its neighbours N(v): the join has K_v · Π K_u entries, the table that stays Π K_u, and all of N(v)
become neighbours of each other. Two greedy rules are tried:

    smallest table first   Π_(u ∈ N(v)) K_u
    least fill first       Σ log (K_a · K_b) over the pairs in N(v) that are not neighbours yet

and then both again with some noise (`order_kernels`), the more often the dearer the best of them is, for the order with
the fewest entries joined: often a third of them. The noise has a fixed seed: the same problem always gets the same
order.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from math import inf, log

import numpy as np

from alpa_explore.intra_op.elimination import order_kernels

CHEAP_JOINS = 2e7
"""An order with at most this many joined entries (about 0.02 s) is taken at once by `cheap_order`."""
HOPELESS_JOINS = 1e11
"""Where the search for an order stops: wider ones would take many minutes, and finding them is slow too."""
JOINS_A_TRY = 1e5
"""An order is worth one more try for a better one for each so many joined entries."""
MOST_TRIES = 128
STEPS = 4e8
"""Of all tries together, about the cube of the nodes each: some tenths of a second."""
CORE_JOINS = 512
"""Nodes that join no more than this go first, whatever the order of the others."""
WIDEST_CORE = 2_000
"""Nodes; of more the two rules have to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EliminationOrder:
    """The order, and what it will take."""

    nodes: tuple[int, ...]
    joined_entries: float
    """Sum over nodes of the entries of the join: proportional to the time."""
    largest_table: float
    table_entries: float
    """Sum over nodes of the entries of the table that stays: proportional to the memory."""


def cheap_order(sizes: Sequence[int], edges: Sequence[tuple[int, int]]) -> EliminationOrder | None:
    """The smallest-table order when it is a cheap one; None as soon as it is seen not to be."""
    return _greedy(sizes, edges, _smallest_table, CHEAP_JOINS)


def elimination_order(
    sizes: Sequence[int], edges: Sequence[tuple[int, int]], keep: frozenset[int] = frozenset()
) -> EliminationOrder:
    """A good order for nodes with `sizes` strategies; one with infinite figures and no nodes when all are hopeless.

    Nodes in `keep` are never taken: what is left in the end are tables over them.
    """
    hopeless = EliminationOrder(nodes=(), joined_entries=inf, largest_table=inf, table_entries=inf)
    best = _greedy(sizes, edges, _smallest_table, HOPELESS_JOINS, keep) or hopeless
    if best.joined_entries <= JOINS_A_TRY:
        return best
    best = _greedy(sizes, edges, _least_fill, min(best.joined_entries, HOPELESS_JOINS), keep) or best
    return best if best is hopeless else _searched(sizes, edges, keep, best)


class _Elimination:
    """As it goes on, and what it takes."""

    def __init__(self, sizes: Sequence[int], edges: Sequence[tuple[int, int]], keep: Collection[int] = ()) -> None:
        self.sizes = sizes
        self.neighbours: list[set[int]] = [set() for _ in sizes]
        for a, b in edges:
            self.neighbours[a].add(b)
            self.neighbours[b].add(a)
        self.left = [v not in keep for v in range(len(sizes))]
        """Which nodes are still to go."""
        self.nodes: list[int] = []
        self.joined = self.kept = self.largest = 0.0

    def take(self, v: int) -> None:
        """Eliminate v."""
        around = self.neighbours[v]
        entries = _smallest_table(self, v)
        self.joined += entries * self.sizes[v]
        self.kept += entries
        self.largest = max(self.largest, entries)
        self.left[v] = False
        self.nodes.append(v)
        for u in around:
            self.neighbours[u] |= around
            self.neighbours[u] -= {u, v}

    def take_by(self, rule: Rule, most: float = inf, give_up: float = inf) -> bool:
        """Eliminate the node with the least score until all are gone or have one above `most`; False once `give_up`
        entries are joined."""
        current = [rule(self, v) for v in range(len(self.sizes))]
        heap = [(value, v) for v, value in enumerate(current) if self.left[v] and value <= most]
        heapq.heapify(heap)
        while heap:
            value, v = heapq.heappop(heap)
            if not self.left[v] or value != current[v]:
                continue
            around = self.neighbours[v]
            self.take(v)
            if self.joined >= give_up:
                return False
            touched = set(around)
            if rule is _least_fill:
                for u in around:
                    touched |= self.neighbours[u]
            for u in touched:
                if self.left[u] and (new := rule(self, u)) != current[u]:
                    current[u] = new
                    if new <= most:
                        heapq.heappush(heap, (new, u))
        return True

    def order(self) -> EliminationOrder:
        """What was taken."""
        return EliminationOrder(
            nodes=tuple(self.nodes), joined_entries=self.joined, largest_table=self.largest, table_entries=self.kept
        )


Rule = Callable[[_Elimination, int], float]
"""The score of a node that is still to go."""


def _smallest_table(run: _Elimination, v: int) -> float:
    entries = 1.0
    for u in run.neighbours[v]:
        entries *= run.sizes[u]
    return entries


def _least_join(run: _Elimination, v: int) -> float:
    return _smallest_table(run, v) * run.sizes[v]


def _least_fill(run: _Elimination, v: int) -> float:
    fill = 0.0
    around = run.neighbours[v]
    for a in around:
        # Every missing pair is seen from both of its ends, and each end brings its own logarithm.
        missing = len(around) - 1 - len(around & run.neighbours[a])
        if missing:
            fill += missing * log(run.sizes[a])
    return fill


def _greedy(
    sizes: Sequence[int], edges: Sequence[tuple[int, int]], rule: Rule, give_up: float, keep: Collection[int] = ()
) -> EliminationOrder | None:
    """The order by a rule; None once `give_up` entries are joined."""
    run = _Elimination(sizes, edges, keep)
    return run.order() if run.take_by(rule, give_up=give_up) else None


def _searched(
    sizes: Sequence[int], edges: Sequence[tuple[int, int]], keep: frozenset[int], best: EliminationOrder
) -> EliminationOrder:
    """A better order than `best`, where trying finds one."""
    run = _Elimination(sizes, edges, keep)
    run.take_by(_least_join, most=CORE_JOINS)
    if not any(run.left):
        return min(best, run.order(), key=lambda order: order.joined_entries)
    core = [v for v in range(len(sizes)) if run.left[v] or v in keep]
    if len(core) > WIDEST_CORE:
        return best
    place = {v: i for i, v in enumerate(core)}
    linked = np.zeros((len(core), len(core)), dtype=np.bool_)
    for v in core:
        linked[place[v], [place[u] for u in run.neighbours[v]]] = True
    tries = min(MOST_TRIES, int(best.joined_entries / JOINS_A_TRY), int(STEPS / len(core) ** 3) + 1)
    found = order_kernels.search(
        linked,
        np.array([sizes[v] for v in core], dtype=np.float64),
        np.array([v in keep for v in core]),
        tries,
        best.joined_entries - run.joined,
    )
    for i in found.tolist():
        run.take(core[i])
    return run.order() if len(found) else best
