"""Why a problem is infeasible: nodes without a common legal choice, or a memory limit that is too small."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from alpa_explore.intra_op.ilp.enumerated_ilp import least_limit
from alpa_explore.intra_op.problem.memory_limit import MemoryLimit
from alpa_explore.intra_op.problem.sharding_problem import ShardingProblem, legality
from alpa_explore.intra_op.problem.solution import Status
from alpa_explore.intra_op.reduction.arc_consistency import possible_strategies
from alpa_explore.intra_op.reduction.factor_graph import Contradiction
from alpa_explore.intra_op.solve import solve
from alpa_explore.iopddl import tuning
from alpa_explore.iopddl.anneal import Found, anneal_within
from alpa_explore.iopddl.condense import condense
from alpa_explore.iopddl.walk import SearchProblem

_ANY_WILL_DO = sys.float_info.max
"""A bound that every choice reaches: the search ends with the first one."""


def why_infeasible(problem: ShardingProblem, memory: MemoryLimit | None, seconds: float) -> dict[str, Any]:
    """The reason as a sentence ("advice"), with the least limit that is feasible or a lower bound on it, and the least
    peak found, as far as they are computed in so many seconds."""
    small = problem.variables <= tuning.REASON_VARIABLES
    if memory is None or small:
        if conflict := conflicting_nodes(problem):
            return {"advice": f"No choice satisfies nodes {', '.join(map(str, conflict))} together."}
        if memory is None:
            return {}
    too_small = f"No choice stays within the memory limit of {memory.limit:,.0f}: "
    if small:
        least, exact = least_limit(problem, memory, max(seconds, tuning.LEAST_REASON_SECONDS))
        phrase = "the smallest feasible limit is" if exact else "the smallest feasible limit is more than"
        return {"least_limit": least, "advice": f"{too_small}{phrase} {least:,.0f}."}
    # An ILP of this size takes minutes: a bound, and what a search finds.
    bound = memory.least_peak()
    try:
        found = _least_usage_found(problem, memory, time.perf_counter() + min(seconds, tuning.LEAST_LIMIT_SECONDS))
    except Contradiction as contradiction:
        return {"advice": f"No choice satisfies node {contradiction.node} and those around it."}
    if found is None:
        return {
            "least_limit": bound,
            "advice": f"{too_small}no choice uses less than {bound:,.0f}, and no legal choice was found.",
        }
    return {
        "least_limit": bound,
        "least_found": found,
        "advice": f"{too_small}the least usage found is {found:,.0f}, and no choice uses less than {bound:,.0f}.",
    }


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


def _least_usage_found(problem: ShardingProblem, memory: MemoryLimit, deadline: float) -> float | None:
    """The least peak of a legal choice that is found by `deadline`, whatever the limit; None without a legal choice.

    Raises Contradiction where no choice is legal.
    """
    unlimited = replace(memory, limit=math.inf)
    condensed = condense(problem, unlimited, possible_strategies(problem, unlimited), deadline)
    least = condensed.memory.least_peak()
    found = Found(condensed.problem)
    found.bound = _ANY_WILL_DO
    instance = SearchProblem.of(condensed.problem, replace(condensed.memory, limit=least))
    anneal_within(instance, found, deadline)
    return None if found.overflow == math.inf else least + found.overflow
