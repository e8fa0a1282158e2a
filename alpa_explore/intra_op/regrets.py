"""Regrets: for every strategy, the least cost of a choice that contains it minus the least cost of any choice.

Where the problem is narrow, the regrets of all nodes follow from one elimination and a pass backwards through its
order. With the join J_v over v and N(v) of all tables that read v when it is eliminated, and m_v = min_v J_v, the least
cost of the rest of the problem as a function of N(v) is

    r_v(N(v)) = min ( J_p + r_p ) − m_v     over the nodes of the join of p = the first of N(v) to be eliminated, but
    N(v)

and the least cost with strategy k at v (its min-marginal) is min_(N(v)) ( J_v[k] + r_v ). Elsewhere each strategy of a
node takes a solve.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from alpa_explore.intra_op import tuning
from alpa_explore.intra_op.elimination.eliminate import Limits, order_of
from alpa_explore.intra_op.elimination.elimination_order import EliminationOrder
from alpa_explore.intra_op.elimination.forward_pass import INPUT, forward_pass
from alpa_explore.intra_op.problem.sharding_problem import FORBIDDEN, ShardingProblem
from alpa_explore.intra_op.problem.solution import Status
from alpa_explore.intra_op.reduction.tables import Table, sum_tables, without_forbidden
from alpa_explore.intra_op.solve import solve
from alpa_explore.numerics.arrays import Floats

LIMITS = Limits(
    joined_entries=tuning.REGRET_JOINED_ENTRIES,
    largest_table=tuning.REGRET_TABLE_ENTRIES,
    table_entries=tuning.REGRET_TOTAL_ENTRIES,
)


def regrets(problem: ShardingProblem, nodes: Sequence[int]) -> tuple[Floats, ...]:
    """For each of `nodes` by how much each of its strategies exceeds the optimum, shape [strategies]; inf: impossible.

    All are inf when the problem is infeasible.
    """
    order = order_of(problem)
    if LIMITS.allow(order):
        least = least_costs(problem, order)
        optimum = min((float(costs.min()) for costs in least), default=0.0)
        return tuple(least[v] - optimum if optimum < np.inf else np.full(len(least[v]), np.inf) for v in nodes)
    optimum = solve(problem).objective
    return tuple(_by_solving(problem, v, optimum) for v in nodes)


def pinned(problem: ShardingProblem, allowed: Mapping[int, Sequence[int]]) -> ShardingProblem:
    """The problem in which each node in `allowed` may only hold the given strategies."""
    costs = list(problem.node_costs)
    for v, kept in allowed.items():
        only = np.full(len(costs[v]), FORBIDDEN)
        only[list(kept)] = costs[v][list(kept)]
        costs[v] = only
    return replace(problem, node_costs=tuple(costs))


def _by_solving(problem: ShardingProblem, v: int, optimum: float) -> Floats:
    """The regrets of node v by one solve per strategy."""
    node_regrets = np.full(len(problem.node_costs[v]), np.inf)
    for k in np.flatnonzero(problem.node_costs[v] < FORBIDDEN):
        solution = solve(pinned(problem, {v: [int(k)]}))
        if solution.status is not Status.INFEASIBLE:
            node_regrets[k] = max(0.0, solution.objective - optimum)
    return node_regrets


def least_costs(problem: ShardingProblem, order: EliminationOrder) -> tuple[Floats, ...]:
    """For each node and strategy the least cost of a choice with it (its min-marginal); inf where there is none."""
    # Nodes are numbered in the order of elimination.
    place = {v: i for i, v in enumerate(order.nodes)}
    tables: list[Table] = [((i,), without_forbidden(problem.node_costs[v])) for i, v in enumerate(order.nodes)]
    for (a, b), matrix in zip(problem.edges, problem.edge_costs, strict=True):
        first, second = sorted((place[a], place[b]))
        costs = without_forbidden(matrix)
        tables.append(((first, second), costs if place[a] == first else costs.T))
    steps = forward_pass(tables, range(len(order.nodes)))
    root_sum = 0.0
    """The least cost: the sum of the messages of the last step of each component."""
    for step in steps:
        if not step.scope:
            root_sum += float(step.message)
    rests: list[Floats] = [np.zeros(())] * len(steps)
    """For each step the least cost of everything outside its message, over the scope of the message."""
    marginals: list[Floats] = [np.zeros(0)] * len(steps)
    for i in range(len(steps) - 1, -1, -1):
        step = steps[i]
        if step.scope:
            join = sum_tables([*step.tables, (step.scope, rests[i])], step.axes)
        else:
            rests[i] = np.asarray(root_sum - float(step.message) if np.isfinite(root_sum) else np.inf)
            join = sum_tables(step.tables, step.axes) + rests[i]
        marginals[order.nodes[i]] = join.min(axis=tuple(range(1, join.ndim)))
        for origin in step.origins:
            if origin != INPUT:
                rests[origin] = _rest_of(join, step.axes, steps[origin].scope, steps[origin].message)
    return tuple(marginals)


def _rest_of(join: Floats, axes: tuple[int, ...], scope: tuple[int, ...], message: Floats) -> Floats:
    """The least cost outside a message over `scope`, from a join over `axes` that contains it; `scope` is in order."""
    least = join.min(axis=tuple(axis for axis, node in enumerate(axes) if node not in scope))
    # Where the message is inf the rest does not matter: the join of its step is inf there too.
    possible = np.isfinite(message)
    return np.asarray(np.where(possible, least, 0.0) - np.where(possible, message, 0.0))
