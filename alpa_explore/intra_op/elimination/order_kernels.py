"""The search for an elimination order, compiled by numba: the greedy rules with noisy scores, many times."""

from __future__ import annotations

import numpy as np

from alpa_explore.numerics.arrays import Flags, Floats, Ints
from alpa_explore.numerics.compiled import compiled


@compiled(inline="always")
def _score(v: int, fill: bool, adjacent: Flags, neighbours: Ints, degrees: Ints, sizes: Floats, logs: Floats) -> float:
    """The score of node v by the least fill (`fill`) or by the smallest table; see `elimination_order`."""
    if not fill:
        entries = 1.0
        for i in range(degrees[v]):
            entries *= sizes[neighbours[v, i]]
        return entries
    total = 0.0
    for i in range(degrees[v]):
        a = neighbours[v, i]
        for j in range(i):
            b = neighbours[v, j]
            if not adjacent[a, b]:
                total += logs[a] + logs[b]
    return total


@compiled()
def search(initial: Flags, sizes: Floats, logs: Floats, keep: Flags, tries: int, most: float, noise: float) -> Ints:
    """The order of the nodes not in `keep` with the fewest joined entries; empty when no try stays below `most`.

    `initial` [nodes, nodes] says which nodes are neighbours; `logs` are those of `sizes`. Scores are multiplied by
    factors in 1 ± `noise`.
    """
    count = len(sizes)
    best, best_order = most, np.empty(0, dtype=np.int64)
    adjacent, neighbours = np.empty((count, count), dtype=np.bool_), np.empty((count, count), dtype=np.int64)
    degrees, order, scores = np.empty(count, dtype=np.int64), np.empty(count, dtype=np.int64), np.empty(count)
    eliminated, touched = np.empty(count, dtype=np.bool_), np.empty(count, dtype=np.bool_)
    random = 1
    for attempt in range(tries):
        fill = attempt % 2 == 0
        for v in range(count):
            eliminated[v] = keep[v]
            for u in range(count):
                adjacent[v, u] = initial[v, u]
            touched[v] = True
        joined, steps = 0.0, 0
        while joined < best:
            for v in range(count):
                if touched[v]:
                    degrees[v] = 0
                    for u in range(count):
                        if adjacent[v, u]:
                            neighbours[v, degrees[v]] = u
                            degrees[v] += 1
            node, least = -1, np.inf
            for v in range(count):
                if eliminated[v]:
                    continue
                if touched[v]:
                    # A linear congruential generator: the same problem always gets the same order.
                    random = (random * 1103515245 + 12345) & 0x7FFFFFFF
                    factor = 1 + noise * (2 * random / 0x7FFFFFFF - 1)
                    scores[v] = factor * _score(v, fill, adjacent, neighbours, degrees, sizes, logs)
                if scores[v] < least:
                    node, least = v, scores[v]
            if node < 0:
                best, best_order = joined, order[:steps].copy()
                break
            order[steps] = node
            steps += 1
            eliminated[node] = True
            for v in range(count):
                touched[v] = False
            entries = sizes[node]
            for i in range(degrees[node]):
                a = neighbours[node, i]
                entries *= sizes[a]
                touched[a] = True
                adjacent[a, node] = False
                for j in range(i):
                    b = neighbours[node, j]
                    adjacent[a, b] = adjacent[b, a] = True
            joined += entries
            if fill:
                # New pairs of neighbours also lower the fill of other nodes.
                for i in range(degrees[node]):
                    a = neighbours[node, i]
                    for u in range(degrees[a]):
                        touched[neighbours[a, u]] = True
    return best_order
