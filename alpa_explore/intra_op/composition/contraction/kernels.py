"""The inner loops of contraction and of min-plus products, compiled by numba: minima of sums of tables.

They stand in one file because numba's cache on disk does not notice changes of functions in other files, as of the
loops of `numerics.vectors`.
"""

from __future__ import annotations

import numpy as np

from alpa_explore.numerics.arrays import Flags, Floats, Ints
from alpa_explore.numerics.compiled import compiled
from alpa_explore.numerics.vectors import LeastSums

_least_of_32, _least_of_16, _least_of_8, _least_of_4 = (LeastSums(columns) for columns in (32, 16, 8, 4))


@compiled(fastmath={"nnan", "nsz", "contract"})
def minimise_into(
    row: Floats, bases: Floats, tables: tuple[Floats, ...], at: tuple[int, ...], steps: tuple[int, ...]
) -> None:
    """row[j] = min over k of row[j] and bases[k] + tables[0][at[0] + k · steps[0] + j] + tables[1][…] + ….

    Compiled for each number of tables.
    """
    width, j = len(row), 0
    while j + 32 <= width:
        _least_of_32(row, j, bases, tables, at, steps)
        j += 32
    if j + 16 <= width:
        _least_of_16(row, j, bases, tables, at, steps)
        j += 16
    if j + 8 <= width:
        _least_of_8(row, j, bases, tables, at, steps)
        j += 8
    while j < width and width >= 4:
        _least_of_4(row, min(j, width - 4), bases, tables, at, steps)  # some columns a second time
        j += 4
    while j < width:
        for k in range(len(bases)):
            total = bases[k]
            for t in range(len(tables)):
                total += tables[t][at[t] + k * steps[t] + j]
            row[j] = min(row[j], total)
        j += 1


@compiled(fastmath={"nnan", "nsz", "contract"}, inline="always")
def _make_table(code: Ints, begin: int, memory: Floats, offsets: Ints) -> None:
    """One step of a program (format: `program._encode_step`): a table, row by row."""
    place, count, width = offsets[code[begin]] + code[begin + 1], code[begin + 2], code[begin + 3]
    row_operands, operands, axes = code[begin + 4], code[begin + 5], code[begin + 6]
    lengths = code[begin + 7 : begin + 7 + axes]
    at, steps = np.empty(operands, dtype=np.int64), np.empty(operands, dtype=np.int64)
    first = begin + 7 + axes
    each = 3 + axes
    for q in range(operands):
        at[q] = offsets[code[first + q * each]] + code[first + q * each + 1]
        steps[q] = code[first + q * each + 2]
    rows = 1
    for axis in range(axes):
        rows *= lengths[axis]
    counter = np.zeros(axes, dtype=np.int64)
    bases, steady = np.empty(count), np.empty(count)
    """The sums of the operands without the row axis, and of those of them that are the same along the last axis."""
    summed = np.empty(count * width if row_operands > 3 else 0)
    for row_number in range(rows):
        row = memory[place + row_number * width : place + (row_number + 1) * width]
        if axes == 0 or counter[axes - 1] == 0:
            for k in range(count):
                steady[k] = 0.0
            for q in range(row_operands, operands):
                if axes == 0 or code[first + q * each + 2 + axes] == 0:
                    for k in range(count):
                        steady[k] += memory[at[q] + k * steps[q]]
        for k in range(count):
            bases[k] = steady[k]
        for q in range(row_operands, operands):
            if axes > 0 and code[first + q * each + 2 + axes] != 0:
                for k in range(count):
                    bases[k] += memory[at[q] + k * steps[q]]
        if row_operands == 0:
            least = np.inf
            for k in range(count):
                least = min(least, bases[k])
            for j in range(width):
                row[j] = least
        else:
            for j in range(width):
                row[j] = np.inf
            if row_operands == 1:
                minimise_into(row, bases, (memory,), (at[0],), (steps[0],))
            elif row_operands == 2:
                minimise_into(row, bases, (memory, memory), (at[0], at[1]), (steps[0], steps[1]))
            elif row_operands == 3:
                three, begins = (memory, memory, memory), (at[0], at[1], at[2])
                minimise_into(row, bases, three, begins, (steps[0], steps[1], steps[2]))
            else:
                for k in range(count):
                    row_sum = summed[k * width : (k + 1) * width]
                    start = at[0] + k * steps[0]
                    for j in range(width):
                        row_sum[j] = memory[start + j]
                    for q in range(1, row_operands):
                        start = at[q] + k * steps[q]
                        for j in range(width):
                            row_sum[j] += memory[start + j]
                minimise_into(row, bases, (summed,), (0 * width,), (width,))  # not a literal: one version for all calls
        for axis in range(axes - 1, -1, -1):
            counter[axis] += 1
            for q in range(operands):
                at[q] += code[first + q * each + 3 + axis]
            if counter[axis] < lengths[axis]:
                break
            counter[axis] = 0
            for q in range(operands):
                at[q] -= lengths[axis] * code[first + q * each + 3 + axis]


