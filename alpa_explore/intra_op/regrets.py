"""What every strategy that was not chosen would cost: the least cost with it, less the least cost.

Where the problem is narrow all nodes are done at once from the tables of the elimination, going back through its order.
With the join J_v over v and N(v) of all tables that read v when it goes, and m_v = min_v J_v, the rest of the problem
seen from v is

    r_v(N(v)) = min ( J_p + r_p ) − m_v     over the nodes of the join of p = the first of N(v) to go, other than N(v)

and the least cost with strategy k at v is min_(N(v)) ( J_v[k] + r_v ). Elsewhere each strategy of a node takes a solve.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from alpa_explore.intra_op.elimination.eliminate import Limits, order_of
from alpa_explore.intra_op.elimination.elimination_order import EliminationOrder
from alpa_explore.intra_op.problem.sharding_problem import FORBIDDEN, ShardingProblem
from alpa_explore.intra_op.problem.solution import Status
from alpa_explore.intra_op.reduction.factor_graph import without_forbidden
from alpa_explore.intra_op.solve import solve
from alpa_explore.numerics.arrays import Floats

LIMITS = Limits(joined_entries=2e9, largest_table=5e6, table_entries=5e7)

Scope = tuple[int, ...]
"""Nodes by their place in the order, ascending."""


def regrets(problem: ShardingProblem, nodes: Sequence[int]) -> tuple[Floats, ...]:
    """For each of `nodes` what each of its strategies costs above the optimum, shape [strategies]; inf: impossible.

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
    """The problem where each node in `allowed` may hold these strategies alone."""
    costs = list(problem.node_costs)
    for v, kept in allowed.items():
        only = np.full(len(costs[v]), FORBIDDEN)
        only[list(kept)] = costs[v][list(kept)]
        costs[v] = only
    return replace(problem, node_costs=tuple(costs))


def _by_solving(problem: ShardingProblem, v: int, optimum: float) -> Floats:
    found = np.full(len(problem.node_costs[v]), np.inf)
    for k in np.flatnonzero(problem.node_costs[v] < FORBIDDEN):
        solution = solve(pinned(problem, {v: [int(k)]}))
        if solution.status is not Status.INFEASIBLE:
            found[k] = max(0.0, solution.objective - optimum)
    return found


def least_costs(problem: ShardingProblem, order: EliminationOrder) -> tuple[Floats, ...]:
    """For each node and strategy the least cost of a choice that holds it (its min-marginal); inf where none does."""
    place = {v: i for i, v in enumerate(order.nodes)}
    count = len(order.nodes)
    tables: list[list[tuple[Scope, Floats]]] = [
        [((i,), without_forbidden(problem.node_costs[v]))] for i, v in enumerate(order.nodes)
    ]
    for (a, b), matrix in zip(problem.edges, problem.edge_costs, strict=True):
        first, second = sorted((place[a], place[b]))
        costs = without_forbidden(matrix)
        tables[first].append(((first, second), costs if place[a] == first else costs.T))
    children: list[list[int]] = [[] for _ in range(count)]
    messages: list[tuple[Scope, Floats]] = []
    loose = 0.0
    """Least cost of the parts that have no more neighbours."""
    roots: list[float] = [0.0] * count
    for i in range(count):
        scope, join = _join(tables[i])
        message = join.min(axis=0)
        messages.append((scope[1:], message))
        if scope[1:]:
            tables[scope[1]].append((scope[1:], message))
            children[scope[1]].append(i)
        else:
            roots[i] = float(message)
            loose += float(message)
    rests: list[Floats] = [np.zeros(())] * count
    found: list[Floats] = [np.zeros(0)] * count
    for i in range(count - 1, -1, -1):
        if not messages[i][0]:
            rests[i] = np.asarray(loose - roots[i] if np.isfinite(loose) else np.inf)
        scope, join = _join([*tables[i], (messages[i][0], rests[i])] if messages[i][0] else tables[i])
        if not messages[i][0]:
            join = join + rests[i]
        found[order.nodes[i]] = join.min(axis=tuple(range(1, join.ndim)))
        for child in children[i]:
            inner, message = messages[child]
            others = tuple(axis for axis, node in enumerate(scope) if node not in inner)
            seen = join.min(axis=others)
            # Where the child cannot be completed the rest does not matter: its join is inf there too.
            rests[child] = np.where(np.isfinite(message), seen, 0.0) - np.where(np.isfinite(message), message, 0.0)
    return tuple(found)


def _join(tables: Sequence[tuple[Scope, Floats]]) -> tuple[Scope, Floats]:
    """The sum of tables over all their nodes, axes in ascending order."""
    scope = tuple(sorted({node for inner, _ in tables for node in inner}))
    total: Floats = np.zeros((1,) * len(scope))
    for inner, table in tables:
        shape = [1] * len(scope)
        for node, size in zip(inner, table.shape, strict=True):
            shape[scope.index(node)] = size
        total = total + table.reshape(shape)
    return scope, total
