"""In which order to eliminate the nodes of a problem, worked out on sizes alone before any table is made.

Eliminating v joins its neighbours N(v): the join has K_v · Π K_u entries, the table that stays Π K_u, and all of N(v)
become neighbours of each other. Two greedy rules are tried:

    smallest table first   Π_(u ∈ N(v)) K_u
    least fill first       Σ log (K_a · K_b) over the pairs in N(v) that are not neighbours yet

and when both are dear the second again with some noise, for the order with the fewest entries joined. The noise has a
fixed seed: the same problem always gets the same order.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import inf, log

CHEAP_JOINS = 2e7
"""An order with at most this many joined entries (about 0.02 s) is taken without looking for a better one."""
DEAR_JOINS = 1e9
"""Above this many, noise is tried."""
HOPELESS_JOINS = 1e11
"""Where the search for an order stops: wider ones would take many minutes, and finding them is slow too."""
RESTARTS = 12

Score = Callable[[int], float]


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
    return _greedy(sizes, edges, _smallest_table, None, CHEAP_JOINS)


def elimination_order(
    sizes: Sequence[int], edges: Sequence[tuple[int, int]], keep: frozenset[int] = frozenset()
) -> EliminationOrder:
    """A good order for nodes with `sizes` strategies; one with infinite figures and no nodes when all are hopeless.

    Nodes in `keep` are never taken: what is left in the end are tables over them.
    """
    hopeless = EliminationOrder(nodes=(), joined_entries=inf, largest_table=inf, table_entries=inf)
    best = _greedy(sizes, edges, _smallest_table, None, HOPELESS_JOINS, keep) or hopeless
    if best.joined_entries <= CHEAP_JOINS:
        return best
    best = _greedy(sizes, edges, _least_fill, None, min(best.joined_entries, HOPELESS_JOINS), keep) or best
    noise = random.Random(0)
    for _ in range(RESTARTS):
        if best.joined_entries <= DEAR_JOINS or best is hopeless:
            break
        best = _greedy(sizes, edges, _least_fill, noise, best.joined_entries, keep) or best
    return best


def _smallest_table(v: int, sizes: Sequence[int], neighbours: list[set[int]]) -> float:
    entries = 1.0
    for u in neighbours[v]:
        entries *= sizes[u]
    return entries


def _least_fill(v: int, sizes: Sequence[int], neighbours: list[set[int]]) -> float:
    fill = 0.0
    around = neighbours[v]
    for a in around:
        # Every missing pair is seen from both of its ends, and each end brings its own logarithm.
        missing = len(around) - 1 - len(around & neighbours[a])
        if missing:
            fill += missing * log(sizes[a])
    return fill


def _greedy(
    sizes: Sequence[int], edges: Sequence[tuple[int, int]],
    rule: Callable[[int, Sequence[int], list[set[int]]], float], noise: random.Random | None, give_up: float,
    keep: frozenset[int] = frozenset(),
) -> EliminationOrder | None:  # fmt: skip
    """Take the node with the least score until only `keep` is left; None once `give_up` entries are joined."""
    neighbours: list[set[int]] = [set() for _ in sizes]
    for a, b in edges:
        neighbours[a].add(b)
        neighbours[b].add(a)

    def score(v: int) -> float:
        value = rule(v, sizes, neighbours)
        return value * noise.uniform(0.7, 1.3) if noise else value

    current = [score(v) for v in range(len(sizes))]
    heap = [(value, v) for v, value in enumerate(current) if v not in keep]
    heapq.heapify(heap)
    done = [v in keep for v in range(len(sizes))]
    order: list[int] = []
    joined = kept = largest = 0.0
    while heap:
        value, v = heapq.heappop(heap)
        if done[v] or value != current[v]:
            continue
        around = neighbours[v]
        entries = _smallest_table(v, sizes, neighbours)
        joined += entries * sizes[v]
        kept += entries
        largest = max(largest, entries)
        if joined >= give_up:
            return None
        done[v] = True
        order.append(v)
        touched = set(around)
        for u in around:
            if rule is _least_fill:
                touched |= neighbours[u]
            neighbours[u] |= around
            neighbours[u] -= {u, v}
        for u in touched:
            if not done[u] and (new := score(u)) != current[u]:
                current[u] = new
                heapq.heappush(heap, (new, u))
    return EliminationOrder(nodes=tuple(order), joined_entries=joined, largest_table=largest, table_entries=kept)
