"""What a contraction does, worked out on sizes alone: the steps of the elimination as numbers that a kernel reads.

Blocks of one model have the same sizes on many meshes, and the order of elimination depends on nothing else: a program
is written once and run on the costs of each of them, at one price after the other.

A *step* makes one table of a few others,

    made(u, …) = min over the strategies of `node` of the sum of `parts`(node, u, …)

and where no node is minimised out it is their sum. A table lies in one of the SPACES of one array:

    SAME     what no price changes: there once; ROUGH likewise, but not kept
    OWN      what a price changes: once for each of them
    SCRATCH  what is needed at one price only until another table is made of it: each price writes over the last
    RESULT   the table over the kept nodes, once for each price

Large tables are rough or scratch where what is read of them on the way back to choices is little, and made again:

    SLICES   kept nodes have one strategy each there, and the table over the others may be small
    POINTS   of others, made of what is there, a step reads an entry for each strategy of its node
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from math import prod
from typing import NamedTuple

import numpy as np

from alpa_explore.intra_op.elimination.elimination_order import EliminationOrder, elimination_order
from alpa_explore.intra_op.reduction.tables import Scope
from alpa_explore.numerics.arrays import Ints

SAME, OWN, ROUGH, SCRATCH, RESULT = SPACES = range(5)
SLICES, POINTS = 5, 6
KEPT_ENTRIES = 1 << 12
"""Up to this many are always kept."""
POINT_ENTRIES = 1 << 15
"""Up to this many are kept where no slice is small."""
JOINED_SHARE = 1 / 8
"""A slice may join this share of the entries of its table: the way back is gone for a few states only."""
ADDED_ENTRIES = 1 << 12
"""Up to this many entries tables over the same nodes become one; larger ones stay, to be read together."""


class Given(NamedTuple):
    """Where the costs of a node or an edge lie."""

    space: int
    at: int


@dataclass(frozen=True, slots=True)
class Form:
    """All that a program depends on, beside the nodes that are kept."""

    sizes: tuple[int, ...]
    """Strategies of every node."""
    edges: tuple[tuple[int, int], ...]
    nodes_given: tuple[Given | None, ...]
    """None for nodes that cost nothing."""
    edges_given: tuple[Given, ...]
    same: int
    """Entries that no price changes; `own`: those of each price."""
    own: int


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Program:
    """A contraction, for any costs."""

    code: Ints
    """For `contract_kernels.run`, step by step."""
    begins: Ints
    """Where each step begins in `code`; the first `unpriced` of them are the same at every price."""
    unpriced: int
    recipes: Ints
    """For `contract_kernels.go_back`: how an entry of the table of each step is made."""
    recipe_begins: Ints
    slices: Ints
    """For the same: how the slice of each table that is not kept is filled."""
    slice_begins: Ints
    order: Ints
    """The steps that minimise a node out, the last first."""
    entries: Ints
    """Of every space; of OWN and RESULT for each price."""
    slice_entries: int

    def starts(self, prices: int) -> tuple[Ints, Ints]:
        """Where every space begins at the first price, and how much further on at each that follows."""
        step = np.where(np.isin(SPACES, (OWN, RESULT)), self.entries, 0)
        whole = np.where(step > 0, self.entries * prices, self.entries)
        return np.cumsum(whole) - whole, step

    def kept(self, prices: int) -> int:
        """Entries that the way back reads: those of SAME and OWN, which come first."""
        return int(self.entries[SAME] + self.entries[OWN] * prices)

    def all(self, prices: int) -> int:
        """Entries of all spaces."""
        return int(self.entries.sum() + (self.entries[OWN] + self.entries[RESULT]) * (prices - 1))


@dataclass(slots=True, eq=False)
class _Table:
    """A table over some nodes, ascending by number; `maker` is the step that makes it, None where it is given."""

    scope: Scope
    strides: tuple[int, ...]
    """Entries from one strategy of each node to the next."""
    entries: int
    priced: bool
    maker: _Step | None = None
    space: int = SAME
    at: int = 0
    again: int | None = None
    """SLICES or POINTS; None where the whole is kept."""
    slice_at: int = 0


@dataclass(slots=True, eq=False)
class _Step:
    node: int | None
    """The number of the node that is minimised out."""
    parts: list[_Table]
    made: _Table
    index: int = field(default=-1)


@lru_cache(maxsize=2048)
def order_of(form: Form, keep: frozenset[int]) -> EliminationOrder:
    """In which the others are eliminated. A node with one strategy is no more than a cost of its neighbours."""
    free = [size > 1 or v in keep for v, size in enumerate(form.sizes)]
    edges = tuple(dict.fromkeys((min(e), max(e)) for e in form.edges if free[e[0]] and free[e[1]]))
    return _order(form.sizes, edges, keep)


@lru_cache(maxsize=1024)
def _order(sizes: tuple[int, ...], edges: tuple[tuple[int, int], ...], keep: frozenset[int]) -> EliminationOrder:
    return elimination_order(sizes, edges, keep)


@lru_cache(maxsize=1024)
def program(form: Form, keep: tuple[int, ...]) -> Program:
    """The steps to a table over `keep`."""
    free = [size > 1 or v in keep for v, size in enumerate(form.sizes)]
    numbered = (*(v for v in order_of(form, frozenset(keep)).nodes if free[v]), *keep)
    sizes = [form.sizes[v] for v in numbered]
    count = len(numbered) - len(keep)
    steps = _Eliminated(form, numbered, sizes, count).steps
    # What no price changes is made before the first of them.
    steps.sort(key=lambda step: step.made.priced)
    for i, step in enumerate(steps):
        step.index = i
    slice_entries = _set_apart(steps, sizes, count)
    entries = _placed(steps, form)
    code, begins = _joined([list(_code(step, sizes)) for step in steps])
    recipes, recipe_begins = _joined([list(_recipe(step, numbered, sizes, count)) for step in steps])
    sliced = [step for step in steps if step.made.again == SLICES]
    slices, slice_begins = _joined([list(_filling(step, numbered, sizes, count)) for step in sliced])
    eliminations = [step for step in steps if step.node is not None]
    # By number, not by place: the node that goes first is found last.
    eliminations.sort(key=lambda step: -(step.node or 0))
    return Program(
        code=code,
        begins=begins,
        unpriced=sum(not step.made.priced for step in steps),
        recipes=recipes,
        recipe_begins=recipe_begins,
        slices=slices,
        slice_begins=slice_begins,
        order=np.array([step.index for step in eliminations], dtype=np.int64),
        entries=np.array(entries, dtype=np.int64),
        slice_entries=slice_entries,
    )


class _Eliminated:
    """Nodes go by rising number, so the node that goes is the first of every scope that it is in."""

    def __init__(self, form: Form, numbered: Sequence[int], sizes: Sequence[int], count: int) -> None:
        self.sizes = sizes
        self.steps: list[_Step] = []
        self.loose: list[_Table] = []
        """Over no node."""
        self.alone: list[_Table | None] = [None] * len(sizes)
        """Over one node."""
        self.tables: list[dict[_Table, None]] = [{} for _ in sizes]
        """Over several nodes, for each of them."""
        number = {v: i for i, v in enumerate(numbered)}
        for v, given in enumerate(form.nodes_given):
            if given is not None:
                nodes = [(number[v], 1)] if v in number else []
                self._given(nodes, given, form.sizes[v])
        for (a, b), given in zip(form.edges, form.edges_given, strict=True):
            nodes = [(number[v], stride) for v, stride in ((a, form.sizes[b]), (b, 1)) if v in number]
            self._given(nodes, given, form.sizes[a] * form.sizes[b])
        for i in range(count):
            here = list(self.tables[i])
            for table in here:
                for u in table.scope:
                    del self.tables[u][table]
            rest = tuple(sorted({u for table in here for u in table.scope[1:]}))
            self._add(self._step(i, rest, [*here, *filter(None, (self.alone[i],))]))
        kept = range(count, len(sizes))
        tables = [t for i in kept for t in self.tables[i] if t.scope[0] == i]
        result = self._step(None, tuple(kept), [*tables, *(t for i in kept if (t := self.alone[i])), *self.loose])
        result.priced = True

    def _given(self, nodes: list[tuple[int, int]], given: Given, entries: int) -> None:
        nodes.sort()
        scope, strides = tuple(u for u, _ in nodes), tuple(stride for _, stride in nodes)
        table = _Table(scope, strides, entries, given.space == OWN, None, *given)
        # Kernels read along the last node.
        self._add(table if strides[-1:] in ((), (1,)) else self._step(None, scope, [table]))

    def _add(self, table: _Table) -> None:
        scope = table.scope
        if not scope:
            self.loose.append(table)
        elif len(scope) == 1:
            (i,) = scope
            present = self.alone[i]
            self.alone[i] = table if present is None else self._step(None, scope, [present, table])
        else:
            present = next((t for t in self.tables[scope[0]] if t.scope == scope), None)
            if present is not None and prod(self.sizes[u] for u in scope) <= ADDED_ENTRIES:
                for u in scope:
                    del self.tables[u][present]
                table = self._step(None, scope, [present, table])
            for u in scope:
                self.tables[u][table] = None

    def _step(self, node: int | None, scope: Scope, parts: list[_Table]) -> _Table:
        sizes = [self.sizes[u] for u in scope]
        strides = tuple(prod(sizes[i + 1 :]) for i in range(len(sizes)))
        made = _Table(scope, strides, prod(sizes), any(part.priced for part in parts))
        made.maker = _Step(node, parts, made)
        self.steps.append(made.maker)
        return made


def _set_apart(steps: Sequence[_Step], sizes: Sequence[int], count: int) -> int:
    """Say which tables are not kept; the entries of all slices. Nodes from `count` on are kept."""
    slice_entries = 0
    large = [step for step in steps[:-1] if step.made.entries > KEPT_ENTRIES]
    for step in large:
        sliced = prod(sizes[u] for u in step.made.scope if u < count)
        joined = sliced * (1 if step.node is None else sizes[step.node])
        if joined <= step.made.entries * JOINED_SHARE:
            step.made.again, step.made.slice_at = SLICES, slice_entries
            slice_entries += sliced
    read_for = {part: step.made for step in steps for part in step.parts}
    for step in sorted(large, key=lambda step: -step.made.entries):
        # An entry that is made of others made again, or read for a whole slice, would take too long.
        tables = (step.made, read_for[step.made])
        alone = all(t.again is None for t in tables) and all(part.again != POINTS for part in step.parts)
        if alone and step.made.entries > POINT_ENTRIES:
            step.made.again = POINTS
    return slice_entries


def _placed(steps: Sequence[_Step], form: Form) -> list[int]:
    """Give every table a place; the entries of every space."""
    entries = [form.same, form.own, 0, 0, steps[-1].made.entries]
    last_read = {part: i for i, step in enumerate(steps) for part in step.parts}
    scratch = _Scratch()
    for i, step in enumerate(steps):
        made = step.made
        if i == len(steps) - 1:
            made.space = RESULT
        elif made.again is None:
            made.space = OWN if made.priced else SAME
        else:
            made.space = SCRATCH if made.priced else ROUGH
        if made.space == SCRATCH:
            made.at = scratch.take(made.entries)
        elif made.space != RESULT:
            made.at = entries[made.space]
            entries[made.space] += made.entries
        for part in dict.fromkeys(step.parts):
            if part.space == SCRATCH and last_read[part] == i:
                scratch.give(part.at, part.entries)
    entries[SCRATCH] = scratch.entries
    return entries


class _Scratch:
    """Hands out stretches, the first that is long enough."""

    def __init__(self) -> None:
        self.entries = 0
        self._free: list[tuple[int, int]] = []
        """(begin, length), ascending; no two touch."""

    def take(self, entries: int) -> int:
        """Where so many are free; at the end there always are."""
        for i, (begin, length) in enumerate(self._free):
            if length >= entries:
                self._free[i : i + 1] = [(begin + entries, length - entries)] if length > entries else []
                return begin
        begin = self.entries
        if self._free and sum(self._free[-1]) == begin:
            begin = self._free.pop()[0]
        self.entries = begin + entries
        return begin

    def give(self, begin: int, length: int) -> None:
        """They are free again."""
        merged: list[tuple[int, int]] = []
        for at, more in sorted([*self._free, (begin, length)]):
            if merged and sum(merged[-1]) == at:
                merged[-1] = merged[-1][0], merged[-1][1] + more
            else:
                merged.append((at, more))
        self._free = merged


def _code(step: _Step, sizes: Sequence[int]) -> Iterator[int]:
    """space, place, strategies of the node, width, moving parts, parts, outer axes; their lengths; of every part space,
    place, stride along the node and along each outer axis.

    The table is written row by row along its last axis; the first parts (`moving`) have that axis, the largest ahead.
    """
    scope = step.made.scope
    parts = sorted(step.parts, key=lambda part: (not _moves(part, scope), -part.entries))
    strides = [[_stride(part, u) for u in scope] for part in parts]
    axes = [sizes[u] for u in scope]
    # Neighbouring axes along which every part goes on, or stays where it is, are one.
    for axis in range(len(axes) - 2, -1, -1):
        if all(s[axis] == s[axis + 1] * axes[axis + 1] for s in strides):
            axes[axis : axis + 2] = [axes[axis] * axes[axis + 1]]
            for s in strides:
                del s[axis]
    moving = sum(_moves(part, scope) for part in parts)
    if any(s[-1] != 1 for s in strides[:moving]):
        axes.append(1)  # a row of one entry: only transposed costs are read so
        moving = 0
    *outer, width = axes or [1]
    count = 1 if step.node is None else sizes[step.node]
    yield from (step.made.space, step.made.at, count, width, moving, len(parts), len(outer))
    yield from outer
    for part, along in zip(parts, strides, strict=True):
        yield from (part.space, part.at, 0 if step.node is None else _stride(part, step.node), *along[: len(outer)])


def _moves(part: _Table, scope: Scope) -> bool:
    return bool(scope) and scope[-1] in part.scope


def _stride(part: _Table, u: int) -> int:
    return part.strides[part.scope.index(u)] if u in part.scope else 0


def _recipe(step: _Step, numbered: Sequence[int], sizes: Sequence[int], count: int) -> Iterator[int]:
    """node (−1: none), its strategies, parts; of every part space, place (of POINTS the step that makes it) and how
    many nodes it reads; of each of these node and stride."""
    yield from (-1, 1) if step.node is None else (numbered[step.node], sizes[step.node])
    yield len(step.parts)
    for part in step.parts:
        if part.again == POINTS and part.maker is not None:
            yield from (POINTS, part.maker.index, 0)
            continue
        read = list(zip(part.scope, part.strides, strict=True))
        if part.again is None:
            yield from (part.space, part.at)
        else:
            read = _sliced(part, sizes, count)
            yield from (SLICES, part.slice_at)
        yield len(read)
        for u, stride in read:
            yield from (numbered[u], stride)


def _filling(step: _Step, numbered: Sequence[int], sizes: Sequence[int], count: int) -> Iterator[int]:
    """step, place, nodes of the slice; of each of these node and strategies."""
    scope = [u for u in step.made.scope if u < count]
    yield from (step.index, step.made.slice_at, len(scope))
    for u in scope:
        yield from (numbered[u], sizes[u])


def _sliced(table: _Table, sizes: Sequence[int], count: int) -> list[tuple[int, int]]:
    """The nodes of its slice, and their strides."""
    scope = [u for u in table.scope if u < count]
    return [(u, prod(sizes[w] for w in scope[i + 1 :])) for i, u in enumerate(scope)]


def _joined(parts: Collection[list[int]]) -> tuple[Ints, Ints]:
    lengths = np.array([len(part) for part in parts], dtype=np.int64)
    return np.array([x for part in parts for x in part], dtype=np.int64), np.cumsum(lengths) - lengths
