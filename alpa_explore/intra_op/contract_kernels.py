"""The inner loops of contraction and composition, compiled by numba: minima of sums of tables."""

from __future__ import annotations

import numpy as np

from alpa_explore.compiled import compiled
from alpa_explore.intra_op.factor_graph import Ints
from alpa_explore.intra_op.problem import Floats


@compiled(fastmath={"nnan", "nsz", "contract"})
def _lower(row: Floats, bases: Floats, large: Floats, at: int, step: int) -> None:
    """row[j] = min over k of row[j] and bases[k] + large[at + k · step + j].

    Four k at a time: what is read and written of `row` is a fifth of the traffic then, not half, and the loop three to
    six times as fast.
    """
    width, count = len(row), len(bases)
    whole = count - count % 4
    for k in range(0, whole, 4):
        base0, base1, base2, base3 = bases[k], bases[k + 1], bases[k + 2], bases[k + 3]
        start = at + k * step
        large0, large1 = large[start : start + width], large[start + step : start + step + width]
        start += 2 * step
        large2, large3 = large[start : start + width], large[start + step : start + step + width]
        for j in range(width):
            two = min(base0 + large0[j], base1 + large1[j])
            others = min(base2 + large2[j], base3 + large3[j])
            row[j] = min(row[j], min(two, others))
    for k in range(whole, count):
        start = at + k * step
        for j in range(width):
            row[j] = min(row[j], bases[k] + large[start + j])


@compiled(fastmath={"nnan", "nsz", "contract"})
def _lower_by_two(
    row: Floats, bases: Floats, large: Floats, at: int, step: int, flat: Floats, first: int, flat_step: int
) -> None:  # fmt: skip
    """The same with flat[first + k · flat_step + j] added."""
    width, count = len(row), len(bases)
    whole = count - count % 4
    for k in range(0, whole, 4):
        base0, base1, base2, base3 = bases[k], bases[k + 1], bases[k + 2], bases[k + 3]
        start, begin = at + k * step, first + k * flat_step
        large0, large1 = large[start : start + width], large[start + step : start + step + width]
        flat0, flat1 = flat[begin : begin + width], flat[begin + flat_step : begin + flat_step + width]
        start, begin = start + 2 * step, begin + 2 * flat_step
        large2, large3 = large[start : start + width], large[start + step : start + step + width]
        flat2, flat3 = flat[begin : begin + width], flat[begin + flat_step : begin + flat_step + width]
        for j in range(width):
            two = min(base0 + large0[j] + flat0[j], base1 + large1[j] + flat1[j])
            others = min(base2 + large2[j] + flat2[j], base3 + large3[j] + flat3[j])
            row[j] = min(row[j], min(two, others))
    for k in range(whole, count):
        start, begin = at + k * step, first + k * flat_step
        for j in range(width):
            row[j] = min(row[j], bases[k] + large[start + j] + flat[begin + j])


@compiled(fastmath={"nnan", "nsz", "contract"})
def minimise(
    large: Floats, large_starts: Ints, large_step: int, flat: Floats, starts: Ints, steps: Ints, moving: int,
    count: int, found: Floats,
) -> None:  # fmt: skip
    """found[o, j] = min over k < `count` of large[large_starts[o] + k · large_step + j]
    + Σ_q flat[starts[q, o] + k · steps[q] + (j where q < `moving`)].
    """
    width = found.shape[1]
    bases = np.empty(count)
    joined = np.empty(count * width if moving > 1 else 0)
    for o in range(len(found)):
        row = found[o]
        row[:] = np.inf
        bases[:] = 0.0
        for q in range(moving, len(steps)):
            for k in range(count):
                bases[k] += flat[starts[q, o] + k * steps[q]]
        if moving == 0:
            _lower(row, bases, large, large_starts[o], large_step)
            continue
        if moving == 1:
            _lower_by_two(row, bases, large, large_starts[o], large_step, flat, starts[0, o], steps[0])
            continue
        for k in range(count):
            here = joined[k * width : (k + 1) * width]
            at = large_starts[o] + k * large_step
            here[:] = large[at : at + width]
            for q in range(moving):
                start = starts[q, o] + k * steps[q]
                for j in range(width):
                    here[j] += flat[start + j]
        _lower(row, bases, joined, 0, width)


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
def retreat(reached: Floats, table: Floats, found: Floats, arrows: Ints) -> None:
    """The same the other way: found[p, i] = min over j of table[p, i, j] + reached[p, j]."""
    prices, states, others = table.shape
    for p in range(prices):
        for i in range(states):
            best, arrow = np.inf, 0
            for j in range(others):
                total = reached[p, j] + table[p, i, j]
                if total < best:
                    best, arrow = total, j
            found[p, i] = best
            arrows[p, i] = arrow


@compiled(fastmath={"nnan", "nsz", "contract"})
def multiply(one: Floats, other: Floats, found: Floats) -> None:
    """found[p, i, j] = min over k of one[p, i, k] + other[p, k, j]."""
    for p in range(len(found)):
        table = other[p].ravel()
        for i in range(one.shape[1]):
            found[p, i, :] = np.inf
            _lower(found[p, i], one[p, i], table, 0, other.shape[2])
