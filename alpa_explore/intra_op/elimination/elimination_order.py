"""In which order to eliminate the nodes of a problem, computed from sizes alone before any table is made.

Eliminating v joins the tables that read it: the join has K_v · Π K_u entries over the neighbours u ∈ N(v), the table
that remains Π K_u, and all of N(v) become neighbours of each other. Two greedy rules are tried:

    smallest table first   Π_(u ∈ N(v)) K_u
    least fill first       Σ log (K_a · K_b) over the pairs in N(v) that are not neighbours yet

and then both again with noisy scores (`order_kernels`), for the order with the fewest joined entries: often it joins a
third of them. The number of tries grows with the cost of the best greedy order. The noise has a fixed seed: the same
problem always gets the same order.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from math import inf, log

import numpy as np

from alpa_explore.intra_op.elimination import order_kernels, tuning
from alpa_explore.intra_op.problem.sharding_problem import ShardingProblem


@dataclass(frozen=True, slots=True, kw_only=True)
class EliminationOrder:
    """The order, and the cost of eliminating in it."""

    nodes: tuple[int, ...]
    joined_entries: float
    """Sum over nodes of the entries of the join: proportional to the time."""
    largest_table: float
    table_entries: float
    """Sum over nodes of the entries of the table that remains: proportional to the memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """When an elimination is too wide. The defaults are about 10 s and 1 GB on one core."""

    joined_entries: float = tuning.MAX_JOINED_ENTRIES
    largest_table: float = tuning.MAX_TABLE_ENTRIES
    table_entries: float = tuning.MAX_TOTAL_ENTRIES

    def within(self, seconds: float | None) -> Limits:
        """The limits tightened to what can be done in `seconds`."""
        if seconds is None:
            return self
        return replace(self, joined_entries=min(self.joined_entries, tuning.JOINS_A_SECOND * seconds))

    def allow(self, order: EliminationOrder) -> bool:
        """True when `order` stays below all of them."""
        return (
            order.joined_entries <= self.joined_entries
            and order.largest_table <= self.largest_table
            and order.table_entries <= self.table_entries
        )


def is_cheap(problem: ShardingProblem) -> bool:
    """Whether the smallest-table order is cheap; False as soon as it turns out not to be."""
    return _greedy([len(c) for c in problem.node_costs], problem.edges, _smallest_table, tuning.CHEAP_JOINS) is not None


def elimination_order(
    sizes: Sequence[int], edges: Sequence[tuple[int, int]], keep: frozenset[int] = frozenset()
) -> EliminationOrder:
    """A good order for nodes with `sizes` strategies; one with infinite costs and no nodes when all are hopeless.

    Nodes in `keep` are never eliminated: tables over them remain in the end.
    """
    hopeless = EliminationOrder(nodes=(), joined_entries=inf, largest_table=inf, table_entries=inf)
    best = _greedy(sizes, edges, _smallest_table, tuning.HOPELESS_JOINS, keep) or hopeless
    if best.joined_entries <= tuning.JOINS_A_TRY:
        return best
    best = _greedy(sizes, edges, _least_fill, min(best.joined_entries, tuning.HOPELESS_JOINS), keep) or best
    return best if best is hopeless else _search(sizes, edges, keep, best)


