"""A contraction planned on sizes alone, as arrays of integers that the kernels read.

Blocks of one model have the same sizes on many meshes, and the order of elimination depends on nothing else: a program
is compiled once and run on the costs of each of them, at one price after the other. The orders of elimination are those
of `intra_op.elimination`. Tables are not kept for backtracking where they are large: they are computed again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import prod

import numpy as np

from alpa_explore.intra_op.composition.contraction.priced_problem import COMMON, PRICED, RESULT, SPACES, ProblemForm
from alpa_explore.intra_op.composition.contraction.steps import (
    POINTS,
    SLICES,
    Elimination,
    Step,
    Table,
    assign_locations,
    choose_recomputed,
)
from alpa_explore.intra_op.elimination.elimination_order import EliminationOrder, elimination_order
from alpa_explore.intra_op.reduction.factor_graph import Scope
from alpa_explore.numerics.arrays import Ints, starts


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Program:
    """A planned contraction, for any costs."""

    code: Ints
    """For `kernels.run_program`, step by step (`_encode_step`)."""
    code_begins: Ints
    """Where each step begins in `code`."""
    common_steps: int
    """So many steps, the first ones, give the same at every price."""
    recipes: Ints
    """For `kernels.backtrack`: how an entry of the table of each step is computed (`_encode_recipe`)."""
    recipe_begins: Ints
    slice_code: Ints
    """For `kernels.backtrack`: how the slice of each table that is not stored is filled (`_encode_slice`)."""
    slice_begins: Ints
    backtracking_order: Ints
    """The steps that minimise a node out, the last first."""
    space_entries: Ints
    """Entries of every space; of PRICED and RESULT for each price."""
    slice_entries: int

    def space_offsets(self, prices: int) -> tuple[Ints, Ints]:
        """Where every space begins at the first price, and how much further on at each following price."""
        step = np.where(np.isin(SPACES, (PRICED, RESULT)), self.space_entries, 0)
        lengths = np.where(step > 0, self.space_entries * prices, self.space_entries)
        return starts(lengths), step

    def stored_entries(self, prices: int) -> int:
        """Entries that backtracking reads: those of COMMON and PRICED, which come first."""
        return int(self.space_entries[COMMON] + self.space_entries[PRICED] * prices)

    def total_entries(self, prices: int) -> int:
        """Entries of all spaces."""
        return int(self.space_entries.sum() + (self.space_entries[PRICED] + self.space_entries[RESULT]) * (prices - 1))


@lru_cache(maxsize=2048)
def contraction_order(form: ProblemForm, keep: frozenset[int]) -> EliminationOrder:
    """The order in which all nodes but `keep` are eliminated. A node with one strategy has no edges in it: it is only a
    cost of its neighbours."""
    free = [size > 1 or v in keep for v, size in enumerate(form.sizes)]
    edges = tuple(dict.fromkeys((min(e), max(e)) for e in form.edges if free[e[0]] and free[e[1]]))
    return _cached_order(form.sizes, edges, keep)


@lru_cache(maxsize=1024)
def _cached_order(sizes: tuple[int, ...], edges: tuple[tuple[int, int], ...], keep: frozenset[int]) -> EliminationOrder:
    return elimination_order(sizes, edges, keep)


@lru_cache(maxsize=1024)
def compile_program(form: ProblemForm, keep: tuple[int, ...], order: tuple[int, ...]) -> Program:
    """The steps that lead to a table over `keep`, where the other nodes are minimised out in this `order`. One that was
    searched for with more strategies serves as well."""
    free = [size > 1 or v in keep for v, size in enumerate(form.sizes)]
    numbered = (*(v for v in order if free[v]), *keep)
    sizes = [form.sizes[v] for v in numbered]
    eliminated = len(numbered) - len(keep)
    steps = Elimination(form, numbered, sizes, eliminated).steps
    # Tables that no price changes are made before the first price.
    steps.sort(key=lambda step: step.result.priced)
    for i, step in enumerate(steps):
        step.index = i
    slice_entries = choose_recomputed(steps, sizes, eliminated)
    space_entries = assign_locations(steps, form)
    code, code_begins = _joined([list(_encode_step(step, sizes)) for step in steps])
    recipes, recipe_begins = _joined([list(_encode_recipe(step, numbered, sizes, eliminated)) for step in steps])
    sliced = [step for step in steps if step.result.recomputed == SLICES]
    slice_code, slice_begins = _joined([list(_encode_slice(step, numbered, sizes, eliminated)) for step in sliced])
    minimising = [step for step in steps if step.node is not None]
    # By number, not by position: the node that is eliminated first is assigned last.
    minimising.sort(key=lambda step: -(step.node or 0))
    return Program(
        code=code,
        code_begins=code_begins,
        common_steps=sum(not step.result.priced for step in steps),
        recipes=recipes,
        recipe_begins=recipe_begins,
        slice_code=slice_code,
        slice_begins=slice_begins,
        backtracking_order=np.array([step.index for step in minimising], dtype=np.int64),
        space_entries=np.array(space_entries, dtype=np.int64),
        slice_entries=slice_entries,
    )


def _encode_step(step: Step, sizes: Sequence[int]) -> Iterator[int]:
    """How `kernels.run_program` makes the whole table of a step.

    Format: space, offset, strategies of the node, row width, number of row operands, number of operands, number of
    outer axes; the lengths of the outer axes; and for every operand space, offset, stride along the node and along each
    outer axis. The table is written row by row along its last axis. The row operands come first, the largest ahead:
    they have that axis too.
    """
    scope = step.result.scope
    operands = sorted(step.operands, key=lambda operand: (not _has_row_axis(operand, scope), -operand.entries))
    strides = [[_stride(operand, u) for u in scope] for operand in operands]
    axes = [sizes[u] for u in scope]
    # Adjacent axes along which every operand is contiguous, or constant, become one.
    for axis in range(len(axes) - 2, -1, -1):
        if all(s[axis] == s[axis + 1] * axes[axis + 1] for s in strides):
            axes[axis : axis + 2] = [axes[axis] * axes[axis + 1]]
            for s in strides:
                del s[axis]
    row_operands = sum(_has_row_axis(operand, scope) for operand in operands)
    if any(s[-1] != 1 for s in strides[:row_operands]):
        axes.append(1)  # a row of one entry: only transposed costs are read this way
        row_operands = 0
    *outer, width = axes or [1]
    strategies = 1 if step.node is None else sizes[step.node]
    yield from (step.result.space, step.result.offset, strategies, width, row_operands, len(operands), len(outer))
    yield from outer
    for operand, along in zip(operands, strides, strict=True):
        node_stride = 0 if step.node is None else _stride(operand, step.node)
        yield from (operand.space, operand.offset, node_stride, *along[: len(outer)])


def _has_row_axis(operand: Table, scope: Scope) -> bool:
    return bool(scope) and scope[-1] in operand.scope


def _stride(operand: Table, u: int) -> int:
    return operand.strides[operand.scope.index(u)] if u in operand.scope else 0


def _encode_recipe(step: Step, numbered: Sequence[int], sizes: Sequence[int], eliminated: int) -> Iterator[int]:
    """How `kernels.backtrack` computes one entry of the table of a step.

    Format: node (−1: none), its strategies, number of operands; for every operand space, offset (of POINTS the step
    that makes it) and how many nodes it reads; for each of these node and stride.
    """
    yield from (-1, 1) if step.node is None else (numbered[step.node], sizes[step.node])
    yield len(step.operands)
    for operand in step.operands:
        if operand.recomputed == POINTS and operand.made_by is not None:
            yield from (POINTS, operand.made_by.index, 0)
            continue
        strides = list(zip(operand.scope, operand.strides, strict=True))
        if operand.recomputed is None:
            yield from (operand.space, operand.offset)
        else:
            strides = _slice_strides(operand, sizes, eliminated)
            yield from (SLICES, operand.slice_offset)
        yield len(strides)
        for u, stride in strides:
            yield from (numbered[u], stride)


def _encode_slice(step: Step, numbered: Sequence[int], sizes: Sequence[int], eliminated: int) -> Iterator[int]:
    """How `kernels.backtrack` fills the slice of a table: step, offset, number of nodes in the slice; for each of these
    node and strategies."""
    scope = [u for u in step.result.scope if u < eliminated]
    yield from (step.index, step.result.slice_offset, len(scope))
    for u in scope:
        yield from (numbered[u], sizes[u])


def _slice_strides(table: Table, sizes: Sequence[int], eliminated: int) -> list[tuple[int, int]]:
    """The nodes of the slice of a table, and their strides."""
    scope = [u for u in table.scope if u < eliminated]
    return [(u, prod(sizes[w] for w in scope[i + 1 :])) for i, u in enumerate(scope)]


def _joined(parts: Collection[list[int]]) -> tuple[Ints, Ints]:
    """All parts in one array, and where each begins."""
    return np.array([x for part in parts for x in part], dtype=np.int64), starts([len(part) for part in parts])
