"""A problem contracted to a table over a few of its nodes, at several prices at once: all others are minimised out.

    table[p, k] = min { cost at price p of a choice that holds the strategies k at the kept nodes }

The order of elimination depends on sizes alone, so all prices share it, and every step works on all of them: an array
begins with an axis for the price, which has length 1 where the price makes no difference.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from alpa_explore.intra_op import contract_kernels
from alpa_explore.intra_op.elimination import Limits
from alpa_explore.intra_op.elimination_order import EliminationOrder, elimination_order
from alpa_explore.intra_op.factor_graph import Ints, Scope, without_forbidden
from alpa_explore.intra_op.problem import Floats

LIMITS = Limits(joined_entries=1e9, largest_table=1.5e7, table_entries=3e7)
"""At each price: about a second and 240 MB. A residual block with a convolution on its shortcut takes that on 2 x 2."""
STEPS_ENTRIES = 6e7
"""Of the tables on the way, at all prices together (480 MB). Where they are more the prices are taken one after the
other, only the result is kept, and the way back is found anew."""
BROADCAST_ENTRIES = 1 << 13
"""Up to this many entries a join is one broadcast sum; beyond it the kernel is quicker."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Priced:
    """A problem at several prices; the arrays begin with an axis for the price."""

    node_costs: tuple[Floats, ...]
    edges: tuple[tuple[int, int], ...]
    edge_costs: tuple[Floats, ...]

    def at(self, prices: Ints) -> Priced:
        """At some of the prices."""
        return Priced(
            node_costs=tuple(_at(c, prices) for c in self.node_costs), edges=self.edges,
            edge_costs=tuple(_at(m, prices) for m in self.edge_costs),
        )  # fmt: skip

    def given(self, keep: Sequence[int], prices: Ints, kept: Ints) -> Priced:
        """The problem of the other nodes once for each row of `kept`, at prices[row]: a row takes the place of a price.

        The kept nodes have one strategy here, and cost nothing.
        """
        at = dict(zip(keep, kept.T, strict=True))
        costs = [np.zeros((1, 1)) if v in at else _at(c, prices) for v, c in enumerate(self.node_costs)]
        edges, matrices = [], []
        for (a, b), matrix in zip(self.edges, self.edge_costs, strict=True):
            if a not in at and b not in at:
                edges.append((a, b))
                matrices.append(_at(matrix, prices))
            elif a not in at or b not in at:
                first = prices if len(matrix) > 1 else np.zeros_like(prices)
                v, paid = (b, matrix[first, at[a], :]) if a in at else (a, matrix[first, :, at[b]])
                costs[v] = costs[v] + paid
        return Priced(node_costs=tuple(costs), edges=tuple(edges), edge_costs=tuple(matrices))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Step:
    """Node `node` was minimised out of `tables` (its own axis follows that of the price)."""

    node: int
    costs: Floats
    tables: tuple[tuple[Scope, Floats], ...]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Contraction:
    """The table, and the way back to choices for every node."""

    table: Floats
    """[prices or 1, strategies of the first kept node, …]; inf where no choice is legal."""
    keep: tuple[int, ...]
    _problem: Priced
    _steps: tuple[_Step, ...] | None
    """None where they were too large to keep."""

    def complete(self, prices: Ints, kept: Ints) -> Ints:
        """For each row of `kept` [rows, kept nodes] a best choice of every node at prices[row], [rows, nodes]."""
        choices = np.zeros((len(kept), len(self._problem.node_costs)), dtype=np.int64)
        choices[:, list(self.keep)] = kept
        if self._steps is not None:
            _go_back(self._steps, prices, choices)
            return choices
        # What is left when the kept nodes are given is narrow: it is eliminated again, rows in place of prices.
        sizes = tuple(1 if v in self.keep else c.shape[1] for v, c in enumerate(self._problem.node_costs))
        order = _order(*_shape_of(self._problem, sizes), frozenset())
        together = max(1, int(STEPS_ENTRIES / max(order.table_entries, 1)))
        for start in range(0, len(kept), together):
            rows = slice(start, start + together)
            _, steps = _eliminated(self._problem.given(self.keep, prices[rows], kept[rows]), (), order)
            _go_back(steps, np.arange(len(kept[rows])), choices[rows])
        return choices


