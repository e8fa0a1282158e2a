"""Coordinate descent under a memory limit, compiled by numba; arrays as in `message_kernels` and `price_search`."""

from __future__ import annotations

import numpy as np

from alpa_explore.intra_op.bounds.message_kernels import Flat, given_others
from alpa_explore.numerics.arrays import Floats, Ints
from alpa_explore.numerics.compiled import compiled


@compiled()
def descend_within(
    flat: Flat,
    choices: Ints,
    held: Floats,
    room: Floats,
    items_of: Ints,
    item_at: Ints,
    start: Ints,
    end: Ints,
    first: Ints,
    usage: Floats,
    byte_price: float,
    rounds: int,
) -> None:
    """Let each node take the strategy that is best with `byte_price` for every byte above `room` at every time.

    `held` are the bytes at each time under `choices`; both are changed. Item i is alive at the times start[i]:end[i]
    and takes usage[first[i] + k]; the items of node v are item_at[items_of[v]:items_of[v + 1]].
    """
    nodes = flat[0]
    count = len(nodes) - 1
    largest = 1
    for v in range(count):
        largest = max(largest, nodes[v + 1] - nodes[v])
    total = np.empty(largest)
    for _ in range(rounds):
        moved = False
        for v in range(count):
            size = nodes[v + 1] - nodes[v]
            if size == 1:
                continue
            given_others(flat, choices, v, total)
            now = choices[v]
            over = False
            for q in range(items_of[v], items_of[v + 1]):
                for t in range(start[item_at[q]], end[item_at[q]]):
                    if held[t] > room[t]:
                        over = True
                        break
            best, gain = now, 0.0
            for k in range(size):
                more = total[k] - total[now]
                # Where nothing overflows only what is cheaper by itself can be better.
                if k == now or (not over and more >= gain):
                    continue
                for q in range(items_of[v], items_of[v + 1]):
                    i = item_at[q]
                    grown = usage[first[i] + k] - usage[first[i] + now]
                    if grown == 0.0:
                        continue
                    for t in range(start[i], end[i]):
                        above = held[t] - room[t]
                        more += byte_price * (max(above + grown, 0.0) - max(above, 0.0))
                if more < gain:
                    best, gain = k, more
            if best != now:
                choices[v] = best
                moved = True
                for q in range(items_of[v], items_of[v + 1]):
                    i = item_at[q]
                    for t in range(start[i], end[i]):
                        held[t] += usage[first[i] + best] - usage[first[i] + now]
        if not moved:
            break