@compiled(fastmath={"nnan", "nsz", "contract"})
def run_program(
    code: Ints,
    code_begins: Ints,
    common_steps: int,
    memory: Floats,
    priced_costs: Floats,
    priced_space: int,
    offsets: Ints,
    price_step: Ints,
) -> None:
    """All steps of a program at every price; `priced_costs` [prices, entries] are copied in before each price, and the
    first `common_steps` steps run at the first price only."""
    for p in range(len(priced_costs)):
        at_price = offsets + p * price_step
        first = at_price[priced_space]
        for entry in range(priced_costs.shape[1]):
            memory[first + entry] = priced_costs[p, entry]
        for i in range(0 if p == 0 else common_steps, len(code_begins)):
            _make_table(code, code_begins[i], memory, at_price)


@compiled(fastmath={"nnan", "nsz", "contract"}, inline="always")
def _read_entry(recipes: Ints, at: int, memory: Floats, offsets: Ints, slices: Floats, choice: Ints) -> float:
    """The entry of an operand at the choices of its nodes."""
    space, place = recipes[at], recipes[at + 1]
    for u in range(recipes[at + 2]):
        place += choice[recipes[at + 3 + 2 * u]] * recipes[at + 4 + 2 * u]
    entry: float = slices[place] if space >= len(offsets) else memory[offsets[space] + place]
    return entry


@compiled(fastmath={"nnan", "nsz", "contract"})
def _least_cost(
    recipes: Ints, begins: Ints, step: int, points: int, memory: Floats, offsets: Ints, slices: Floats, choice: Ints
) -> tuple[float, int]:
    """The least cost over the strategies of the node of a step at the choices of the other nodes, and the first
    strategy that attains it. An operand that is recomputed at points is such a least cost too (recursion)."""
    begin = begins[step]
    node, best, best_strategy = recipes[begin], np.inf, 0
    for k in range(recipes[begin + 1]):
        if node >= 0:
            choice[node] = k
        total = 0.0
        at = begin + 3
        for _ in range(recipes[begin + 2]):
            if recipes[at] == points:
                entry, _ = _least_cost(recipes, begins, recipes[at + 1], points, memory, offsets, slices, choice)
                total += entry
            else:
                total += _read_entry(recipes, at, memory, offsets, slices, choice)
            at += 3 + 2 * recipes[at + 2]
        if total < best:
            best, best_strategy = total, k
    return best, best_strategy


@compiled(fastmath={"nnan", "nsz", "contract"})
def _reads_changed(
    recipes: Ints, begins: Ints, step: int, points: int, spaces: int, changed: Flags, slice_changed: Flags
) -> bool:
    """True when a step reads the choice of a node, or a slice, that differs from that of the row before."""
    begin = begins[step]
    at = begin + 3
    for _ in range(recipes[begin + 2]):
        if recipes[at] == points:
            if _reads_changed(recipes, begins, recipes[at + 1], points, spaces, changed, slice_changed):
                return True
        elif recipes[at] >= spaces and slice_changed[recipes[at + 1]]:
            return True
        for u in range(recipes[at + 2]):
            if changed[recipes[at + 3 + 2 * u]]:
                return True
        at += 3 + 2 * recipes[at + 2]
    return False


@compiled(fastmath={"nnan", "nsz", "contract"})
def backtrack(
    recipes: Ints,
    recipe_begins: Ints,
    slice_code: Ints,
    slice_begins: Ints,
    order: Ints,
    points: int,
    slices: Floats,
    memory: Floats,
    offsets: Ints,
    price_step: Ints,
    prices: Ints,
    choices: Ints,
) -> None:
    """Fill in a best choice of each node that was minimised out, row by row, at prices[row].

    The kept nodes are already filled in, so the slices are computed first, and then the steps in `order`. A step that
    reads nothing that differs from the row before (at the same price) has the result that it had there: rows are mostly
    pairs of states with one state in common.
    """
    spaces, nodes = len(offsets), choices.shape[1]
    kept = np.ones(nodes, np.bool_)
    for i in order:
        kept[recipes[recipe_begins[i]]] = False
    changed = np.zeros(nodes, np.bool_)
    slice_changed = np.zeros(len(slices), np.bool_)
    for row in range(len(choices)):
        choice, at_price = choices[row], offsets + prices[row] * price_step
        same_price = row > 0 and prices[row] == prices[row - 1]
        for v in range(nodes):
            changed[v] = same_price and kept[v] and choice[v] != choices[row - 1, v]
        for begin in slice_begins:
            step, place, axes = slice_code[begin], slice_code[begin + 1], slice_code[begin + 2]
            slice_changed[place] = False
            if same_price and not _reads_changed(recipes, recipe_begins, step, points, spaces, changed, slice_changed):
                continue
            entries = 1
            for axis in range(axes):
                entries *= slice_code[begin + 4 + 2 * axis]
            for entry in range(entries):
                left = entry
                for axis in range(axes - 1, -1, -1):
                    size = slice_code[begin + 4 + 2 * axis]
                    choice[slice_code[begin + 3 + 2 * axis]] = left % size
                    left //= size
                cost, _ = _least_cost(recipes, recipe_begins, step, points, memory, at_price, slices, choice)
                if cost != slices[place + entry]:
                    slice_changed[place] = True
                slices[place + entry] = cost
        for i in order:
            node = recipes[recipe_begins[i]]
            if same_price and not _reads_changed(recipes, recipe_begins, i, points, spaces, changed, slice_changed):
                choice[node] = choices[row - 1, node]
                continue
            _, strategy = _least_cost(recipes, recipe_begins, i, points, memory, at_price, slices, choice)
            choice[node] = strategy
            changed[node] = same_price and strategy != choices[row - 1, node]


