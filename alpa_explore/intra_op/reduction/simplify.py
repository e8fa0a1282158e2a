"""Exact reductions of a sharding problem before it is solved: a smaller problem with the same least cost.

    arc consistency   a strategy that some edge forbids with every strategy of the other node is dropped
    folding           a node with one strategy becomes part of its neighbours; parallel edges are added up
    elimination       a node with at most two neighbours is minimised out (min-plus), which makes at most an edge
    dominance         strategy k is dropped when k' is never worse, whatever the neighbours choose:
                      c[k'] − c[k] + Σ_edges max_j ( M[k', j] − M[k, j] ) ≤ 0            (dead-end elimination)

repeated until none applies. All four keep at least one best choice; `Simplified.restore` takes a choice for what is
left (the core) back to the problem.
"""

from __future__ import annotations

import heapq
from collections import deque
from dataclasses import dataclass

import numpy as np

from alpa_explore.intra_op.problem.sharding_problem import ShardingProblem
from alpa_explore.intra_op.reduction.dominance import undominated
from alpa_explore.intra_op.reduction.factor_graph import FactorGraph, Trail, back_substitute
from alpa_explore.numerics.arrays import Ints

MAX_TABLE_ENTRIES = 1 << 22
"""A node of degree two stays when the edge that would take its place had more entries than this."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Simplified:
    """`core` and `constant`: least cost of the problem = constant + least cost of the core."""

    core: ShardingProblem
    nodes: tuple[int, ...]
    """For each node of the core its number in the problem."""
    constant: float
    trail: Trail
    num_nodes: int

    def restore(self, core_choices: tuple[int, ...]) -> tuple[int, ...]:
        """The choice for the whole problem that goes with a choice for the core."""
        choices = [0] * self.num_nodes
        for node, choice in zip(self.nodes, core_choices, strict=True):
            choices[node] = choice
        back_substitute(self.trail, choices)
        return tuple(choices)


def simplify(problem: ShardingProblem, *, dominance: bool = True, keep: frozenset[int] = frozenset()) -> Simplified:
    """Reduce `problem`; without `dominance` it is quicker and the core larger. Raises Contradiction (infeasible).

    Nodes in `keep` stay in the core, with all strategies that are consistent.
    """
    graph = FactorGraph(problem)
    present = set(range(len(problem.node_costs)))
    _make_consistent(graph, present)
    _remove_narrow(graph, present, present, keep)
    touched = set(present)
    while dominance and touched:
        touched = _drop_dominated(graph, touched - keep, keep)
        _remove_narrow(graph, present, touched, keep)
        touched &= present
    nodes = tuple(sorted(present))
    return Simplified(
        core=graph.pairwise_problem(nodes, problem.name),
        nodes=nodes,
        constant=graph.constant,
        trail=tuple(graph.trail),
        num_nodes=len(problem.node_costs),
    )


def components(problem: ShardingProblem) -> tuple[tuple[tuple[int, ...], ShardingProblem], ...]:
    """The connected parts of a problem: the nodes of each, and the problem on them alone."""
    neighbours: list[list[int]] = [[] for _ in problem.node_costs]
    for a, b in problem.edges:
        neighbours[a].append(b)
        neighbours[b].append(a)
    part_of = [-1] * len(neighbours)
    parts: list[list[int]] = []
    for root in range(len(neighbours)):
        if part_of[root] >= 0:
            continue
        part_of[root], todo, part = len(parts), [root], []
        while todo:
            v = todo.pop()
            part.append(v)
            for u in neighbours[v]:
                if part_of[u] < 0:
                    part_of[u] = len(parts)
                    todo.append(u)
        parts.append(sorted(part))
    if len(parts) == 1:
        return ((tuple(parts[0]), problem),)
    position = {v: i for part in parts for i, v in enumerate(part)}
    inside: list[list[int]] = [[] for _ in parts]
    for e, (a, _) in enumerate(problem.edges):
        inside[part_of[a]].append(e)
    return tuple(
        (
            tuple(part),
            ShardingProblem(
                name=problem.name,
                node_costs=tuple(problem.node_costs[v] for v in part),
                edges=tuple((position[problem.edges[e][0]], position[problem.edges[e][1]]) for e in edges),
                edge_costs=tuple(problem.edge_costs[e] for e in edges),
            ),
        )
        for part, edges in zip(parts, inside, strict=True)
    )


def _make_consistent(graph: FactorGraph, present: set[int]) -> None:
    """Drop strategies without a legal partner on some edge, until every one left has one on each."""
    forbidding = {
        v: [(scope, table) for scope, table in graph.tables[v].items() if table.size and table.max() == np.inf]
        for v in present
    }
    alive = {v: graph.costs[v] < np.inf for v in present}
    todo = deque(sorted(v for v in present if forbidding[v]))
    queued = set(todo)
    while todo:
        v = todo.popleft()
        queued.discard(v)
        good = alive[v].copy()
        for scope, table in forbidding[v]:
            # Rows of v, columns of the other node: a strategy needs one finite entry at a living partner.
            rows, u = (table, scope[1]) if scope[0] == v else (table.T, scope[0])
            good &= (rows < np.inf) @ alive[u]
        if good.sum() < alive[v].sum():
            alive[v] = good
            again = {u for scope, _ in forbidding[v] for u in scope if u != v and u not in queued}
            todo.extend(again)
            queued |= again
    for v in sorted(present):
        if not alive[v].all():
            graph.restrict(v, np.flatnonzero(alive[v]))


def _remove_narrow(graph: FactorGraph, present: set[int], start: set[int], keep: frozenset[int]) -> None:
    """Fold one-strategy nodes and eliminate nodes with at most two neighbours, smallest new table first."""

    def price(v: int) -> int | None:
        if len(graph.costs[v]) <= 1:
            return 0
        if v in keep or len(graph.tables[v]) > 2:
            return None
        entries = 1
        for u in graph.neighbours(v):
            entries *= len(graph.costs[u])
        return entries if entries <= MAX_TABLE_ENTRIES else None

    heap = [(entries, v) for v in start & present if (entries := price(v)) is not None]
    heapq.heapify(heap)
    while heap:
        entries, v = heapq.heappop(heap)
        if v not in present or price(v) != entries:
            continue
        present.discard(v)
        changed = graph.fold(v) if len(graph.costs[v]) == 1 else graph.eliminate(v)
        for u in changed:
            if (new := price(u)) is not None:
                heapq.heappush(heap, (new, u))


def _drop_dominated(graph: FactorGraph, nodes: set[int], keep: frozenset[int]) -> set[int]:
    """Drop dominated strategies of `nodes` and of all that this touches but `keep`; returns the nodes changed."""
    changed: set[int] = set()
    todo = deque(sorted(nodes))
    queued = set(todo)
    while todo:
        v = todo.popleft()
        queued.discard(v)
        kept: Ints = undominated(graph.costs[v], _tables_of(graph, v))
        if len(kept) == len(graph.costs[v]):
            continue
        graph.restrict(v, kept)
        changed.add(v)
        for u in sorted(graph.neighbours(v)):
            changed.add(u)
            if u not in queued and u not in keep:
                queued.add(u)
                todo.append(u)
    return changed


def _tables_of(graph: FactorGraph, v: int) -> list[np.ndarray[tuple[int, ...], np.dtype[np.float64]]]:
    return [table if scope[0] == v else table.T for scope, table in graph.tables[v].items()]
