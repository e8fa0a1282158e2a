"""Coordinate descent: a good choice without a proof. It gives the scale of the optimum, and an answer at a time
limit."""

from __future__ import annotations

import math

import numpy as np

from alpa_explore.intra_op.bounds import message_kernels, tuning
from alpa_explore.intra_op.bounds.message_kernels import Flat
from alpa_explore.intra_op.bounds.messages import flatten
from alpa_explore.intra_op.problem.sharding_problem import FORBIDDEN, Choices, ShardingProblem


def descend(problem: ShardingProblem, start: Choices | None = None, flat: Flat | None = None) -> Choices:
    """Let each node in turn take its best strategy given the others, until none changes. The result may be illegal.

    Begins at `start`, or with the cheapest strategy of every node. `flat` is the problem flattened without a ceiling,
    for callers that descend from many starts.
    """
    # Forbidden entries count 1e18 each, so that fewer of them is always better.
    initial = list(start) if start is not None else [int(np.argmin(vector)) for vector in problem.node_costs]
    choices = np.array(initial, dtype=np.int64)
    message_kernels.descend(flatten(problem, math.inf) if flat is None else flat, choices, tuning.DESCENT_ROUNDS)
    return tuple(choices.tolist())


def simple_bound(problem: ShardingProblem) -> float:
    """A lower bound in one pass: every node and every edge at its own least cost."""
    return sum(float(v.min()) for v in problem.node_costs) + sum(float(m.min()) for m in problem.edge_costs)


def is_legal(problem: ShardingProblem, choices: Choices) -> bool:
    """True when no chosen entry is forbidden."""
    return all(v[c] < FORBIDDEN for v, c in zip(problem.node_costs, choices, strict=True)) and all(
        m[choices[a], choices[b]] < FORBIDDEN for (a, b), m in zip(problem.edges, problem.edge_costs, strict=True)
    )
