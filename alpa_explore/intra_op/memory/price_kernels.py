"""Coordinate descent under a memory limit, compiled by numba; arrays as in `message_kernels` and `timeline`."""

from __future__ import annotations

from typing import Any

import numpy as np

from alpa_explore.intra_op.bounds.message_kernels import Flat, given_others
from alpa_explore.numerics.arrays import Floats, Ints
from alpa_explore.numerics.compiled import compiled


@compiled()
def descend_within(
    flat: Flat, choices: Ints, held: Floats, room: Floats, usage: Any, byte_price: float, rounds: int
) -> None:
    """Let each node take its best strategy at a penalty of `byte_price` for every byte above `room` at every time.

    `held` are the bytes at each time under `choices`; both are updated in place. `usage` are the arrays (of_node,
    begin, end, first, amounts) of a timeline (see `timeline`).
    """
    of_node, begin, end, first, amounts = usage
    nodes = flat[0]
    count = len(nodes) - 1
    largest = 1
    for v in range(count):
        largest = max(largest, nodes[v + 1] - nodes[v])
    total = np.empty(largest)
    for _ in range(rounds):
        changed = False
        for v in range(count):
            size = nodes[v + 1] - nodes[v]
            if size == 1:
                continue
            given_others(flat, choices, v, total)
            current = choices[v]
            overflows = False
            for s in range(of_node[v], of_node[v + 1]):
                for t in range(begin[s], end[s]):
                    if held[t] > room[t]:
                        overflows = True
                        break
            best, best_change = current, 0.0
            for k in range(size):
                change = total[k] - total[current]
                # Where nothing overflows only a strategy that is cheaper by itself can be better.
                if k == current or (not overflows and change >= best_change):
                    continue
                for s in range(of_node[v], of_node[v + 1]):
                    grown = amounts[first[s] + k] - amounts[first[s] + current]
                    if grown == 0.0:
                        continue
                    for t in range(begin[s], end[s]):
                        above = held[t] - room[t]
                        change += byte_price * (max(above + grown, 0.0) - max(above, 0.0))
                if change < best_change:
                    best, best_change = k, change
            if best != current:
                choices[v] = best
                changed = True
                for s in range(of_node[v], of_node[v + 1]):
                    for t in range(begin[s], end[s]):
                        held[t] += amounts[first[s] + best] - amounts[first[s] + current]
        if not changed:
            break
