"""Exact solution by min-plus variable elimination.

For the nodes v in an order π, with the tables f that read v at that moment,

    m_v(N(v)) = min_k ( c_v[k] + Σ_f f(v=k, N(v)) )

takes their place (`FactorGraph.eliminate`). After the last node the constant is the least cost; backwards through π
each node takes the k that attained its minimum. Time and memory are exponential in the induced width of the order, not
in the length of the graph: a transformer of any depth stays narrow. `elimination_order` computes the cost beforehand.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from alpa_explore.intra_op.elimination import tuning
from alpa_explore.intra_op.elimination.elimination_order import EliminationOrder, cheap_order, elimination_order
from alpa_explore.intra_op.problem.sharding_problem import Choices, ShardingProblem
from alpa_explore.intra_op.reduction.factor_graph import FactorGraph, back_substitute


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """When an elimination is too wide. The defaults are about 10 s and 1 GB on one core."""

    joined_entries: float = tuning.MAX_JOINED_ENTRIES
    largest_table: float = tuning.MAX_TABLE_ENTRIES
    table_entries: float = tuning.MAX_TOTAL_ENTRIES

    def within(self, seconds: float | None) -> Limits:
        """The limits tightened to what can be done in `seconds`."""
        if seconds is None:
            return self
        return replace(self, joined_entries=min(self.joined_entries, tuning.JOINS_A_SECOND * seconds))

    def allow(self, order: EliminationOrder) -> bool:
        """True when `order` stays below all of them."""
        return (
            order.joined_entries <= self.joined_entries
            and order.largest_table <= self.largest_table
            and order.table_entries <= self.table_entries
        )


def order_of(problem: ShardingProblem) -> EliminationOrder:
    """A good elimination order for `problem`, and its cost."""
    return elimination_order([len(vector) for vector in problem.node_costs], problem.edges)


def cheap_order_of(problem: ShardingProblem) -> EliminationOrder | None:
    """A cheap order found by one greedy rule; None where that rule finds none (`order_of` searches for one)."""
    return cheap_order([len(vector) for vector in problem.node_costs], problem.edges)


def eliminate(problem: ShardingProblem, order: EliminationOrder) -> Choices:
    """An optimal choice for `problem`. Raises Contradiction when there is none."""
    # Numbered in this order, the node to eliminate is always the first axis of its tables: no table is transposed.
    place = {v: i for i, v in enumerate(order.nodes)}
    graph = FactorGraph(
        ShardingProblem(
            name=problem.name,
            node_costs=tuple(problem.node_costs[v] for v in order.nodes),
            edges=tuple((place[a], place[b]) for a, b in problem.edges),
            edge_costs=problem.edge_costs,
        )
    )
    for i in range(len(order.nodes)):
        graph.eliminate(i)
    choices = [0] * len(order.nodes)
    back_substitute(tuple(graph.trail), choices)
    return tuple(choices[place[v]] for v in range(len(choices)))
