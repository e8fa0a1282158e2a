"""Elimination that keeps the tables of every step, for computations backwards through the order.

Step i eliminates node v = order[i]: the tables that read v then, and the message that replaces them,

    m_i(N(v)) = min_k ( Σ_f f(v=k, N(v)) )

A pass backwards from the last step gives for every message the least cost of everything outside it: `regrets` and the
bounds of `memory.pareto_bounds` are such passes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from alpa_explore.intra_op.reduction.tables import Scope, Table, sum_tables
from alpa_explore.numerics.arrays import Floats

INPUT = -1
"""Origin of a table that no step made."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Step:
    """One elimination."""

    node: int
    tables: tuple[Table, ...]
    """The tables that read `node` at this step: first those that were given, in their order, then messages."""
    origins: tuple[int, ...]
    """For each of `tables` the step whose message it is, or INPUT."""
    scope: Scope
    """The nodes that share a table with `node`, ascending."""
    message: Floats
    """One axis for each node in `scope`."""

    @property
    def axes(self) -> Scope:
        """The node and its scope: the axes of the join."""
        return (self.node, *self.scope)


def forward_pass(tables: Sequence[Table], order: Sequence[int]) -> list[Step]:
    """Eliminate every node that `tables` read, in `order`; every node has at least one table of its own."""
    place = {v: i for i, v in enumerate(order)}
    waiting: list[list[tuple[int, Table]]] = [[] for _ in order]
    """For each step the tables whose first eliminated node is that of the step, with their origins."""
    for scope, costs in tables:
        waiting[min(place[u] for u in scope)].append((INPUT, (scope, costs)))
    steps: list[Step] = []
    for number, v in enumerate(order):
        origins = tuple(origin for origin, _ in waiting[number])
        reading = tuple(table for _, table in waiting[number])
        scope = tuple(sorted({u for read, _ in reading for u in read} - {v}))
        message = sum_tables(reading, (v, *scope)).min(axis=0)
        steps.append(Step(node=v, tables=reading, origins=origins, scope=scope, message=message))
        if scope:
            waiting[min(place[u] for u in scope)].append((number, (scope, message)))
    return steps
