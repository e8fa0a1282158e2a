"""A problem contracted to a table over a few of its nodes: all others are minimised out, exactly.

table[k] = min { cost of a choice that holds the strategies k at the kept nodes }
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from alpa_explore.intra_op.elimination import Limits
from alpa_explore.intra_op.elimination_order import elimination_order
from alpa_explore.intra_op.factor_graph import (
    Contradiction,
    FactorGraph,
    Ints,
    Restricted,
    Scope,
    back_substitute,
    joined,
)
from alpa_explore.intra_op.problem import Floats, ShardingProblem
from alpa_explore.intra_op.simplify import Simplified, simplify

LIMITS = Limits(joined_entries=1e9, largest_table=4e6, table_entries=4e7)
NARROW = 2e7
"""Joined entries below which looking for dominated strategies costs more than it saves."""
HOPELESS = 20.0
"""So many times too many entries to join that dropping dominated strategies will not help."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Contraction:
    """The table, and the way back to a choice for every node."""

    table: Floats
    """One axis for each kept node, in the order in which they were given; inf where no choice is legal."""
    _keep: tuple[int, ...]
    _kept: tuple[Ints, ...]
    """For each kept node the strategies that have a legal partner."""
    _simplified: Simplified
    _core: FactorGraph
    _order: tuple[int, ...]
    """Nodes of `_core` by their number in the simplified core."""

    def complete(self, choices: tuple[int, ...]) -> tuple[int, ...]:
        """A best choice of every node that holds `choices` at the kept ones; they must be legal."""
        core = [0] * len(self._order)
        place = {v: i for i, v in enumerate(self._order)}
        number = {v: i for i, v in enumerate(self._simplified.nodes)}
        for v, kept, choice in zip(self._keep, self._kept, choices, strict=True):
            if v in number:
                core[place[number[v]]] = int(np.searchsorted(kept, choice))
        back_substitute(tuple(self._core.trail), core)
        return self._simplified.restore(tuple(core[place[i]] for i in range(len(core))))


def contract(problem: ShardingProblem, keep: tuple[int, ...], limits: Limits = LIMITS) -> Contraction | None:
    """`problem` as a table over `keep`; None where that is too wide. Raises Contradiction when nothing is legal."""
    if math.prod(len(problem.node_costs[v]) for v in keep) > limits.largest_table:
        return None
    for dominance in (False, True):
        simplified = simplify(problem, dominance=dominance, keep=frozenset(keep))
        core = simplified.core
        number = {v: i for i, v in enumerate(simplified.nodes)}
        at = [number[v] for v in keep if v in number]  # a node with one strategy is in none of the tables
        order = elimination_order([len(c) for c in core.node_costs], core.edges, frozenset(at))
        if order.joined_entries <= NARROW or order.joined_entries > HOPELESS * limits.joined_entries:
            break
    if not limits.allow(order):
        return None
    # Numbered in this order, the node to go is always the first axis of its tables, and the kept ones are the last.
    numbered = (*order.nodes, *at)
    place = {v: i for i, v in enumerate(numbered)}
    graph = FactorGraph(
        ShardingProblem(
            name=problem.name,
            node_costs=tuple(core.node_costs[v] for v in numbered),
            edges=tuple((place[a], place[b]) for a, b in core.edges),
            edge_costs=core.edge_costs,
        )
    )
    for i in range(len(order.nodes)):
        graph.eliminate(i)
    kept = tuple(_left(simplified, v, len(problem.node_costs[v])) for v in keep)
    first = len(order.nodes)
    tables: dict[Scope, Floats] = {(first + i,): graph.costs[first + i] for i in range(len(at))}
    for i in range(len(at)):
        tables.update(graph.tables[first + i])
    _, total = joined(tuple(tables.items()))
    table = np.full([len(problem.node_costs[v]) for v in keep], np.inf)
    table[np.ix_(*kept)] = total.reshape([len(k) for k in kept]) + (graph.constant + simplified.constant)
    if table.size and table.min() == np.inf:
        raise Contradiction(keep[0])
    return Contraction(table=table, _keep=keep, _kept=kept, _simplified=simplified, _core=graph, _order=numbered)


def _left(simplified: Simplified, v: int, size: int) -> Ints:
    """The strategies of v that are left."""
    kept = np.arange(size)
    for step in simplified.trail:
        if isinstance(step, Restricted) and step.node == v:
            kept = kept[step.kept]
    return kept
