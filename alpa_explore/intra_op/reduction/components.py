"""Divide and conquer: simplify a problem, split the rest into connected components, and put their choices together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from alpa_explore.intra_op.problem.sharding_problem import Choices, ShardingProblem
from alpa_explore.intra_op.reduction.simplify import Simplified, simplify


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
