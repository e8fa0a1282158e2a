"""The working state of the exact reductions: nodes, cost tables over them, and a trail for back substitution.

A problem is a sum of tables (factors). Every operation here keeps the least total cost:

    eliminate v     tables to u and w  →  one table  m[i, j] = min_k ( c_v[k] + t_vu[k, i] + t_vw[k, j] )    (min-plus)
    restrict v      strategies that no optimal choice needs are cut out of the tables of v
    fold v          a node with one strategy becomes a constant part of its neighbours' costs

Each is recorded on the trail; `back_substitute` reads the trail from its end and completes the choices. A
forbidden entry is `inf`: tables are only added and minimised, so that inf − inf cannot arise and no precision is lost
to 1e18.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from alpa_explore.intra_op.problem.sharding_problem import FORBIDDEN, ShardingProblem
from alpa_explore.numerics.arrays import Floats, Ints
from alpa_explore.numerics.compiled import compiled

Scope: TypeAlias = tuple[int, ...]
"""The nodes that a table reads, ascending: one array axis each."""
Table: TypeAlias = tuple[Scope, Floats]


def without_forbidden(costs: Floats) -> Floats:
    """The costs with every forbidden entry as inf."""
    # Most tables hold none, and need no copy.
    return np.where(costs >= FORBIDDEN, np.inf, costs) if costs.size and costs.max() >= FORBIDDEN else costs


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
    """Mutable; lives inside one pass. `costs[v]` is the cost vector of node v, tables[v][u] the table between v and u,
    [strategies of v, strategies of u]."""

    def __init__(self, problem: ShardingProblem) -> None:
        self.costs: list[Floats] = [without_forbidden(vector) for vector in problem.node_costs]
        self.tables: list[dict[int, Floats]] = [{} for _ in problem.node_costs]
        self.constant = 0.0
        self.trail: list[Eliminated | Restricted] = []
        for (a, b), matrix in zip(problem.edges, problem.edge_costs, strict=True):
            self._add(a, b, without_forbidden(matrix))

    def _add(self, a: int, b: int, table: Floats) -> None:
        """Add a table; it is merged into one between the same nodes (a parallel edge)."""
        present = self.tables[a].get(b)
        self._set(a, b, table if present is None else present + table)

    def _set(self, a: int, b: int, table: Floats) -> None:
        self.tables[a][b], self.tables[b][a] = table, table.T

    def eliminate(self, v: int) -> tuple[int, ...]:
        """Minimise v, which has at most two neighbours, out of the tables that read it; returns the neighbours."""
        costs, tables = self.costs[v], self.tables[v]
        self.trail.append(Eliminated(node=v, costs=costs, tables=tuple(_pairs(v, tables))))
        self._remove(v)
        if not tables:
            least = float(costs.min(initial=np.inf))
            if least == np.inf:
                raise Contradiction(v)
            self.constant += least
            return ()
        neighbours = tuple(sorted(tables, key=lambda u: tables[u].size))
        bases = tables[neighbours[0]].T + costs
        if len(neighbours) == 1:
            self.costs[neighbours[0]] = self.costs[neighbours[0]] + bases.min(axis=1)
            return neighbours
        # A copy: a kernel is compiled again for a read-only array.
        other = np.array(tables[neighbours[1]], order="C")
        product = np.empty((len(bases), other.shape[1]))
        min_plus_product(np.ascontiguousarray(bases)[None], other[None], product[None])
        self._add(neighbours[0], neighbours[1], product)
        return neighbours

    def fold(self, v: int) -> tuple[int, ...]:
        """Make v, which has one strategy, a constant part of its neighbours; returns them."""
        self.trail.append(Eliminated(node=v, costs=self.costs[v], tables=()))
        if self.costs[v][0] == np.inf:
            raise Contradiction(v)
        self.constant += float(self.costs[v][0])
        tables = self.tables[v]
        self._remove(v)
        for u, table in tables.items():
            self.costs[u] = self.costs[u] + table[0]
        return tuple(tables)

    def restrict(self, v: int, kept: Ints) -> None:
        """Keep only the strategies `kept` (ascending) of v."""
        if not kept.size:
            raise Contradiction(v)
        self.trail.append(Restricted(node=v, kept=kept))
        self.costs[v] = self.costs[v][kept]
        for u, table in self.tables[v].items():
            self._set(v, u, table[kept])

    def problem(self, nodes: Sequence[int], name: str) -> ShardingProblem:
        """The remaining problem on `nodes`, numbered in that order."""
        position = {v: i for i, v in enumerate(nodes)}
        pairs = [(v, u, table) for v in nodes for u, table in self.tables[v].items() if v < u]
        return ShardingProblem(
            name=name,
            node_costs=tuple(np.minimum(self.costs[v], FORBIDDEN) for v in nodes),
            edges=tuple((position[a], position[b]) for a, b, _ in pairs),
            edge_costs=tuple(np.minimum(table, FORBIDDEN) for _, _, table in pairs),
        )

    def _remove(self, v: int) -> None:
        for u in self.tables[v]:
            del self.tables[u][v]


def _pairs(v: int, tables: Mapping[int, Floats]) -> Iterator[Table]:
    """The tables of v by their scopes."""
    for u, table in tables.items():
        yield ((v, u), table) if v < u else ((u, v), table.T)


@compiled(fastmath={"nnan", "nsz", "contract"})
def min_plus_product(a: Floats, b: Floats, product: Floats) -> None:
    """product[p, i, j] = min over k of a[p, i, k] + b[p, k, j]."""
    for p in range(len(product)):
        for i in range(a.shape[1]):
            row = product[p, i]
            for j in range(len(row)):
                row[j] = np.inf
            for k in range(b.shape[1]):
                base = a[p, i, k]
                if base < np.inf:
                    for j in range(len(row)):
                        row[j] = min(row[j], base + b[p, k, j])


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
