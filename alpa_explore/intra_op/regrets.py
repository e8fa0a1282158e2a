"""Regrets: for every strategy, the least cost of a choice that contains it minus the least cost of any choice.

A contraction to one node gives the least cost with each of its strategies (its min-marginals). Where the problem is too
wide for it, each strategy takes a solve.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from alpa_explore.intra_op.composition.contraction.contract import contract_problem
from alpa_explore.intra_op.composition.contraction.tuning import LIMITS
from alpa_explore.intra_op.problem.sharding_problem import FORBIDDEN, ShardingProblem
from alpa_explore.intra_op.problem.solution import Status
from alpa_explore.intra_op.solve import solve
from alpa_explore.numerics.arrays import Floats


def regrets(problem: ShardingProblem, nodes: Sequence[int]) -> tuple[Floats, ...]:
    """For each of `nodes` by how much each of its strategies exceeds the optimum, shape [strategies]; inf: impossible.

    All are inf when the problem is infeasible.
    """
    return tuple(_regrets(problem, v) for v in nodes)


def _regrets(problem: ShardingProblem, v: int) -> Floats:
    contraction = contract_problem(problem, (v,), LIMITS)
    if contraction is None:
        return _by_solving(problem, v, solve(problem).objective)
    least = contraction.table[0]
    optimum = float(least.min())
    return np.asarray(least - optimum if optimum < np.inf else least)


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
