"""A good choice without a proof: coordinate descent. Gives the scale of the optimum, and an answer when time is up."""

from __future__ import annotations

import math

import numpy as np

from alpa_explore.intra_op.bounds import message_kernels
from alpa_explore.intra_op.bounds.message_kernels import Flat
from alpa_explore.intra_op.bounds.messages import flatten
from alpa_explore.intra_op.problem.sharding_problem import FORBIDDEN, ShardingProblem

ROUNDS = 20


def descend(
    problem: ShardingProblem, start: tuple[int, ...] | None = None, flat: Flat | None = None
) -> tuple[int, ...]:
    """Let each node in turn take its best strategy given the others, until none moves. May break a forbidden pair.

    `flat`: the problem flattened without a ceiling, for callers that descend from many starts.
    """
    # Forbidden entries count 1e18 each, so that fewer of them is always better.
    choices = list(start) if start is not None else [int(np.argmin(vector)) for vector in problem.node_costs]
    found = np.array(choices, dtype=np.int64)
    message_kernels.descend(flatten(problem, math.inf) if flat is None else flat, found, ROUNDS)
    return tuple(found.tolist())


def simple_bound(problem: ShardingProblem) -> float:
    """A lower bound at no effort: every node and every edge at its own least cost."""
    return sum(float(v.min()) for v in problem.node_costs) + sum(float(m.min()) for m in problem.edge_costs)


def is_legal(problem: ShardingProblem, choices: tuple[int, ...]) -> bool:
    """True when no chosen entry is forbidden."""
    return all(v[c] < FORBIDDEN for v, c in zip(problem.node_costs, choices, strict=True)) and all(
        m[choices[a], choices[b]] < FORBIDDEN for (a, b), m in zip(problem.edges, problem.edge_costs, strict=True)
    )
