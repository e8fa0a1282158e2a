"""Why a problem is infeasible: a smallest set of nodes that cannot agree."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from alpa_explore.intra_op.problem.sharding_problem import FORBIDDEN, ShardingProblem
from alpa_explore.intra_op.problem.solution import Status
from alpa_explore.intra_op.solve import solve


def conflicting_nodes(problem: ShardingProblem) -> tuple[int, ...]:
    """Nodes without a common legal choice, of which every proper part has one; () when the problem is feasible.

    Runs of nodes are left out, long ones first, as long as what remains is still infeasible. Costs do not matter.
    """
    legality = ShardingProblem(
        name=problem.name,
        node_costs=tuple(np.where(v >= FORBIDDEN, FORBIDDEN, 0.0) for v in problem.node_costs),
        edges=problem.edges,
        edge_costs=tuple(np.where(m >= FORBIDDEN, FORBIDDEN, 0.0) for m in problem.edge_costs),
    )
    nodes = list(range(len(problem.node_costs)))
    if _feasible(legality, nodes):
        return ()
    run = max(1, len(nodes) // 2)
    while True:
        start, removed = 0, False
        while start < len(nodes):
            rest = nodes[:start] + nodes[start + run :]
            if _feasible(legality, rest):
                start += run
            else:
                nodes, removed = rest, True
        if run == 1 and not removed:
            return tuple(nodes)
        run = max(1, run // 2)


def _feasible(problem: ShardingProblem, nodes: Sequence[int]) -> bool:
    position = {v: i for i, v in enumerate(nodes)}
    inside = [e for e, (a, b) in enumerate(problem.edges) if a in position and b in position]
    part = ShardingProblem(
        name=problem.name,
        node_costs=tuple(problem.node_costs[v] for v in nodes),
        edges=tuple((position[problem.edges[e][0]], position[problem.edges[e][1]]) for e in inside),
        edge_costs=tuple(problem.edge_costs[e] for e in inside),
    )
    return solve(part).status is not Status.INFEASIBLE
