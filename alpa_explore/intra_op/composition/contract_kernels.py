"""The inner loops of contraction and composition, compiled by numba: minima of sums of tables."""

from __future__ import annotations

import numpy as np

from alpa_explore.numerics.arrays import Floats, Ints
from alpa_explore.numerics.compiled import compiled


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
) -> None:
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
def _make(code: Ints, begin: int, memory: Floats, starts: Ints) -> None:
    """One step of a program (`contract_program._code`): a table, row by row."""
    place, count, width = starts[code[begin]] + code[begin + 1], code[begin + 2], code[begin + 3]
    moving, parts, axes = code[begin + 4], code[begin + 5], code[begin + 6]
    lengths = code[begin + 7 : begin + 7 + axes]
    at, steps = np.empty(parts, dtype=np.int64), np.empty(parts, dtype=np.int64)
    first = begin + 7 + axes
    each = 3 + axes
    for q in range(parts):
        at[q] = starts[code[first + q * each]] + code[first + q * each + 1]
        steps[q] = code[first + q * each + 2]
    rows = 1
    for axis in range(axes):
        rows *= lengths[axis]
    counter = np.zeros(axes, dtype=np.int64)
    bases = np.empty(count)
    joined = np.empty(count * width if moving > 2 else 0)
    for row_number in range(rows):
        row = memory[place + row_number * width : place + (row_number + 1) * width]
        bases[:] = 0.0
        for q in range(moving, parts):
            for k in range(count):
                bases[k] += memory[at[q] + k * steps[q]]
        if moving == 0:
            row[:] = bases.min()
        else:
            row[:] = np.inf
            if moving == 1:
                _lower(row, bases, memory, at[0], steps[0])
            elif moving == 2:
                _lower_by_two(row, bases, memory, at[0], steps[0], memory, at[1], steps[1])
            else:
                for k in range(count):
                    here = joined[k * width : (k + 1) * width]
                    start = at[0] + k * steps[0]
                    here[:] = memory[start : start + width]
                    for q in range(1, moving):
                        start = at[q] + k * steps[q]
                        for j in range(width):
                            here[j] += memory[start + j]
                _lower(row, bases, joined, 0, width)
        for axis in range(axes - 1, -1, -1):
            counter[axis] += 1
            for q in range(parts):
                at[q] += code[first + q * each + 3 + axis]
            if counter[axis] < lengths[axis]:
                break
            counter[axis] = 0
            for q in range(parts):
                at[q] -= lengths[axis] * code[first + q * each + 3 + axis]


@compiled(fastmath={"nnan", "nsz", "contract"})
def run(
    code: Ints, begins: Ints, unpriced: int, memory: Floats, own: Floats, own_space: int, starts: Ints, step: Ints
) -> None:
    """All steps of a program at every price; `own` [prices, entries] are the costs that each price begins with."""
    for p in range(len(own)):
        here = starts + p * step
        memory[here[own_space] : here[own_space] + own.shape[1]] = own[p]
        for i in range(0 if p == 0 else unpriced, len(begins)):
            _make(code, begins[i], memory, here)


@compiled(fastmath={"nnan", "nsz", "contract"}, inline="always")
def _read(recipes: Ints, at: int, memory: Floats, starts: Ints, slices: Floats, choice: Ints) -> float:
    """The entry of a part at the choices of its nodes."""
    space, place = recipes[at], recipes[at + 1]
    for u in range(recipes[at + 2]):
        place += choice[recipes[at + 3 + 2 * u]] * recipes[at + 4 + 2 * u]
    found: float = slices[place] if space >= len(starts) else memory[starts[space] + place]
    return found


@compiled(fastmath={"nnan", "nsz", "contract"})
def _least(
    recipes: Ints, begins: Ints, made: int, points: int, memory: Floats, starts: Ints, slices: Floats, choice: Ints
) -> tuple[float, int]:
    """The least cost over the strategies of the node of a step at the choices of the others, and the first strategy
    that has it. A part that is made again at points is such a least cost too."""
    begin = begins[made]
    node, best, arrow = recipes[begin], np.inf, 0
    for k in range(recipes[begin + 1]):
        if node >= 0:
            choice[node] = k
        total = 0.0
        at = begin + 3
        for _ in range(recipes[begin + 2]):
            if recipes[at] == points:
                part, _ = _least(recipes, begins, recipes[at + 1], points, memory, starts, slices, choice)
                total += part
            else:
                total += _read(recipes, at, memory, starts, slices, choice)
            at += 3 + 2 * recipes[at + 2]
        if total < best:
            best, arrow = total, k
    return best, arrow


@compiled(fastmath={"nnan", "nsz", "contract"})
def go_back(
    recipes: Ints,
    begins: Ints,
    fillings: Ints,
    filling_begins: Ints,
    order: Ints,
    points: int,
    slices: Floats,
    memory: Floats,
    starts: Ints,
    step: Ints,
    prices: Ints,
    choices: Ints,
) -> None:
    """Fill in a best choice of each node that was minimised out, row by row, at prices[row]."""
    for row in range(len(choices)):
        choice, here = choices[row], starts + prices[row] * step
        for begin in filling_begins:
            made, place, axes = fillings[begin], fillings[begin + 1], fillings[begin + 2]
            entries = 1
            for axis in range(axes):
                entries *= fillings[begin + 4 + 2 * axis]
            for entry in range(entries):
                left = entry
                for axis in range(axes - 1, -1, -1):
                    size = fillings[begin + 4 + 2 * axis]
                    choice[fillings[begin + 3 + 2 * axis]] = left % size
                    left //= size
                slices[place + entry], _ = _least(recipes, begins, made, points, memory, here, slices, choice)
        for i in order:
            _, arrow = _least(recipes, begins, i, points, memory, here, slices, choice)
            choice[recipes[begins[i]]] = arrow


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
