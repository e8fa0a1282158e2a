"""A problem contracted to a table over a few of its nodes, at several prices at once: all others are minimised out.

    table[p, k] = min { cost at price p of a choice that holds the strategies k at the kept nodes }

What is done is worked out on sizes alone (`contract_program`), and done by a compiled kernel.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from alpa_explore.intra_op.composition import contract_kernels
from alpa_explore.intra_op.composition.contract_program import (
    OWN,
    POINTS,
    RESULT,
    SAME,
    Form,
    Given,
    Program,
    order_of,
    program,
)
from alpa_explore.intra_op.elimination.eliminate import Limits
from alpa_explore.intra_op.reduction.tables import without_forbidden
from alpa_explore.numerics.arrays import Floats, Ints

LIMITS = Limits(joined_entries=1e9, largest_table=1.5e7, table_entries=3e7)
"""At each price: about a second and 240 MB. A residual block with a convolution on its shortcut takes that on 2 x 2."""
HELD_ENTRIES = 1 << 22
"""Entries of the memory in which a thread works that it keeps for the next contraction (32 MB)."""
STEPS_ENTRIES = 6e7
"""Of the tables that the way back reads, at all prices together (480 MB). Where they are more the prices are taken one
after the other, only the result is kept, and what the way back reads is made again."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Priced:
    """A problem at several prices: its costs one after the other, where `form` says; inf where forbidden."""

    form: Form
    same: Floats
    """[entries]: what no price changes."""
    own: Floats
    """[prices, entries]"""

    @classmethod
    def of(
        cls, node_costs: Sequence[Floats], edges: Sequence[tuple[int, int]], edge_costs: Sequence[Floats], prices: int
    ) -> Priced:
        """From an array for every node and edge that begins with an axis for the price, of length 1 where the price
        makes no difference."""
        arrays = [without_forbidden(c).reshape(len(c), -1) for c in (*node_costs, *edge_costs)]
        entries = {SAME: 0, OWN: 0}
        given = []
        for array in arrays:
            space = SAME if len(array) == 1 else OWN
            given.append(Given(space, entries[space]))
            entries[space] += array.shape[1]
        form = Form(
            sizes=tuple(c.shape[1] for c in node_costs),
            edges=tuple(edges),
            nodes_given=tuple(given[: len(node_costs)]),
            edges_given=tuple(given[len(node_costs) :]),
            same=entries[SAME],
            own=entries[OWN],
        )
        own = [np.zeros((prices, 0)), *(a for a, g in zip(arrays, given, strict=True) if g.space == OWN)]
        same = [np.zeros(0), *(a[0] for a, g in zip(arrays, given, strict=True) if g.space == SAME)]
        return cls(form=form, same=np.concatenate(same), own=np.concatenate(own, axis=1))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Contraction:
    """The table, and the way back to choices for every node."""

    table: Floats
    """[prices, strategies of the first kept node, …]; inf where no choice is legal."""
    keep: tuple[int, ...]
    _problem: Priced
    _program: Program
    _memory: Floats | None
    """What the way back reads; None where it is too large to keep."""

    def complete(self, prices: Ints, kept: Ints) -> Ints:
        """For each row of `kept` [rows, kept nodes] a best choice of every node at prices[row], [rows, nodes]."""
        choices = np.zeros((len(kept), len(self._problem.form.sizes)), dtype=np.int64)
        choices[:, list(self.keep)] = kept
        if self._memory is not None:
            self._go_back(self._memory, len(self.table), prices, choices)
            return choices
        for price in np.unique(prices).tolist():
            here = prices == price
            some = choices[here]
            memory, _ = _run(self._program, self._problem, slice(price, price + 1))
            self._go_back(memory, 1, np.zeros(len(some), dtype=np.int64), some)
            choices[here] = some
        return choices

    def _go_back(self, memory: Floats, count: int, prices: Ints, choices: Ints) -> None:
        steps, (starts, step) = self._program, self._program.starts(count)
        contract_kernels.go_back(
            steps.recipes,
            steps.recipe_begins,
            steps.slices,
            steps.slice_begins,
            steps.order,
            POINTS,
            np.empty(steps.slice_entries),
            memory,
            starts,
            step,
            prices,
            choices,
        )


def contract(problem: Priced, keep: tuple[int, ...], limits: Limits = LIMITS) -> Contraction | None:
    """`problem` as a table over `keep`; None where that is too wide."""
    form, prices = problem.form, len(problem.own)
    shape = tuple(form.sizes[v] for v in keep)
    if math.prod(shape) > limits.largest_table or not limits.allow(order_of(form, frozenset(keep))):
        return None
    steps = program(form, keep)
    kept = None
    if steps.kept(prices) <= STEPS_ENTRIES:
        memory, table = _run(steps, problem, slice(prices))
        table, kept = table.copy(), memory[: steps.kept(prices)].copy()
    else:
        table = np.concatenate([_run(steps, problem, slice(p, p + 1))[1].copy() for p in range(prices)])
    return Contraction(table=table.reshape(-1, *shape), keep=keep, _problem=problem, _program=steps, _memory=kept)


def _run(steps: Program, problem: Priced, prices: slice) -> tuple[Floats, Floats]:
    """The memory after all steps at some of the prices, and the result of each of them, [prices, entries]: both are
    there until this thread runs another program."""
    own = problem.own[prices]
    starts, step = steps.starts(len(own))
    memory = _memory(steps.all(len(own)))
    memory[: len(problem.same)] = problem.same
    contract_kernels.run(steps.code, steps.begins, steps.unpriced, memory, own, OWN, starts, step)
    return memory, memory[starts[RESULT] :][: len(own) * step[RESULT]].reshape(len(own), -1)


_thread = threading.local()


def _memory(entries: int) -> Floats:
    """To work in. A thread has its own, which it keeps: fresh memory is slow the first time it is touched."""
    held: Floats | None = getattr(_thread, "memory", None)
    if held is None or len(held) < entries:
        held = np.empty(max(entries, HELD_ENTRIES // 4))
        if entries <= HELD_ENTRIES:
            _thread.memory = held
    return held
