"""Why a problem is infeasible: a minimal set of nodes without a legal choice (an irreducible infeasible subsystem)."""

from __future__ import annotations

from collections.abc import Sequence

from alpa_explore.intra_op.problem.restriction import legality
from alpa_explore.intra_op.problem.sharding_problem import ShardingProblem
from alpa_explore.intra_op.problem.solution import Status
from alpa_explore.intra_op.solve import solve


def conflicting_nodes(problem: ShardingProblem) -> tuple[int, ...]:
    """Nodes without a common legal choice, although every proper subset has one; () when the problem is feasible.

    Runs of nodes are removed, long ones first, as long as the rest stays infeasible. Costs do not matter.
    """
    costless = legality(problem)
    nodes = list(range(len(problem.node_costs)))
    if _feasible(costless, nodes):
        return ()
    run = max(1, len(nodes) // 2)
    while True:
        start, removed = 0, False
        while start < len(nodes):
            rest = nodes[:start] + nodes[start + run :]
            if _feasible(costless, rest):
                start += run
            else:
                nodes, removed = rest, True
        if run == 1 and not removed:
            return tuple(nodes)
        run = max(1, run // 2)


def _feasible(problem: ShardingProblem, nodes: Sequence[int]) -> bool:
    """True when the problem on `nodes` alone has a legal choice."""
    position = {v: i for i, v in enumerate(nodes)}
    inside = [e for e, (a, b) in enumerate(problem.edges) if a in position and b in position]
    subproblem = ShardingProblem(
        name=problem.name,
        node_costs=tuple(problem.node_costs[v] for v in nodes),
        edges=tuple((position[problem.edges[e][0]], position[problem.edges[e][1]]) for e in inside),
        edge_costs=tuple(problem.edge_costs[e] for e in inside),
    )
    return solve(subproblem).status is not Status.INFEASIBLE