def contract(problem: Priced, keep: tuple[int, ...], limits: Limits = LIMITS) -> Contraction | None:
    """`problem` as a table over `keep`; None where that is too wide."""
    sizes = tuple(c.shape[1] for c in problem.node_costs)
    if math.prod(sizes[v] for v in keep) > limits.largest_table:
        return None
    order = _order(*_shape_of(problem, sizes, keep), frozenset(keep))
    if not limits.allow(order):
        return None
    prices = max(len(c) for c in (*problem.node_costs, *problem.edge_costs))
    together = max(1, int(STEPS_ENTRIES / max(order.table_entries, 1)))
    if prices <= together:
        table, steps = _eliminated(problem, keep, order)
        kept: tuple[_Step, ...] | None = tuple(steps)
    else:
        some = [np.arange(start, min(start + together, prices)) for start in range(0, prices, together)]
        tables = [_eliminated(problem.at(here), keep, order)[0] for here in some]
        table = np.concatenate([np.broadcast_to(t, (len(h), *t.shape[1:])) for h, t in zip(some, tables, strict=True)])
        kept = None
    whole = (table.shape[0], *(sizes[v] for v in keep))
    return Contraction(table=np.broadcast_to(table, whole), keep=keep, _problem=problem, _steps=kept)


def _go_back(steps: Sequence[_Step], prices: Ints, choices: Ints) -> None:
    """Fill in the best choice of each node that was minimised out, row by row, at prices[row]."""
    for step in reversed(steps):
        total = _at(step.costs, prices)
        for scope, table in step.tables:
            first = prices if len(table) > 1 else np.zeros_like(prices)
            at: list[Any] = [first, slice(None), *(choices[:, u] for u in scope[1:])]
            # Index arrays on both sides of the slice come first in the result: [rows, strategies].
            total = total + table[tuple(at)]
        choices[:, step.node] = total.argmin(axis=1)


def _shape_of(
    problem: Priced, sizes: tuple[int, ...], keep: Collection[int] = ()
) -> tuple[tuple[int, ...], tuple[tuple[int, int], ...]]:
    """Sizes and edges; a node with one strategy is no more than a cost of its neighbours."""
    free = [size > 1 or v in keep for v, size in enumerate(sizes)]
    return sizes, tuple(dict.fromkeys((min(e), max(e)) for e in problem.edges if free[e[0]] and free[e[1]]))


def _eliminated(problem: Priced, keep: tuple[int, ...], order: EliminationOrder) -> tuple[Floats, list[_Step]]:
    """The table over `keep`, and the steps to it."""
    sizes = tuple(c.shape[1] for c in problem.node_costs)
    free = tuple(size > 1 or v in keep for v, size in enumerate(sizes))
    fixed = tuple(v for v, is_free in enumerate(free) if not is_free)
    numbered = (*(v for v in order.nodes if free[v]), *keep)
    place = {v: i for i, v in enumerate(numbered)}
    costs = [without_forbidden(problem.node_costs[v]) for v in numbered]
    tables: list[dict[Scope, Floats]] = [{} for _ in numbered]
    loose: Floats = sum((without_forbidden(problem.node_costs[v])[:, 0] for v in fixed), start=np.zeros(1))

    def add(scope: Scope, table: Floats) -> None:
        nonlocal loose
        if not scope:
            loose = loose + table
        elif len(scope) == 1:
            costs[scope[0]] = costs[scope[0]] + table
        else:
            present = tables[scope[0]].get(scope)
            total = table if present is None else present + table
            for i in scope:
                tables[i][scope] = total

    for (a, b), matrix in zip(problem.edges, problem.edge_costs, strict=True):
        table = without_forbidden(matrix)
        if not free[a]:
            a, b, table = b, a, table.transpose(0, 2, 1)
        if not free[a]:
            add((), table[:, 0, 0])
        elif not free[b]:
            add((place[a],), table[:, :, 0])
        else:
            i, j = place[a], place[b]
            add((min(i, j), max(i, j)), table if i < j else table.transpose(0, 2, 1))
    steps = []
    for i, v in enumerate(numbered[: len(numbered) - len(keep)]):
        # Numbered in the order in which they go, the node is the first of every scope that it is in.
        here = tuple(tables[i].items())
        scopes = tuple((tuple(numbered[u] for u in scope), table) for scope, table in here)
        steps.append(_Step(node=v, costs=costs[i], tables=scopes))
        for scope, _ in here:
            for u in scope:
                del tables[u][scope]
        rest = tuple(sorted({u for scope, _ in here for u in scope[1:]}))
        add(rest, _minimised(costs[i], i, rest, here))
    first = len(numbered) - len(keep)
    scope = tuple(range(first, len(numbered)))
    table = loose.reshape(-1, *(1 for _ in keep))
    for i in scope:
        table = table + _spread(costs[i], (i,), scope)
        for inner, part in tables[i].items():
            if inner[0] == i:
                table = table + _spread(part, inner, scope)
    return table, steps


