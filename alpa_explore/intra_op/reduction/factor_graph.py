"""The working state of the exact reductions: nodes, cost tables over them, and a trail for back substitution.

A problem is a sum of tables (factors). Every operation here keeps the least total cost:

    eliminate v     tables that read v  →  one table  m(u…) = min_k ( c_v[k] + Σ tables(…, v=k, …) )     (min-plus)
    restrict v      strategies that no optimal choice needs are cut out of every table that reads v
    fold v          a node with one strategy becomes a constant part of its neighbours' costs

Each is recorded on the trail; `back_substitute` reads the trail from its end and completes the choices. A
forbidden entry is `inf`: tables are only added and minimised, so that inf − inf cannot arise and no precision is lost
to 1e18.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from alpa_explore.intra_op.problem.sharding_problem import FORBIDDEN, ShardingProblem
from alpa_explore.intra_op.reduction import tuning
from alpa_explore.numerics.arrays import Floats, Ints

Scope: TypeAlias = tuple[int, ...]
"""The nodes that a table reads, ascending: one array axis each."""
Table: TypeAlias = tuple[Scope, Floats]


def without_forbidden(costs: Floats) -> Floats:
    """The costs with every forbidden entry as inf."""
    # Most tables hold none, and need no copy.
    return np.where(costs >= FORBIDDEN, np.inf, costs) if costs.size and costs.max() >= FORBIDDEN else costs


def sum_tables(tables: Sequence[Table], axes: Scope, sizes: Sequence[int] | None = None) -> Floats:
    """The sum of `tables` as an array with the nodes `axes` in that order.

    An axis that no table reads has length 1, or its length in `sizes` where that is given.
    """
    total: Floats = np.zeros(sizes if sizes is not None else (1,) * len(axes))
    for scope, table in tables:
        shape = [1] * len(axes)
        places = [axes.index(u) for u in scope]
        for place, size in zip(places, np.shape(table), strict=True):
            shape[place] = size
        # A scope is ascending, `axes` need not be: the node to be eliminated often comes first.
        ordered = table if places == sorted(places) else np.transpose(table, np.argsort(places))
        total = total + ordered.reshape(shape)
    return total


class Contradiction(Exception):
    """No choice satisfies every node; `node` is where that was detected. Internal: `solve` turns it into a status."""

    def __init__(self, node: int) -> None:
        super().__init__(f"node {node} has no strategy left")
        self.node = node


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Eliminated:
    """Node `node` was minimised out; its optimal strategy follows from the choices of the other nodes in `tables`."""

    node: int
    costs: Floats
    tables: tuple[Table, ...]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Restricted:
    """Strategy i of `node` after this step was strategy kept[i] before it."""

    node: int
    kept: Ints


Trail = tuple[Eliminated | Restricted, ...]


class FactorGraph:
    """Mutable; lives inside one pass. `costs[v]` is the cost vector of node v, `tables[v]` the tables that read v."""

    def __init__(self, problem: ShardingProblem) -> None:
        self.costs: list[Floats] = [without_forbidden(vector) for vector in problem.node_costs]
        self.tables: list[dict[Scope, Floats]] = [{} for _ in problem.node_costs]
        self.constant = 0.0
        self.trail: list[Eliminated | Restricted] = []
        for (a, b), matrix in zip(problem.edges, problem.edge_costs, strict=True):
            costs = without_forbidden(matrix)
            if a < b:
                self.add((a, b), costs)
            else:
                self.add((b, a), costs.T)

    def add(self, scope: Scope, table: Floats) -> None:
        """Add a table; it is merged into one with the same scope (a parallel edge)."""
        if not scope:
            self.constant += float(table)
        elif len(scope) == 1:
            self.costs[scope[0]] = self.costs[scope[0]] + table
        else:
            present = self.tables[scope[0]].get(scope)
            total = table if present is None else present + table
            for v in scope:
                self.tables[v][scope] = total

    def neighbours(self, v: int) -> set[int]:
        """Nodes that share a table with v."""
        nodes = {u for scope in self.tables[v] for u in scope}
        nodes.discard(v)
        return nodes

    def eliminate(self, v: int) -> Scope:
        """Minimise v out of the tables that read it; returns the scope of the table that replaces them."""
        tables = tuple(self.tables[v].items())
        costs = self.costs[v]
        self.trail.append(Eliminated(node=v, costs=costs, tables=tables))
        if not tables:
            least = float(costs.min()) if costs.size else np.inf
            if least == np.inf:
                raise Contradiction(v)
            self.constant += least
            return ()
        scope = tuple(sorted(self.neighbours(v)))
        self._remove(tables)
        self.add(scope, _minimise(costs, v, scope, tables))
        return scope

    def fold(self, v: int) -> Scope:
        """Make v, which has one strategy, a constant part of its neighbours; returns them."""
        tables = tuple(self.tables[v].items())
        self.trail.append(Eliminated(node=v, costs=self.costs[v], tables=()))
        if self.costs[v][0] == np.inf:
            raise Contradiction(v)
        self.constant += float(self.costs[v][0])
        self._remove(tables)
        for scope, table in tables:
            self.add(tuple(u for u in scope if u != v), np.asarray(table.take(0, axis=scope.index(v))))
        return tuple({u for scope, _ in tables for u in scope if u != v})

    def restrict(self, v: int, kept: Ints) -> None:
        """Keep only the strategies `kept` (ascending) of v."""
        if not kept.size:
            raise Contradiction(v)
        self.trail.append(Restricted(node=v, kept=kept))
        self.costs[v] = self.costs[v][kept]
        for scope, table in self.tables[v].items():
            smaller = table.take(kept, axis=scope.index(v))
            for u in scope:
                self.tables[u][scope] = smaller

    def pairwise_problem(self, nodes: Sequence[int], name: str) -> ShardingProblem:
        """The remaining problem on `nodes`, numbered in that order; every table must read exactly two nodes."""
        position = {v: i for i, v in enumerate(nodes)}
        pairs = [(scope, table) for v in nodes for scope, table in self.tables[v].items() if scope[0] == v]
        return ShardingProblem(
            name=name,
            node_costs=tuple(np.minimum(self.costs[v], FORBIDDEN) for v in nodes),
            edges=tuple((position[a], position[b]) for (a, b), _ in pairs),
            edge_costs=tuple(np.minimum(table, FORBIDDEN) for _, table in pairs),
        )

    def _remove(self, tables: Iterable[Table]) -> None:
        for scope, _ in tables:
            for u in scope:
                del self.tables[u][scope]


def back_substitute(trail: Trail, choices: list[int]) -> None:
    """Complete `choices` in place; it has an entry per node, already optimal for the nodes that the trail left over."""
    for step in reversed(trail):
        v = step.node
        if isinstance(step, Restricted):
            choices[v] = int(step.kept[choices[v]])
            continue
        total = step.costs
        for scope, table in step.tables:
            total = total + table[tuple(slice(None) if u == v else choices[u] for u in scope)]
        choices[v] = int(total.argmin())


def _minimise(costs: Floats, v: int, scope: Scope, tables: Iterable[Table]) -> Floats:
    """min over the strategies of v of costs + Σ tables, as a table over `scope`."""
    parts = []
    shape = [1] * len(scope)
    for other, table in tables:
        axis = other.index(v)
        spread = [1] * (len(scope) + 1)
        spread[0] = len(costs)
        for u, size in zip(other, table.shape, strict=True):
            if u != v:
                place = scope.index(u)
                spread[place + 1] = shape[place] = size
        # v comes first: a minimum over the first axis runs over contiguous rows.
        parts.append(table.transpose(axis, *(i for i in range(table.ndim) if i != axis)).reshape(spread))
    parts.sort(key=lambda part: part.size)
    parts[0] = parts[0] + costs.reshape((-1,) + (1,) * len(scope))
    entries = int(np.prod(shape))
    if entries * len(costs) <= tuning.JOIN_BROADCAST_ENTRIES:
        total = parts[0]
        for part in parts[1:]:
            total = total + part
        return np.asarray(total.min(axis=0))
    return _minimise_in_blocks([np.ascontiguousarray(part) for part in parts], shape)


def _minimise_in_blocks(parts: list[Floats], shape: list[int]) -> Floats:
    """The same minimum, strategy after strategy of v, in blocks of the first axis that stay in the cache."""
    result = np.empty(shape)
    rows = max(1, tuning.JOIN_BLOCK_ENTRIES * shape[0] // max(result.size, 1))
    for start in range(0, shape[0], rows):
        block = result[start : start + rows]
        block.fill(np.inf)
        *smaller, largest = [part if part.shape[1] == 1 else part[:, start : start + rows] for part in parts]
        buffer = np.empty_like(block)
        for k in range(len(largest)):
            total = smaller[0][k] if smaller else 0.0
            for part in smaller[1:]:
                total = total + part[k]
            np.add(total, largest[k], out=buffer)
            np.minimum(block, buffer, out=block)
    return result
