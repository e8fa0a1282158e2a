"""Exact reductions of a sharding problem before it is solved: a smaller problem with the same least cost.

    arc consistency   a strategy that some edge forbids with every strategy of the other node is dropped
    folding           a node with one strategy becomes part of its neighbours; parallel edges are added up
    elimination       a node with at most two neighbours is minimised out (min-plus), which adds at most one edge

The last two are repeated until none applies. All three keep at least one optimal choice; `Simplified.restore`
completes a choice for the remaining problem (the core) to one for the original. `decompose` also splits the core into
connected components, and puts their choices together.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from alpa_explore.intra_op.problem.sharding_problem import Choices, ShardingProblem
from alpa_explore.intra_op.reduction.arc_consistency import Neighbour, propagate
from alpa_explore.intra_op.reduction.factor_graph import FactorGraph, Trail, back_substitute

MAX_NEW_TABLE_ENTRIES = 1 << 22
"""A node of degree two stays where the edge that would replace it had more entries than this (32 MiB). Not critical:
half or twice of it changes the time of benchmarks/tuning_constants.py by less than 7 %."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Simplified:
    """`core` and `constant`: least cost of the problem = constant + least cost of the core."""

    core: ShardingProblem
    nodes: tuple[int, ...]
    """For each node of the core its number in the problem."""
    constant: float
    trail: Trail
    num_nodes: int

    def restore(self, core_choices: Choices) -> Choices:
        """The choice for the whole problem that belongs to a choice for the core."""
        choices = [0] * self.num_nodes
        for node, choice in zip(self.nodes, core_choices, strict=True):
            choices[node] = choice
        back_substitute(self.trail, choices)
        return tuple(choices)


def simplify(problem: ShardingProblem, *, keep: frozenset[int] = frozenset()) -> Simplified:
    """Reduce `problem`. Raises Contradiction (infeasible).

    Nodes in `keep` stay in the core, with all their consistent strategies.
    """
    graph = FactorGraph(problem)
    present = set(range(len(problem.node_costs)))
    _make_consistent(graph)
    _remove_narrow(graph, present, keep)
    nodes = tuple(sorted(present))
    return Simplified(
        core=graph.problem(nodes, problem.name),
        nodes=nodes,
        constant=graph.constant,
        trail=tuple(graph.trail),
        num_nodes=len(problem.node_costs),
    )


def _make_consistent(graph: FactorGraph) -> None:
    """Restrict every node to its arc-consistent strategies."""
    neighbours: list[list[Neighbour]] = [[] for _ in graph.costs]
    for v, tables in enumerate(graph.tables):
        for u, table in tables.items():
            if v < u and table.size and table.max() == np.inf:
                legal = table < np.inf
                neighbours[v].append((legal, u))
                neighbours[u].append((legal.T, v))
    alive = [costs < np.inf for costs in graph.costs]
    propagate(alive, neighbours, [v for v, edges in enumerate(neighbours) if edges])
    for v, flags in enumerate(alive):
        if not flags.all():
            graph.restrict(v, np.flatnonzero(flags))


def _remove_narrow(graph: FactorGraph, present: set[int], keep: frozenset[int]) -> None:
    """Fold one-strategy nodes and eliminate nodes with at most two neighbours, smallest new table first."""

    def new_entries(v: int) -> int | None:
        """Entries of the table that would replace v; None when v stays."""
        if len(graph.costs[v]) <= 1:
            return 0
        if v in keep or len(graph.tables[v]) > 2:
            return None
        entries = 1
        for u in graph.tables[v]:
            entries *= len(graph.costs[u])
        return entries if entries <= MAX_NEW_TABLE_ENTRIES else None

    heap = [(entries, v) for v in present if (entries := new_entries(v)) is not None]
    heapq.heapify(heap)
    while heap:
        entries, v = heapq.heappop(heap)
        if v not in present or new_entries(v) != entries:
            continue
        present.discard(v)
        changed = graph.fold(v) if len(graph.costs[v]) == 1 else graph.eliminate(v)
        for u in changed:
            if (updated := new_entries(u)) is not None:
                heapq.heappush(heap, (updated, u))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Decomposition:
    """A problem as independent components: its least cost = constant + Σ least costs of `components`."""

    simplified: Simplified
    nodes: tuple[tuple[int, ...], ...]
    """For each component its nodes in the core of `simplified`."""
    components: tuple[ShardingProblem, ...]

    @property
    def constant(self) -> float:
        """The cost that every optimal choice pays outside the components."""
        return self.simplified.constant

    def restore(self, component_choices: Sequence[Choices]) -> Choices:
        """The choice for the whole problem from one for each component; optimal when those are."""
        core = [0] * len(self.simplified.nodes)
        for nodes, choices in zip(self.nodes, component_choices, strict=True):
            for v, choice in zip(nodes, choices, strict=True):
                core[v] = choice
        return self.simplified.restore(tuple(core))


def decompose(problem: ShardingProblem) -> Decomposition:
    """Simplify `problem` and split what is left. Raises Contradiction where the simplification finds no choice."""
    simplified = simplify(problem)
    parts = components(simplified.core)
    return Decomposition(
        simplified=simplified, nodes=tuple(nodes for nodes, _ in parts), components=tuple(part for _, part in parts)
    )


def components(problem: ShardingProblem) -> tuple[tuple[tuple[int, ...], ShardingProblem], ...]:
    """The connected components of a problem: the nodes of each, and the problem on them alone."""
    neighbours: list[list[int]] = [[] for _ in problem.node_costs]
    for a, b in problem.edges:
        neighbours[a].append(b)
        neighbours[b].append(a)
    component_of = [-1] * len(neighbours)
    members: list[list[int]] = []
    for root in range(len(neighbours)):
        if component_of[root] >= 0:
            continue
        component_of[root], stack, component = len(members), [root], []
        while stack:
            v = stack.pop()
            component.append(v)
            for u in neighbours[v]:
                if component_of[u] < 0:
                    component_of[u] = len(members)
                    stack.append(u)
        members.append(sorted(component))
    if len(members) == 1:
        return ((tuple(members[0]), problem),)
    position = {v: i for component in members for i, v in enumerate(component)}
    edges_of: list[list[int]] = [[] for _ in members]
    for e, (a, _) in enumerate(problem.edges):
        edges_of[component_of[a]].append(e)
    return tuple(
        (
            tuple(component),
            ShardingProblem(
                name=problem.name,
                node_costs=tuple(problem.node_costs[v] for v in component),
                edges=tuple((position[problem.edges[e][0]], position[problem.edges[e][1]]) for e in edges),
                edge_costs=tuple(problem.edge_costs[e] for e in edges),
            ),
        )
        for component, edges in zip(members, edges_of, strict=True)
    )
