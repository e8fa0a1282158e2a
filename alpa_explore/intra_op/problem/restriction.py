"""Problems derived from a problem: with fewer strategies per node, or with legality alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from alpa_explore.intra_op.problem.sharding_problem import FORBIDDEN, Choices, ShardingProblem
from alpa_explore.numerics.arrays import Ints


def restricted(problem: ShardingProblem, kept: Sequence[Ints]) -> ShardingProblem:
    """The problem in which node v has only the strategies `kept[v]` (ascending)."""
    return ShardingProblem(
        name=problem.name,
        node_costs=tuple(c[k] for c, k in zip(problem.node_costs, kept, strict=True)),
        edges=problem.edges,
        edge_costs=tuple(
            m[np.ix_(kept[a], kept[b])] for (a, b), m in zip(problem.edges, problem.edge_costs, strict=True)
        ),
    )


def unrestricted_choices(kept: Sequence[Ints], choices: Choices) -> Choices:
    """Choices for `restricted(problem, kept)` in the numbering of the original problem."""
    return tuple(int(k[c]) for k, c in zip(kept, choices, strict=True))


def legality(problem: ShardingProblem) -> ShardingProblem:
    """The problem in which every legal entry costs 0; forbidden entries stay forbidden."""
    return replace(
        problem,
        node_costs=tuple(np.where(c >= FORBIDDEN, FORBIDDEN, 0.0) for c in problem.node_costs),
        edge_costs=tuple(np.where(m >= FORBIDDEN, FORBIDDEN, 0.0) for m in problem.edge_costs),
    )
