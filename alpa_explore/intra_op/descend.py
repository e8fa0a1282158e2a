"""A good choice without a proof: coordinate descent. Gives the scale of the optimum, and an answer when time is up."""

from __future__ import annotations

import numpy as np

from alpa_explore.intra_op.problem import FORBIDDEN, Floats, ShardingProblem

ROUNDS = 20


def descend(problem: ShardingProblem, start: tuple[int, ...] | None = None) -> tuple[int, ...]:
    """Let each node in turn take its best strategy given the others, until none moves. May break a forbidden pair."""
    # Forbidden entries count 1e18 each, so that fewer of them is always better.
    rows: list[list[tuple[int, Floats]]] = [[] for _ in problem.node_costs]
    for (a, b), matrix in zip(problem.edges, problem.edge_costs, strict=True):
        rows[a].append((b, matrix.T))
        rows[b].append((a, matrix))
    choices = list(start) if start is not None else [int(np.argmin(vector)) for vector in problem.node_costs]
    todo = set(range(len(choices)))
    for _ in range(ROUNDS):
        moved: set[int] = set()
        for v in sorted(todo):
            total = problem.node_costs[v]
            for u, by_choice in rows[v]:
                total = total + by_choice[choices[u]]
            best = int(total.argmin())
            if total[best] < total[choices[v]]:
                choices[v] = best
                moved.update(u for u, _ in rows[v])
        if not moved:
            break
        todo = moved
    return tuple(choices)


def simple_bound(problem: ShardingProblem) -> float:
    """A lower bound at no effort: every node and every edge at its own least cost."""
    return sum(float(v.min()) for v in problem.node_costs) + sum(float(m.min()) for m in problem.edge_costs)


def is_legal(problem: ShardingProblem, choices: tuple[int, ...]) -> bool:
    """True when no chosen entry is forbidden."""
    return all(v[c] < FORBIDDEN for v, c in zip(problem.node_costs, choices, strict=True)) and all(
        m[choices[a], choices[b]] < FORBIDDEN for (a, b), m in zip(problem.edges, problem.edge_costs, strict=True)
    )