@lru_cache(maxsize=1024)
def _order(sizes: tuple[int, ...], edges: tuple[tuple[int, int], ...], keep: frozenset[int]) -> EliminationOrder:
    """Layers of one model have the same sizes on many meshes."""
    return elimination_order(sizes, edges, keep)


def _at(costs: Floats, prices: Ints) -> Floats:
    return costs[prices] if len(costs) > 1 else costs


def _spread(table: Floats, inner: Scope, scope: Sequence[int]) -> Floats:
    """`table` [prices, *inner] with an axis of length 1 for every other node of `scope`."""
    sizes = dict(zip(inner, table.shape[1:], strict=True))
    return table.reshape(len(table), *(sizes.get(u, 1) for u in scope))


def _minimised(costs: Floats, node: int, rest: Scope, tables: Sequence[tuple[Scope, Floats]]) -> Floats:
    """min over the strategies of `node` of costs + Σ tables, [prices, *rest]."""
    scope = (node, *rest)
    parts = [_spread(costs, (node,), scope), *(_spread(table, inner, scope) for inner, table in tables)]
    prices, *shape = np.broadcast_shapes(*(part.shape for part in parts))
    if not rest or prices * math.prod(shape) <= BROADCAST_ENTRIES:
        parts.sort(key=lambda part: part.size)
        total = parts[0]
        for part in parts[1:]:
            total = total + part
        return np.asarray(total.min(axis=1))
    return _kernel(parts, (prices, *shape)).reshape(prices, *shape[1:])


def _kernel(parts: list[Floats], whole: tuple[int, ...]) -> Floats:
    """min over axis 1 of the sum of `parts`, which broadcast to `whole`; the axes that are left are not told apart."""
    # Neighbouring axes that every part has or lacks together are one axis.
    axes = [whole[0], whole[1], whole[2]]
    shapes = [list(part.shape[:3]) for part in parts]
    for axis in range(3, len(whole)):
        alike = all(
            (part.shape[axis] > 1) == (shape[-1] > 1) or whole[axis] == 1
            for part, shape in zip(parts, shapes, strict=True)
        )  # fmt: skip
        if alike and len(axes) > 2:
            axes[-1] *= whole[axis]
            for part, shape in zip(parts, shapes, strict=True):
                shape[-1] *= part.shape[axis]
        else:
            axes.append(whole[axis])
            for part, shape in zip(parts, shapes, strict=True):
                shape.append(part.shape[axis])
    # First what has the last axis, the largest of it ahead: that one is read where it is.
    order = sorted(range(len(parts)), key=lambda i: (shapes[i][-1] == 1, -parts[i].size))
    outer = (axes[0], *axes[2:-1])
    starts, steps, begin = [], [], 0
    for i in order:
        shape = shapes[i]
        # Elements from one entry to the next along each axis; an axis of length 1 stays where it is.
        strides = [math.prod(shape[axis + 1 :]) if shape[axis] > 1 else 0 for axis in range(len(shape))]
        at = np.full(outer, begin, dtype=np.int64)
        for axis, stride in enumerate((strides[0], *strides[2:-1])):
            if stride:
                at += (np.arange(outer[axis]) * stride).reshape(-1, *(1 for _ in outer[axis + 1 :]))
        starts.append(at.ravel())
        steps.append(strides[1])
        begin += parts[i].size if starts[1:] else 0
    found = np.empty((math.prod(outer), axes[-1]))
    contract_kernels.minimise(
        parts[order[0]].ravel(), starts[0], steps[0],
        np.concatenate([np.zeros(0), *(parts[i].ravel() for i in order[1:])]),
        np.array(starts[1:]), np.array(steps[1:], dtype=np.int64),
        sum(shapes[i][-1] > 1 for i in order[1:]), whole[1], found,
    )  # fmt: skip
    return found
