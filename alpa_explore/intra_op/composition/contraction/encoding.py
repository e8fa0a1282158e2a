"""Steps written as integers, in the formats that the kernels read."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from math import prod

import numpy as np

from alpa_explore.intra_op.composition.contraction.steps import POINTS, SLICES, Step, Table
from alpa_explore.intra_op.reduction.factor_graph import Scope
from alpa_explore.numerics.arrays import Ints


def encode_step(step: Step, sizes: Sequence[int]) -> Iterator[int]:
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


def encode_recipe(step: Step, numbered: Sequence[int], sizes: Sequence[int], eliminated: int) -> Iterator[int]:
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


def encode_slice(step: Step, numbered: Sequence[int], sizes: Sequence[int], eliminated: int) -> Iterator[int]:
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


def concatenated(parts: Collection[list[int]]) -> tuple[Ints, Ints]:
    """All parts in one array, and where each begins."""
    lengths = np.array([len(part) for part in parts], dtype=np.int64)
    return np.array([x for part in parts for x in part], dtype=np.int64), np.cumsum(lengths) - lengths
