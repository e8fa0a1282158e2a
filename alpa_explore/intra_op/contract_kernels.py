"""The inner loops of contraction and composition, compiled by numba: minima of sums of tables."""

from __future__ import annotations

import numpy as np

from alpa_explore.compiled import compiled
from alpa_explore.intra_op.factor_graph import Ints
from alpa_explore.intra_op.problem import Floats

BLOCK = 64
"""Rows of the result that are worked on together: what one strategy reads of a table for them is contiguous."""


@compiled(fastmath={"nnan", "nsz", "contract"})
def minimise(
    large: Floats, large_starts: Ints, large_step: int, flat: Floats, starts: Ints, steps: Ints, moving: int,
    count: int, found: Floats,
) -> None:  # fmt: skip
    """found[o, j] = min over k < `count` of large[large_starts[o] + k · large_step + j]
    + Σ_q flat[starts[q, o] + k · steps[q] + (j where q < `moving`)].
    """
    outer, width = found.shape
    for block in range(0, outer, BLOCK):
        for o in range(block, min(block + BLOCK, outer)):
            for j in range(width):
                found[o, j] = np.inf
        for k in range(count):
            for o in range(block, min(block + BLOCK, outer)):
                base = 0.0
                for q in range(moving, len(steps)):
                    base += flat[starts[q, o] + k * steps[q]]
                at = large_starts[o] + k * large_step
                if moving == 0:
                    for j in range(width):
                        found[o, j] = min(found[o, j], base + large[at + j])
                    continue
                first = starts[0, o] + k * steps[0]
                if moving == 1:
                    for j in range(width):
                        found[o, j] = min(found[o, j], base + large[at + j] + flat[first + j])
                    continue
                for j in range(width):
                    total = base + large[at + j]
                    for q in range(moving):
                        total += flat[starts[q, o] + k * steps[q] + j]
                    found[o, j] = min(found[o, j], total)


@compiled(fastmath={"nnan", "nsz", "contract"})
def advance(reached: Floats, table: Floats, found: Floats, arrows: Ints) -> None:
    """found[p, j] = min over i of reached[p, i] + table[p, i, j], and the first i that has it."""
    prices, states, others = table.shape
    for p in range(prices):
        for j in range(others):
            found[p, j] = np.inf
            arrows[p, j] = 0
        for i in range(states):
            base = reached[p, i]
            if base == np.inf:
                continue
            for j in range(others):
                total = base + table[p, i, j]
                if total < found[p, j]:
                    found[p, j] = total
                    arrows[p, j] = i


@compiled(fastmath={"nnan", "nsz", "contract"})
def multiply(one: Floats, other: Floats, found: Floats) -> None:
    """found[p, i, j] = min over k of one[p, i, k] + other[p, k, j]."""
    prices, states, others = other.shape
    for p in range(prices):
        for i in range(one.shape[1]):
            for j in range(others):
                found[p, i, j] = np.inf
            for k in range(states):
                base = one[p, i, k]
                if base < np.inf:
                    for j in range(others):
                        found[p, i, j] = min(found[p, i, j], base + other[p, k, j])