class _Elimination:
    """The state of an elimination on sizes alone: the graph of the remaining nodes, and the cost so far."""

    def __init__(self, sizes: Sequence[int], edges: Sequence[tuple[int, int]], keep: Collection[int] = ()) -> None:
        self.sizes = sizes
        self.neighbours: list[set[int]] = [set() for _ in sizes]
        for a, b in edges:
            self.neighbours[a].add(b)
            self.neighbours[b].add(a)
        self.remaining = [v not in keep for v in range(len(sizes))]
        """Which nodes are still to be eliminated."""
        self.nodes: list[int] = []
        self.joined_entries = self.table_entries = self.largest_table = 0.0

    def eliminate(self, v: int) -> None:
        """Eliminate v."""
        neighbours = self.neighbours[v]
        entries = _smallest_table(self, v)
        self.joined_entries += entries * self.sizes[v]
        self.table_entries += entries
        self.largest_table = max(self.largest_table, entries)
        self.remaining[v] = False
        self.nodes.append(v)
        for u in neighbours:
            self.neighbours[u] |= neighbours
            self.neighbours[u] -= {u, v}

    def eliminate_by(self, rule: Rule, most: float = inf, give_up: float = inf) -> bool:
        """Eliminate the node with the least score until none remains or all scores exceed `most`.

        Returns False as soon as `give_up` entries are joined.
        """
        current = [rule(self, v) for v in range(len(self.sizes))]
        heap = [(value, v) for v, value in enumerate(current) if self.remaining[v] and value <= most]
        heapq.heapify(heap)
        while heap:
            value, v = heapq.heappop(heap)
            if not self.remaining[v] or value != current[v]:
                continue
            neighbours = self.neighbours[v]
            self.eliminate(v)
            if self.joined_entries >= give_up:
                return False
            touched = set(neighbours)
            if rule is _least_fill:
                for u in neighbours:
                    touched |= self.neighbours[u]
            for u in touched:
                if self.remaining[u] and (updated := rule(self, u)) != current[u]:
                    current[u] = updated
                    if updated <= most:
                        heapq.heappush(heap, (updated, u))
        return True

    def order(self) -> EliminationOrder:
        """The order of elimination so far."""
        return EliminationOrder(
            nodes=tuple(self.nodes),
            joined_entries=self.joined_entries,
            largest_table=self.largest_table,
            table_entries=self.table_entries,
        )


Rule = Callable[[_Elimination, int], float]
"""The score of a remaining node: the node with the least score is eliminated next."""


def _smallest_table(run: _Elimination, v: int) -> float:
    entries = 1.0
    for u in run.neighbours[v]:
        entries *= run.sizes[u]
    return entries


def _least_join(run: _Elimination, v: int) -> float:
    return _smallest_table(run, v) * run.sizes[v]


def _least_fill(run: _Elimination, v: int) -> float:
    fill = 0.0
    neighbours = run.neighbours[v]
    for a in neighbours:
        # Every missing pair is counted at both of its ends, and each end adds its own logarithm.
        missing = len(neighbours) - 1 - len(neighbours & run.neighbours[a])
        if missing:
            fill += missing * log(run.sizes[a])
    return fill


def _greedy(
    sizes: Sequence[int], edges: Sequence[tuple[int, int]], rule: Rule, give_up: float, keep: Collection[int] = ()
) -> EliminationOrder | None:
    """The order by `rule`; None once `give_up` entries are joined."""
    run = _Elimination(sizes, edges, keep)
    return run.order() if run.eliminate_by(rule, give_up=give_up) else None


def _search(
    sizes: Sequence[int], edges: Sequence[tuple[int, int]], keep: frozenset[int], best: EliminationOrder
) -> EliminationOrder:
    """A better order than `best` where the noisy search finds one, else `best`."""
    run = _Elimination(sizes, edges, keep)
    run.eliminate_by(_least_join, most=tuning.CORE_JOINS)
    if not any(run.remaining):
        return min(best, run.order(), key=lambda order: order.joined_entries)
    core = [v for v in range(len(sizes)) if run.remaining[v] or v in keep]
    if len(core) > tuning.WIDEST_CORE:
        return best
    place = {v: i for i, v in enumerate(core)}
    adjacent = np.zeros((len(core), len(core)), dtype=np.bool_)
    for v in core:
        adjacent[place[v], [place[u] for u in run.neighbours[v]]] = True
    tries = min(
        tuning.MOST_TRIES, int(best.joined_entries / tuning.JOINS_A_TRY), int(tuning.MOST_STEPS / len(core) ** 3) + 1
    )
    core_sizes = np.array([sizes[v] for v in core], dtype=np.float64)
    core_order = order_kernels.search(
        adjacent,
        core_sizes,
        np.log(core_sizes),
        np.array([v in keep for v in core]),
        tries,
        best.joined_entries - run.joined_entries,
        tuning.ORDER_NOISE,
    )
    for i in core_order.tolist():
        run.eliminate(core[i])
    return run.order() if len(core_order) else best