def _extending_steps(costs: Floats, table: Floats, _pivots: Ints, _excess: Floats, _extended: Floats) -> int:
    return int(table.size * costs.shape[1])


@compiled(steps=_extending_steps, fastmath={"nnan", "nsz", "contract"})
def extend(costs: Floats, table: Floats, pivots: Ints, excess: Floats, extended: Floats) -> None:
    """extended[p, m, j] = min over i of costs[p, m, i] + table[p, i, j].

    States i that cannot attain a minimum are left out (`_mark_needed`): four fifths, where blocks are those of a
    transformer. Rows m take part of the table in turn, so that it is read from a near cache.

    `pivots` [prices, pivots] and `excess` [prices, pivots, states] are kept with the table, and filled in here: some
    states, −1 where there is none yet, and by how much the cost of each other state must exceed that of the pivot.
    """
    prices, states, others = table.shape
    flat, part, rows = table.ravel(), max(1, 32768 // max(others, 1)), costs.shape[1]
    needed = np.empty((rows, states), np.bool_)
    for p in range(prices):
        for m in range(rows):
            row = extended[p, m]
            for j in range(others):
                row[j] = np.inf
            _mark_needed(costs[p, m], table[p], pivots[p], excess[p], needed[m])
        for begin in range(0, states, part):
            end = min(begin + part, states)
            for m in range(rows):
                i = begin
                while i < end:
                    first = i
                    while i < end and needed[m, i]:
                        i += 1
                    if first < i:
                        at = (p * states + first) * others
                        minimise_into(extended[p, m], costs[p, m, first:i], (flat,), (at,), (others,))
                    i += 1


@compiled(fastmath={"nnan", "nsz", "contract"})
def _mark_needed(costs: Floats, table: Floats, pivots: Ints, excess: Floats, needed: Flags) -> None:
    """Mark the states i that may attain a minimum over i of costs[i] + table[i, j] for some j.

    With a pivot q, that excludes i where costs[i] > costs[q] + max over j of (table[q, j] − table[i, j]); a margin
    keeps what rounding may bring first. Pivots are the two cheapest states: alone, the cheapest often excludes half of
    the states, and both four fifths.
    """
    states = len(costs)
    first, second = -1, -1
    for i in range(states):
        needed[i] = costs[i] < np.inf
        if not needed[i]:
            continue
        if first < 0 or costs[i] < costs[first]:
            first, second = i, first
        elif second < 0 or costs[i] < costs[second]:
            second = i
    if states * table.shape[1] < 1024:  # set by hand: as long as what it saves
        return
    for pivot in (first, second):
        slot = 0
        while slot < len(pivots) and pivots[slot] >= 0 and pivots[slot] != pivot:
            slot += 1
        if pivot < 0 or slot == len(pivots):
            continue
        if pivots[slot] < 0:
            pivots[slot] = pivot
            _exceed(table, pivot, excess[slot])
        highest = costs[pivot] + 1e-12 * abs(costs[pivot])
        for i in range(states):
            if costs[i] > highest + excess[slot, i]:
                needed[i] = False


@compiled(fastmath={"nnan", "nsz", "contract"})
def _exceed(table: Floats, pivot: int, excess: Floats) -> None:
    """excess[i] = max over j of table[pivot, j] − table[i, j], and a margin for rounding."""
    for i in range(len(table)):
        most = -np.inf
        for j in range(table.shape[1]):
            if table[i, j] < np.inf:
                most = max(most, table[pivot, j] - table[i, j] + 1e-12 * abs(table[i, j]))
        excess[i] = most
