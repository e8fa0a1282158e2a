"""The sharding problem of the paper (Alpa, arXiv 2201.12023, section 4.2, Eq. 1): one strategy for every node.

    minimise  Σ_v node_costs[v][s_v] + Σ_(v,u) edge_costs[v,u][s_v, s_u]      one strategy s_v for each node v

Nodes have cost vectors, edges have cost matrices. Tensors and meshes do not occur: `stage.stage_problem` turns a stage
on a mesh into such a problem.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from hashlib import sha256
from typing import TypeAlias

import numpy as np

from alpa_explore.numerics.arrays import Floats, Ints

FORBIDDEN = 1e18
"""A cost of this size or more can never be chosen (the convention of the IOPDDL contest)."""

Choices: TypeAlias = tuple[int, ...]
"""One strategy for each node of a problem."""


@dataclass(frozen=True, kw_only=True, eq=False)
class ShardingProblem:
    """Costs in seconds (any unit will do). Arrays are read-only. The costs of parallel edges add up."""

    name: str
    node_costs: tuple[Floats, ...]
    """For each node one cost per strategy, shape [strategies]."""
    edges: tuple[tuple[int, int], ...]
    """(a, b), a ≠ b."""
    edge_costs: tuple[Floats, ...]
    """For each edge, shape [strategies of a, strategies of b]."""

    def __post_init__(self) -> None:
        for array in (*self.node_costs, *self.edge_costs):
            array.setflags(write=False)

    @cached_property
    def content_key(self) -> str:
        """sha256 of the costs and the structure; equal problems have equal keys whatever their names."""
        digest = sha256()
        for vector in self.node_costs:
            digest.update(np.int64(len(vector)).tobytes() + np.ascontiguousarray(vector).tobytes())
        for edge, matrix in zip(self.edges, self.edge_costs, strict=True):
            digest.update(np.array(edge, dtype=np.int64).tobytes() + np.ascontiguousarray(matrix).tobytes())
        return digest.hexdigest()

    @property
    def variables(self) -> int:
        """Number of s and e variables of Eq. 1 before any simplification."""
        return sum(map(len, self.node_costs)) + sum(m.size for m in self.edge_costs)

    def evaluate(self, choices: Choices) -> float:
        """Cost of a complete choice, added up independently of any solver."""
        total = sum(float(v[c]) for v, c in zip(self.node_costs, choices, strict=True))
        return total + sum(
            float(m[choices[a], choices[b]]) for (a, b), m in zip(self.edges, self.edge_costs, strict=True)
        )

    def largest_legal_cost(self) -> float:
        """An upper bound on the cost of every legal choice: the sum of the largest legal entries."""
        parts = (*self.node_costs, *self.edge_costs)
        return sum(float(p[p < FORBIDDEN].max(initial=0.0)) for p in parts)


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
