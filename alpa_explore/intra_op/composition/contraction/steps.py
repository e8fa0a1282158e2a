"""The symbolic elimination: which tables are made of which, and where each is stored.

A *step* makes one table of a few others,

    result(u, …) = min over the strategies of `node` of the sum of `operands`(node, u, …)

and where no node is minimised out it is their sum. Large tables are put into scratch space where backtracking reads
little of them, and what it reads is recomputed:

    SLICES   the kept nodes are fixed during backtracking, so only a slice over the other nodes is needed
    POINTS   a step reads one entry for each strategy of its node, and the operands of that entry are stored
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import prod

from alpa_explore.intra_op.composition.contraction import tuning
from alpa_explore.intra_op.composition.contraction.priced_problem import (
    COMMON,
    COMMON_SCRATCH,
    PRICED,
    RESULT,
    SCRATCH,
    CostLocation,
    ProblemForm,
)
from alpa_explore.intra_op.reduction.factor_graph import Scope

SLICES, POINTS = 5, 6
"""How a table that is not stored is recomputed; numbered after the spaces, as the kernels read them."""


@dataclass(slots=True, eq=False)
class Table:
    """A table over some nodes, in ascending order of their numbers."""

    scope: Scope
    strides: tuple[int, ...]
    """Entries from one strategy of each node to the next."""
    entries: int
    priced: bool
    """True when a price changes it."""
    made_by: Step | None = None
    """None where the table is part of the problem."""
    space: int = COMMON
    offset: int = 0
    recomputed: int | None = None
    """SLICES or POINTS; None where the whole table is stored."""
    slice_offset: int = 0


@dataclass(slots=True, eq=False)
class Step:
    """One elimination or addition."""

    node: int | None
    """The number of the node that is minimised out."""
    operands: list[Table]
    result: Table
    index: int = field(default=-1)


class Elimination:
    """The steps of an elimination.

    Nodes are eliminated by rising number, so the next node to eliminate is the first of every scope that holds it.
    """

    def __init__(self, form: ProblemForm, numbered: Sequence[int], sizes: Sequence[int], eliminated: int) -> None:
        """`numbered` are the nodes in their new order; the first `eliminated` are minimised out, the others kept."""
        self.sizes = sizes
        self.steps: list[Step] = []
        self._constants: list[Table] = []
        """Over no node."""
        self._vectors: list[Table | None] = [None] * len(sizes)
        """Over one node."""
        self._tables: list[dict[Table, None]] = [{} for _ in sizes]
        """Over several nodes, for each of them."""
        number = {v: i for i, v in enumerate(numbered)}
        for v, location in enumerate(form.node_locations):
            if location is not None:
                nodes = [(number[v], 1)] if v in number else []
                self._add_given(nodes, location, form.sizes[v])
        for (a, b), location in zip(form.edges, form.edge_locations, strict=True):
            nodes = [(number[v], stride) for v, stride in ((a, form.sizes[b]), (b, 1)) if v in number]
            self._add_given(nodes, location, form.sizes[a] * form.sizes[b])
        for i in range(eliminated):
            operands = list(self._tables[i])
            for table in operands:
                for u in table.scope:
                    del self._tables[u][table]
            scope = tuple(sorted({u for table in operands for u in table.scope[1:]}))
            self._add(self._step(i, scope, [*operands, *filter(None, (self._vectors[i],))]))
        kept = range(eliminated, len(sizes))
        tables = [t for i in kept for t in self._tables[i] if t.scope[0] == i]
        vectors = (t for i in kept if (t := self._vectors[i]))
        result = self._step(None, tuple(kept), [*tables, *vectors, *self._constants])
        result.priced = True

    def _add_given(self, nodes: list[tuple[int, int]], location: CostLocation, entries: int) -> None:
        """Add the costs of a node or an edge; `nodes` are (number, stride)."""
        nodes.sort()
        scope, strides = tuple(u for u, _ in nodes), tuple(stride for _, stride in nodes)
        table = Table(scope, strides, entries, location.space == PRICED, None, *location)
        # Kernels read along the last node, so a table with another stride there is transposed first.
        self._add(table if strides[-1:] in ((), (1,)) else self._step(None, scope, [table]))

    def _add(self, table: Table) -> None:
        scope = table.scope
        if not scope:
            self._constants.append(table)
        elif len(scope) == 1:
            (i,) = scope
            present = self._vectors[i]
            self._vectors[i] = table if present is None else self._step(None, scope, [present, table])
        else:
            present = next((t for t in self._tables[scope[0]] if t.scope == scope), None)
            if present is not None and prod(self.sizes[u] for u in scope) <= tuning.MERGED_ENTRIES:
                for u in scope:
                    del self._tables[u][present]
                table = self._step(None, scope, [present, table])
            for u in scope:
                self._tables[u][table] = None

    def _step(self, node: int | None, scope: Scope, operands: list[Table]) -> Table:
        sizes = [self.sizes[u] for u in scope]
        strides = tuple(prod(sizes[i + 1 :]) for i in range(len(sizes)))
        result = Table(scope, strides, prod(sizes), any(operand.priced for operand in operands))
        result.made_by = Step(node, operands, result)
        self.steps.append(result.made_by)
        return result


def choose_recomputed(steps: Sequence[Step], sizes: Sequence[int], eliminated: int) -> int:
    """Mark the tables that are recomputed during backtracking, and return the entries of all their slices.

    Nodes numbered from `eliminated` on are kept nodes.
    """
    slice_entries = 0
    large = [step for step in steps[:-1] if step.result.entries > tuning.STORED_ENTRIES]
    for step in large:
        sliced = prod(sizes[u] for u in step.result.scope if u < eliminated)
        joined = sliced * (1 if step.node is None else sizes[step.node])
        if joined <= step.result.entries * tuning.SLICE_SHARE:
            step.result.recomputed, step.result.slice_offset = SLICES, slice_entries
            slice_entries += sliced
    read_for = {operand: step.result for step in steps for operand in step.operands}
    for step in sorted(large, key=lambda step: -step.result.entries):
        # An entry made of entries that are recomputed too, or read for a whole slice, would take too long.
        tables = (step.result, read_for[step.result])
        stored = all(t.recomputed is None for t in tables) and all(t.recomputed != POINTS for t in step.operands)
        if stored:
            step.result.recomputed = POINTS
    return slice_entries


def assign_locations(steps: Sequence[Step], form: ProblemForm) -> list[int]:
    """Give every table its space and offset, and return the entries of every space."""
    entries = [form.common_entries, form.priced_entries, 0, 0, steps[-1].result.entries]
    last_read = {operand: i for i, step in enumerate(steps) for operand in step.operands}
    scratch = _ScratchAllocator()
    for i, step in enumerate(steps):
        result = step.result
        if i == len(steps) - 1:
            result.space = RESULT
        elif result.recomputed is None:
            result.space = PRICED if result.priced else COMMON
        else:
            result.space = SCRATCH if result.priced else COMMON_SCRATCH
        if result.space == SCRATCH:
            result.offset = scratch.allocate(result.entries)
        elif result.space != RESULT:
            result.offset = entries[result.space]
            entries[result.space] += result.entries
        for operand in dict.fromkeys(step.operands):
            if operand.space == SCRATCH and last_read[operand] == i:
                scratch.free(operand.offset, operand.entries)
    entries[SCRATCH] = scratch.entries
    return entries


class _ScratchAllocator:
    """Allocates intervals of scratch space, first fit."""

    def __init__(self) -> None:
        self.entries = 0
        self._free: list[tuple[int, int]] = []
        """(begin, length), ascending; no two are adjacent."""

    def allocate(self, entries: int) -> int:
        """The beginning of a free interval of this length; the space grows at its end where there is none."""
        for i, (begin, length) in enumerate(self._free):
            if length >= entries:
                self._free[i : i + 1] = [(begin + entries, length - entries)] if length > entries else []
                return begin
        begin = self.entries
        if self._free and sum(self._free[-1]) == begin:
            begin = self._free.pop()[0]
        self.entries = begin + entries
        return begin

    def free(self, begin: int, length: int) -> None:
        """Return an interval, and merge it with its neighbours."""
        merged: list[tuple[int, int]] = []
        for start, entries in sorted([*self._free, (begin, length)]):
            if merged and sum(merged[-1]) == start:
                merged[-1] = merged[-1][0], merged[-1][1] + entries
            else:
                merged.append((start, entries))
        self._free = merged
