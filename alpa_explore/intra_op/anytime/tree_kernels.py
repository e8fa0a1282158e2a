"""Moves of whole trees of nodes at once, compiled by numba.

A random tree grows in the graph: a node joins where exactly one of its neighbours has. Given the choices of the nodes
around it, the cheapest choice of the whole tree follows by dynamic programming from its leaves; with a Gumbel noise of
the temperature on every strategy it is a sample of what the annealing looks for (for one node exactly; for trees see
G. Papandreou and A. Yuille, "Perturb-and-MAP random fields", ICCV 2011). `flat`, `usage` and `profile` are those of
`anneal_kernels`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from alpa_explore.intra_op.anytime.anneal_kernels import (
    Profile,
    Usage,
    fullest,
    give_way,
    put,
    random_below,
    random_unit,
)
from alpa_explore.intra_op.bounds.message_kernels import Flat
from alpa_explore.numerics.arrays import Flags, Floats, Ints
from alpa_explore.numerics.compiled import compiled


@compiled(fastmath={"nnan", "nsz", "contract"})
def _least_of_rows(matrix: Floats, height: int, width: int, add: Floats, total: Floats) -> None:
    """total[i] += min_j (matrix[i, j] + add[j])."""
    for i in range(height):
        start, least = i * width, np.inf
        for j in range(width):
            least = min(least, matrix[start + j] + add[j])
        total[i] += least


@compiled(fastmath={"nnan", "nsz", "contract"})
def _least_of_columns(matrix: Floats, height: int, width: int, add: Floats, total: Floats, least: Floats) -> None:
    """total[j] += min_i (matrix[i, j] + add[i])."""
    for j in range(width):
        least[j] = np.inf
    for i in range(height):
        start, more = i * width, add[i]
        for j in range(width):
            least[j] = min(least[j], matrix[start + j] + more)
    for j in range(width):
        total[j] += least[j]


@compiled()
def grow(
    flat: Flat,
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

    The parent of tree[k] is tree[parent[k]], and link[k] is the entry of `incident` there of the edge between them.
    touching[u] is zero for every node of the graph, before and after; `ends` and `ends_of` are for this function.
    """
    incident, other = flat[6], flat[9]
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
    flat: Flat,
    usage: Usage,
    profile: Profile,
    choices: Ints,
    free: Ints,
    temperature: float,
    tolerance: float,
    moves: int,
    largest: int,
    longest: int,
    samples: int,
    state: Any,
) -> None:
    """Move random trees of at most `largest` nodes in `free` until `moves` nodes were in one.

    A tree that does not keep the limit is put right by up to `longest` nodes that give way; where these cost more than
    the tree gains, by the rule of Metropolis, all is taken back. A tree that keeps it stays as it is sampled.
    """
    nodes, costs, tables, matrices = flat[0], flat[1], flat[2], flat[3]
    incident, edge_at, is_a, other = flat[6], flat[7], flat[8], flat[9]
    count = len(nodes) - 1
    movable = np.zeros(count, dtype=np.bool_)
    widest = 1
    for i in range(len(free)):
        movable[free[i]] = True
    for v in range(count):
        widest = max(widest, nodes[v + 1] - nodes[v])
    tree, link = np.empty(largest, dtype=np.int64), np.empty(largest, dtype=np.int64)
    parent = np.empty(largest, dtype=np.int64)
    touching, in_tree = np.zeros(count, dtype=np.int64), np.zeros(count, dtype=np.bool_)
    ends, ends_of = np.empty(8 * largest, dtype=np.int64), np.empty(8 * largest, dtype=np.int64)
    field, plain = np.empty((largest, widest)), np.empty((largest, widest))
    least, total = np.empty(widest), np.empty(widest)
    new = np.empty(largest, dtype=np.int64)
    changed_node = np.empty(largest + longest, dtype=np.int64)
    changed_from = np.empty(largest + longest, dtype=np.int64)
    made = 0
    while made < moves:
        most = 1 + random_below(state, largest)
        root = free[random_below(state, len(free))]
        joined = grow(flat, movable, root, most, tree, link, parent, touching, ends, ends_of, state)
        made += joined
        for k in range(joined):
            in_tree[tree[k]] = True
        for k in range(joined):
            v = tree[k]
            wide = nodes[v + 1] - nodes[v]
            for i in range(wide):
                plain[k, i] = costs[nodes[v] + i]
            for q in range(incident[v], incident[v + 1]):
                u = other[q]
                if in_tree[u]:
                    continue
                table, far = tables[edge_at[q]], nodes[u + 1] - nodes[u]
                if is_a[q]:
                    for i in range(wide):
                        plain[k, i] += matrices[table + i * far + choices[u]]
                else:
                    for i in range(wide):
                        plain[k, i] += matrices[table + choices[u] * wide + i]
            for i in range(wide):
                unit = (random_below(state, 1 << 30) + 0.5) / float(1 << 30)
                field[k, i] = plain[k, i] + temperature * np.log(-np.log(unit))
        for k in range(joined):
            in_tree[tree[k]] = False
        for k in range(joined - 1, 0, -1):
            v, p, q = tree[k], parent[k], link[k]
            wide, far = nodes[v + 1] - nodes[v], nodes[tree[p] + 1] - nodes[tree[p]]
            matrix = matrices[tables[edge_at[q]] : tables[edge_at[q] + 1]]
            if is_a[q]:
                _least_of_rows(matrix, far, wide, field[k], field[p])
            else:
                _least_of_columns(matrix, wide, far, field[k], field[p], least)
        change, changes = 0.0, 0
        for k in range(joined):
            v, p, q = tree[k], parent[k], link[k]
            wide = nodes[v + 1] - nodes[v]
            for i in range(wide):
                total[i] = 0.0
            if k > 0:
                table, far = tables[edge_at[q]], nodes[tree[p] + 1] - nodes[tree[p]]
                for i in range(wide):
                    total[i] = matrices[table + new[p] * wide + i] if is_a[q] else matrices[table + i * far + new[p]]
                before = choices[tree[p]] * wide + choices[v] if is_a[q] else choices[v] * far + choices[tree[p]]
                change -= matrices[table + before]
            best = 0
            for i in range(1, wide):
                if total[i] + field[k, i] < total[best] + field[k, best]:
                    best = i
            new[k] = best
            change += total[best] + plain[k, best] - plain[k, choices[v]]
        for k in range(joined):
            if new[k] != choices[tree[k]]:
                changed_node[changes], changed_from[changes] = tree[k], choices[tree[k]]
                put(usage, profile, choices, tree[k], new[k])
                changes += 1
        if changes == 0 or tolerance == np.inf or fullest(profile)[1] <= tolerance:
            continue
        allowed = max(change, 0.0) - temperature * np.log(max(random_unit(state), 1e-12))
        most_changes, kept = changes + longest, False
        while not kept and changes < most_changes and change <= allowed:
            w, answer, lost = give_way(flat, usage, profile, choices, -1, samples, state, total)
            if w < 0:
                break
            change += lost
            changed_node[changes], changed_from[changes] = w, choices[w]
            put(usage, profile, choices, w, answer)
            changes += 1
            kept = change <= allowed and fullest(profile)[1] <= tolerance
        if not kept:
            for i in range(changes - 1, -1, -1):
                put(usage, profile, choices, changed_node[i], changed_from[i])
