"""The cost of every strategy given the choices of the other nodes, kept up under moves; compiled by numba.

Node v has the entries nodes[v]:nodes[v+1] of `field`: the cost of each of its strategies, its memory at the present
prices and its edges included, given what its neighbours choose. A move is then decided by a look at the entries of one
node, and only what changes is passed on to its neighbours.

`graph` (a tuple, see `graph`) has the edges at node v as the entries incident[v]:incident[v+1] of `other` (the node at
the other end), `to_own` and `to_other`: at rows[to_other[q] + i · K_u] begins what strategy i of v adds to the field of
u = other[q], and at rows[to_own[q] + j · K_v] what strategy j of u adds to the field of v.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from alpa_explore.iopddl.profile_kernels import BLOCK_BITS, Profile, Usage, fits, fullest, hold
from alpa_explore.numerics.arrays import Floats, Ints
from alpa_explore.numerics.compiled import compiled

Graph = tuple[Any, ...]
"""(nodes, costs, incident, other, to_own, to_other, rows)"""
Around = tuple[Graph, Usage, Profile, Floats, Ints, Ints]
"""(graph, usage, profile, field, choices, the nodes with several strategies): what moves read and keep up."""


@compiled()
def random_below(state: Any, bound: int) -> int:
    """A number from 0 to bound − 1 (xorshift64*; state[0] is updated in place)."""
    x = state[0]
    x ^= x >> np.uint64(12)
    x ^= x << np.uint64(25)
    x ^= x >> np.uint64(27)
    state[0] = x
    high = np.int64((x * np.uint64(2685821657736338717)) >> np.uint64(33))
    return int((high * bound) >> 31)


@compiled()
def random_unit(state: Any) -> float:
    """A number in [0, 1)."""
    return random_below(state, 1 << 30) / float(1 << 30)


@compiled()
def fill(graph: Graph, usage: Usage, price_until: Floats, choices: Ints, field: Floats) -> None:
    """The field of all nodes at prices of memory whose running sum is `price_until`."""
    nodes, costs, incident, other, to_own, _, rows = graph
    segments, begin, end, first, amounts = usage[0], usage[1], usage[2], usage[3], usage[4]
    for v in range(len(nodes) - 1):
        start, size = nodes[v], nodes[v + 1] - nodes[v]
        for k in range(size):
            field[start + k] = costs[start + k]
        for s in range(segments[v], segments[v + 1]):
            price = price_until[end[s]] - price_until[begin[s]]
            for k in range(size):
                field[start + k] += price * amounts[first[s] + k]
        for q in range(incident[v], incident[v + 1]):
            row = to_own[q] + choices[other[q]] * size
            for k in range(size):
                field[start + k] += rows[row + k]


@compiled()
def cost_of(graph: Graph, choices: Ints, ceiling: float) -> tuple[float, bool]:
    """The cost of `choices`, and whether no entry in it reaches `ceiling`."""
    nodes, costs, incident, other, to_own, _, rows = graph
    total, twice, legal = 0.0, 0.0, True
    for v in range(len(nodes) - 1):
        size, choice = nodes[v + 1] - nodes[v], choices[v]
        entry = costs[nodes[v] + choice]
        legal = legal and entry < ceiling
        total += entry
        for q in range(incident[v], incident[v + 1]):
            entry = rows[to_own[q] + choices[other[q]] * size + choice]
            legal = legal and entry < ceiling
            twice += entry
    return total + twice / 2, legal


@compiled()
def put(around: Around, v: int, new: int) -> None:
    """Let node v take strategy `new`."""
    graph, usage, profile, field, choices, _ = around
    nodes, _, incident, other, _, to_other, rows = graph
    old = choices[v]
    hold(usage, profile, v, old, new)
    choices[v] = new
    for q in range(incident[v], incident[v + 1]):
        u = other[q]
        start, width = nodes[u], nodes[u + 1] - nodes[u]
        now, before = to_other[q] + new * width, to_other[q] + old * width
        for k in range(width):
            field[start + k] += rows[now + k] - rows[before + k]


@compiled()
def give_way(around: Around, fixed: int, samples: int, state: Any) -> tuple[int, int, float]:
    """Of `samples` random nodes alive at the fullest time the one that frees most bytes there for its cost.

    Returns (node, strategy, change of cost); node −1 where none frees any. Nothing is changed. Bytes beyond the
    overflow are worth nothing.
    """
    graph, usage, profile, field, choices, _ = around
    _, begin, end, first, amounts, alive, alive_segment, segment_node = usage
    nodes = graph[0]
    time, overflow = fullest(profile)
    block = time >> BLOCK_BITS
    count = alive[block + 1] - alive[block]
    best_node, best_strategy, best_change, best_rate = -1, 0, 0.0, np.inf
    for _ in range(min(samples, 2 * count)):
        s = alive_segment[alive[block] + random_below(state, count)]
        v = segment_node[s]
        if v == fixed or not begin[s] <= time < end[s]:
            continue
        current, start = choices[v], nodes[v]
        for k in range(nodes[v + 1] - start):
            freed = amounts[first[s] + current] - amounts[first[s] + k]
            if freed <= 0:
                continue
            change = field[start + k] - field[start + current]
            rate = change / min(freed, overflow) if change > 0 else change * min(freed, overflow)
            if rate < best_rate and fits(usage, profile, v, current, k):
                best_node, best_strategy, best_change, best_rate = v, k, change, rate
    return best_node, best_strategy, best_change
