"""The moves of single nodes and of chains of nodes, compiled by numba. Arguments as in `field_kernels`.

No move exceeds the limit. state[0] is the random number, state[1] the place in `free` of the node that moves next.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from alpa_explore.iopddl.field_kernels import Around, give_way, put, random_below, random_unit
from alpa_explore.iopddl.profile_kernels import fits, fullest
from alpa_explore.numerics.compiled import compiled

NEGLIGIBLE = 25.0
"""A strategy dearer by so many temperatures is not drawn. A constant of this file, because numba compiles it in."""


@compiled()
def anneal(around: Around, temperature: float, moves: int, state: Any) -> None:
    """Let `moves` nodes of `free`, one after the other, draw a strategy with the probabilities exp(−cost /
    temperature), where it fits."""
    graph, usage, profile, field, choices, free = around
    nodes = graph[0]
    widest = 1
    for i in range(len(free)):
        widest = max(widest, nodes[free[i] + 1] - nodes[free[i]])
    weight = np.empty(widest)
    place = int(state[1]) % len(free)
    for _ in range(moves):
        v = free[place]
        place += 1
        if place == len(free):
            place = 0
        start, size = nodes[v], nodes[v + 1] - nodes[v]
        least = field[start]
        for k in range(1, size):
            least = min(least, field[start + k])
        most = least + NEGLIGIBLE * temperature
        summed = 0.0
        for k in range(size):
            weight[k] = 0.0
            if field[start + k] < most:
                weight[k] = np.exp((least - field[start + k]) / temperature)
            summed += weight[k]
        current = choices[v]
        if weight[current] == summed:
            continue
        drawn = random_unit(state) * summed
        k = 0
        while k < size - 1 and drawn >= weight[k]:
            drawn -= weight[k]
            k += 1
        if k != current and fits(usage, profile, v, current, k):
            put(around, v, k)
    state[1] = np.uint64(place)


@compiled()
def anneal_chains(around: Around, temperature: float, moves: int, longest: int, samples: int, state: Any) -> None:
    """Make `moves` chains of at most `longest` changes each; all choices visited stay within the limit.

    A node takes a random strategy; its neighbours, and theirs, answer with their best ones; where the limit is
    exceeded, nodes alive at the fullest time give way, those first that lose least cost a byte. The whole chain is
    taken back unless the rule of Metropolis accepts it.
    """
    graph, usage, profile, field, choices, free = around
    nodes, incident, other = graph[0], graph[2], graph[3]
    changed_node, changed_from = np.empty(longest, dtype=np.int64), np.empty(longest, dtype=np.int64)
    queue = np.empty(8 * longest, dtype=np.int64)
    queued = np.zeros(len(nodes) - 1, dtype=np.bool_)
    for _ in range(moves):
        v = free[random_below(state, len(free))]
        current = choices[v]
        k = random_below(state, nodes[v + 1] - nodes[v])
        if k == current:
            continue
        change = field[nodes[v] + k] - field[nodes[v] + current]
        put(around, v, k)
        changed_node[0], changed_from[0] = v, current
        changes, head, tail = 1, 0, 0
        allowed = -temperature * np.log(max(random_unit(state), 1e-12))
        legal = True
        for q in range(incident[v], incident[v + 1]):
            u = other[q]
            if not queued[u] and tail < len(queue):
                queue[tail], queued[u] = u, True
                tail += 1
        while True:
            while head < tail and changes < longest:
                w = queue[head]
                head += 1
                queued[w] = False
                start, now, answer = nodes[w], choices[w], choices[w]
                for i in range(nodes[w + 1] - start):
                    if field[start + i] < field[start + answer] and fits(usage, profile, w, now, i):
                        answer = i
                if answer == now:
                    continue
                change += field[start + answer] - field[start + now]
                put(around, w, answer)
                changed_node[changes], changed_from[changes] = w, now
                changes += 1
                for q in range(incident[w], incident[w + 1]):
                    u = other[q]
                    if u != v and not queued[u] and tail < len(queue):
                        queue[tail], queued[u] = u, True
                        tail += 1
            if fullest(profile)[1] <= 0.0:
                break
            if changes >= longest or change > allowed:
                legal = False
                break
            w, answer, lost = give_way(around, v, samples, state)
            if w < 0:
                legal = False
                break
            change += lost
            changed_node[changes], changed_from[changes] = w, choices[w]
            put(around, w, answer)
            changes += 1
        for i in range(head, tail):
            queued[queue[i]] = False
        if not legal or change > allowed:
            for i in range(changes - 1, -1, -1):
                put(around, changed_node[i], changed_from[i])
