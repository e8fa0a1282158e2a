"""Moves of whole trees of nodes at once, compiled by numba.

A random tree grows in the graph: a node joins where exactly one of its neighbours has. Given the choices of the nodes
around it, the cheapest choice of the whole tree follows by dynamic programming from its leaves; with a Gumbel noise of
the temperature on every strategy it is a sample of what the annealing looks for (for one node exactly; for trees see
G. Papandreou and A. Yuille, "Perturb-and-MAP random fields", ICCV 2011). Arguments as in `field_kernels`; `noise` are
quantiles of the Gumbel distribution, as many as a power of two.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from alpa_explore.iopddl.field_kernels import Around, Graph, give_way, put, random_below, random_unit
from alpa_explore.iopddl.profile_kernels import fullest
from alpa_explore.numerics.arrays import Flags, Floats, Ints
from alpa_explore.numerics.compiled import compiled


@compiled(fastmath={"nnan", "nsz", "contract"})
def _pass_up(rows: Floats, matrix: int, height: int, width: int, add: Floats, least: Floats, total: Floats) -> None:
    """total[i] += min_j (add[j] + rows[matrix + j · width + i]); `least` is for this function."""
    for i in range(width):
        least[i] = np.inf
    for j in range(height):
        start, more = matrix + j * width, add[j]
        for i in range(width):
            least[i] = min(least[i], rows[start + i] + more)
    for i in range(width):
        total[i] += least[i]


@compiled()
def grow(
    graph: Graph,
    movable: Flags,
    root: int,
    most: int,
    tree: Ints,
    link: Ints,
    parent: Ints,
    touching: Ints,
    ends: Ints,
    ends_of: Ints,
    state: Any,
) -> int:
    """Fill `tree` with up to `most` movable nodes, each after its parent; returns how many.

    The parent of tree[k] is tree[parent[k]], and link[k] is the place among the edges there of the one between them.
    touching[u] is zero for every node of the graph, before and after; `ends` and `ends_of` are for this function.
    """
    incident, other = graph[2], graph[3]
    tree[0], link[0], parent[0] = root, -1, -1
    count, open_ends = 1, 0
    touching[root] = 2
    while count < most:
        last = count - 1
        v = tree[last]
        for q in range(incident[v], incident[v + 1]):
            u = other[q]
            touching[u] += 1
            if touching[u] == 1 and movable[u] and open_ends < len(ends):
                ends[open_ends], ends_of[open_ends] = q, last
                open_ends += 1
        while open_ends > 0 and count == last + 1:
            at = random_below(state, open_ends)
            q, of = ends[at], ends_of[at]
            open_ends -= 1
            ends[at], ends_of[at] = ends[open_ends], ends_of[open_ends]
            u = other[q]
            if touching[u] == 1:
                tree[count], link[count], parent[count] = u, q, of
                touching[u] = 2
                count += 1
        if count == last + 1:
            break
    for k in range(count):
        v = tree[k]
        touching[v] = 0
        for q in range(incident[v], incident[v + 1]):
            touching[other[q]] = 0
    return count


@compiled()
def anneal_trees(
    around: Around, temperature: float, moves: int, limits: tuple[int, int, int], noise: Floats, state: Any
) -> None:
    """Move random trees of free nodes until `moves` nodes were in one; `limits` are (largest, longest, samples).

    A tree has at most `largest` nodes. One that does not keep the limit is put right by up to `longest` nodes that give
    way; where these cost more than the tree gains, by the rule of Metropolis, all is taken back. One that keeps it
    stays as it is sampled.
    """
    graph, _, profile, field, choices, free = around
    largest, longest, samples = limits
    nodes, to_own, to_other, rows = graph[0], graph[4], graph[5], graph[6]
    count = len(nodes) - 1
    movable = np.zeros(count, dtype=np.bool_)
    widest = 1
    for i in range(len(free)):
        movable[free[i]] = True
    for v in range(count):
        widest = max(widest, nodes[v + 1] - nodes[v])
    tree, link = np.empty(largest, dtype=np.int64), np.empty(largest, dtype=np.int64)
    parent = np.empty(largest, dtype=np.int64)
    touching = np.zeros(count, dtype=np.int64)
    ends, ends_of = np.empty(8 * largest, dtype=np.int64), np.empty(8 * largest, dtype=np.int64)
    noisy, plain = np.empty((largest, widest)), np.empty((largest, widest))
    least = np.empty(widest)
    new = np.empty(largest, dtype=np.int64)
    changed_node = np.empty(largest + longest, dtype=np.int64)
    changed_from = np.empty(largest + longest, dtype=np.int64)
    made = 0
    while made < moves:
        most = 1 + random_below(state, largest)
        root = free[random_below(state, len(free))]
        joined = grow(graph, movable, root, most, tree, link, parent, touching, ends, ends_of, state)
        made += joined
        for k in range(joined):
            v = tree[k]
            start, wide = nodes[v], nodes[v + 1] - nodes[v]
            for i in range(wide):
                plain[k, i] = field[start + i]
            if k > 0:
                p, q = parent[k], link[k]
                u = tree[p]
                far = nodes[u + 1] - nodes[u]
                own, others = to_other[q] + choices[u] * wide, to_own[q] + choices[v] * far
                for i in range(wide):
                    plain[k, i] -= rows[own + i]
                for i in range(far):
                    plain[p, i] -= rows[others + i]
        for k in range(joined):
            for i in range(nodes[tree[k] + 1] - nodes[tree[k]]):
                noisy[k, i] = plain[k, i] - temperature * noise[random_below(state, len(noise))]
        for k in range(joined - 1, 0, -1):
            v, u = tree[k], tree[parent[k]]
            wide, far = nodes[v + 1] - nodes[v], nodes[u + 1] - nodes[u]
            _pass_up(rows, to_own[link[k]], wide, far, noisy[k], least, noisy[parent[k]])
        change, changes = 0.0, 0
        for k in range(joined):
            v = tree[k]
            wide, best = nodes[v + 1] - nodes[v], 0
            if k > 0:
                above, q = tree[parent[k]], link[k]
                row, before = to_other[q] + new[parent[k]] * wide, to_other[q] + choices[above] * wide
                for i in range(wide):
                    noisy[k, i] += rows[row + i]
                for i in range(1, wide):
                    if noisy[k, i] < noisy[k, best]:
                        best = i
                change += rows[row + best] - rows[before + choices[v]]
            else:
                for i in range(1, wide):
                    if noisy[k, i] < noisy[k, best]:
                        best = i
            new[k] = best
            change += plain[k, best] - plain[k, choices[v]]
        for k in range(joined):
            v = tree[k]
            if new[k] != choices[v]:
                changed_node[changes], changed_from[changes] = v, choices[v]
                put(around, v, new[k])
                changes += 1
        if changes == 0 or fullest(profile)[1] <= 0.0:
            continue
        allowed = max(change, 0.0) - temperature * np.log(max(random_unit(state), 1e-12))
        most_changes, kept = changes + longest, False
        while not kept and changes < most_changes and change <= allowed:
            w, answer, lost = give_way(around, -1, samples, state)
            if w < 0:
                break
            change += lost
            changed_node[changes], changed_from[changes] = w, choices[w]
            put(around, w, answer)
            changes += 1
            kept = change <= allowed and fullest(profile)[1] <= 0.0
        if not kept:
            for i in range(changes - 1, -1, -1):
                put(around, changed_node[i], changed_from[i])
