"""The moves of the annealing under a memory limit, compiled by numba.

`flat` is the problem as in `bounds.message_kernels`. `usage` (a tuple, see `Segments`) has the memory of node v in the
segments segments[v]:segments[v+1]; segment s lasts from begin[s] until just before end[s] and takes
amounts[first[s] + k] under strategy k. `profile` is the tuple (above, shift, top): bytes above the limit at time t are
above[t] + shift[t >> BLOCK_BITS], and top[b] is their maximum in block b of times. A range of times is raised, and its
maximum found, in one step a block.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from alpa_explore.intra_op.bounds.message_kernels import Flat, given_others
from alpa_explore.numerics.arrays import Floats, Ints
from alpa_explore.numerics.compiled import compiled

BLOCK_BITS = 6
"""log2 of the times in a block. A constant of this file, because numba compiles it in."""

Usage = tuple[Any, ...]
"""(segments, begin, end, first, amounts, alive, alive_segment, segment_node)"""
Profile = tuple[Any, ...]
"""(above, shift, top)"""


@compiled()
def random_below(state: Any, bound: int) -> int:
    """A number from 0 to bound − 1 (xorshift64*; `state` is one uint64, updated in place)."""
    x = state[0]
    x ^= x >> np.uint64(12)
    x ^= x << np.uint64(25)
    x ^= x >> np.uint64(27)
    state[0] = x
    high = np.int64((x * np.uint64(2685821657736338717)) >> np.uint64(33))
    return int(high % bound)


@compiled()
def random_unit(state: Any) -> float:
    """A number in [0, 1)."""
    return random_below(state, 1 << 30) / float(1 << 30)


@compiled()
def raise_range(profile: Profile, begin: int, end: int, grown: float) -> None:
    """Add `grown` bytes at the times begin:end."""
    above, shift, top = profile
    low, high = begin >> BLOCK_BITS, (end - 1) >> BLOCK_BITS
    for b in range(low, high + 1):
        block_begin = b << BLOCK_BITS
        block_end = min(block_begin + (1 << BLOCK_BITS), len(above))
        if begin <= block_begin and block_end <= end:
            shift[b] += grown
            top[b] += grown
        else:
            for t in range(max(begin, block_begin), min(end, block_end)):
                above[t] += grown
            most = -np.inf
            for t in range(block_begin, block_end):
                most = max(most, above[t])
            top[b] = most + shift[b]


@compiled()
def range_fits(profile: Profile, begin: int, end: int, grown: float, tolerance: float) -> bool:
    """True when nothing in begin:end is above the limit after `grown` more bytes there."""
    above, shift, top = profile
    low, high = begin >> BLOCK_BITS, (end - 1) >> BLOCK_BITS
    for b in range(low, high + 1):
        if top[b] + grown <= tolerance:
            continue
        block_begin = b << BLOCK_BITS
        block_end = min(block_begin + (1 << BLOCK_BITS), len(above))
        if begin <= block_begin and block_end <= end:
            return False
        for t in range(max(begin, block_begin), min(end, block_end)):
            if above[t] + shift[b] + grown > tolerance:
                return False
    return True


@compiled()
def fits(usage: Usage, profile: Profile, v: int, old: int, new: int, tolerance: float) -> bool:
    """True when node v may go from strategy `old` to `new` without more bytes than allowed where its usage grows."""
    segments, begin, end, first, amounts = usage[0], usage[1], usage[2], usage[3], usage[4]
    for s in range(segments[v], segments[v + 1]):
        grown = amounts[first[s] + new] - amounts[first[s] + old]
        if grown > 0 and not range_fits(profile, begin[s], end[s], grown, tolerance):
            return False
    return True


@compiled()
def put(usage: Usage, profile: Profile, choices: Ints, v: int, new: int) -> None:
    """Let node v take strategy `new`."""
    segments, begin, end, first, amounts = usage[0], usage[1], usage[2], usage[3], usage[4]
    old = choices[v]
    for s in range(segments[v], segments[v + 1]):
        grown = amounts[first[s] + new] - amounts[first[s] + old]
        if grown != 0.0:
            raise_range(profile, begin[s], end[s], grown)
    choices[v] = new


@compiled()
def fullest(profile: Profile) -> tuple[int, float]:
    """The time with the most bytes above the limit, and their number."""
    above, shift, top = profile
    block = 0
    for b in range(1, len(top)):
        if top[b] > top[block]:
            block = b
    time = block << BLOCK_BITS
    for t in range(time, min(time + (1 << BLOCK_BITS), len(above))):
        if above[t] > above[time]:
            time = t
    return time, above[time] + shift[block]


@compiled()
def give_way(
    flat: Flat,
    usage: Usage,
    profile: Profile,
    choices: Ints,
    fixed: int,
    samples: int,
    state: Any,
    total: Floats,
) -> tuple[int, int, float]:
    """Of `samples` random nodes alive at the fullest time the one that frees most bytes there for its cost.

    Returns (node, strategy, change of cost); node −1 where none frees any. Nothing is changed. Bytes beyond the
    overflow are worth nothing.
    """
    _, begin, end, first, amounts, alive, alive_segment, segment_node = usage
    nodes = flat[0]
    time, overflow = fullest(profile)
    block = time >> BLOCK_BITS
    count = alive[block + 1] - alive[block]
    best_node, best_strategy, best_change, best_rate = -1, 0, 0.0, np.inf
    for _ in range(min(samples, 2 * count)):
        s = alive_segment[alive[block] + random_below(state, count)]
        v = segment_node[s]
        if v == fixed or not begin[s] <= time < end[s]:
            continue
        current = choices[v]
        given_others(flat, choices, v, total)
        for k in range(nodes[v + 1] - nodes[v]):
            freed = amounts[first[s] + current] - amounts[first[s] + k]
            if freed <= 0:
                continue
            change = total[k] - total[current]
            rate = change / min(freed, overflow) if change > 0 else change * min(freed, overflow)
            if rate < best_rate and fits(usage, profile, v, current, k, 0.0):
                best_node, best_strategy, best_change, best_rate = v, k, change, rate
    return best_node, best_strategy, best_change


@compiled()
def anneal(
    flat: Flat,
    usage: Usage,
    profile: Profile,
    choices: Ints,
    best: Ints,
    free: Ints,
    costs: Floats,
    temperature: float,
    tolerance: float,
    moves: int,
    chain_share: float,
    longest: int,
    samples: int,
    state: Any,
) -> None:
    """Make `moves` random moves of the nodes in `free` at a temperature; all choices visited stay within the limit.

    single    a node takes a strategy with the probabilities exp(−cost / temperature), where it fits
    chain     a node takes a random strategy; its neighbours, and theirs, answer with their best ones; where the limit
              is exceeded, nodes alive at the fullest time give way, those first that lose least cost a byte. The whole
              chain of at most `longest` changes is taken back unless the rule of Metropolis accepts it.

    costs[0] is the cost of `choices` and costs[1] that of `best`, the cheapest choice visited; both are kept up.
    """
    nodes, incident, other = flat[0], flat[6], flat[9]
    largest = 1
    for i in range(len(free)):
        largest = max(largest, nodes[free[i] + 1] - nodes[free[i]])
    total, weight = np.empty(largest), np.empty(largest)
    changed_node, changed_from = np.empty(longest, dtype=np.int64), np.empty(longest, dtype=np.int64)
    queue = np.empty(8 * longest, dtype=np.int64)
    queued = np.zeros(len(nodes) - 1, dtype=np.bool_)
    stale = costs[0] < costs[1]
    for _ in range(moves):
        v = free[random_below(state, len(free))]
        size = nodes[v + 1] - nodes[v]
        current = choices[v]
        given_others(flat, choices, v, total)
        if random_unit(state) >= chain_share:
            least = total[0]
            for k in range(1, size):
                least = min(least, total[k])
            summed = 0.0
            for k in range(size):
                weight[k] = np.exp((least - total[k]) / temperature)
                summed += weight[k]
            drawn = random_unit(state) * summed
            k = 0
            while k < size - 1 and drawn >= weight[k]:
                drawn -= weight[k]
                k += 1
            if k == current or not fits(usage, profile, v, current, k, tolerance):
                continue
            if costs[0] <= costs[1] and total[k] > total[current] and stale:
                for u in range(len(best)):
                    best[u] = choices[u]
                costs[1] = costs[0]
                stale = False
            costs[0] += total[k] - total[current]
            put(usage, profile, choices, v, k)
            stale = stale or costs[0] < costs[1]
            continue
        k = random_below(state, size)
        if k == current:
            continue
        if costs[0] < costs[1]:
            for u in range(len(best)):
                best[u] = choices[u]
            costs[1] = costs[0]
            stale = False
        change = total[k] - total[current]
        put(usage, profile, choices, v, k)
        changed_node[0], changed_from[0] = v, current
        changes, head, tail = 1, 0, 0
        allowed = -temperature * np.log(max(random_unit(state), 1e-12))
        legal = True
        for q in range(incident[v], incident[v + 1]):
            u = other[q]
            if u != v and not queued[u] and tail < len(queue) and nodes[u + 1] - nodes[u] > 1:
                queue[tail], queued[u] = u, True
                tail += 1
        while True:
            while head < tail and changes < longest:
                w = queue[head]
                head += 1
                queued[w] = False
                given_others(flat, choices, w, total)
                now, answer = choices[w], choices[w]
                for i in range(nodes[w + 1] - nodes[w]):
                    if total[i] < total[answer] and fits(usage, profile, w, now, i, tolerance):
                        answer = i
                if answer == now:
                    continue
                change += total[answer] - total[now]
                put(usage, profile, choices, w, answer)
                changed_node[changes], changed_from[changes] = w, now
                changes += 1
                for q in range(incident[w], incident[w + 1]):
                    u = other[q]
                    if u != v and not queued[u] and tail < len(queue) and nodes[u + 1] - nodes[u] > 1:
                        queue[tail], queued[u] = u, True
                        tail += 1
            if fullest(profile)[1] <= tolerance:
                break
            if changes >= longest or change > allowed:
                legal = False
                break
            w, answer, lost = give_way(flat, usage, profile, choices, v, samples, state, total)
            if w < 0:
                legal = False
                break
            change += lost
            changed_node[changes], changed_from[changes] = w, choices[w]
            put(usage, profile, choices, w, answer)
            changes += 1
        for i in range(head, tail):
            queued[queue[i]] = False
        if legal and change <= allowed:
            costs[0] += change
            stale = stale or costs[0] < costs[1]
        else:
            for i in range(changes - 1, -1, -1):
                put(usage, profile, choices, changed_node[i], changed_from[i])
    if costs[0] < costs[1]:
        for u in range(len(best)):
            best[u] = choices[u]
        costs[1] = costs[0]
