"""The edges of a problem as the kernels of the annealing read them: every table once, and in both directions."""

from __future__ import annotations

from itertools import accumulate

import numpy as np

from alpa_explore.intra_op.anytime.field_kernels import Graph
from alpa_explore.intra_op.problem.sharding_problem import ShardingProblem
from alpa_explore.numerics.arrays import Floats


def graph_of(problem: ShardingProblem, ceiling: float) -> Graph:
    """The arrays that `field_kernels` reads, with every cost above `ceiling` replaced by it.

    Equal tables are one: files repeat few of them many times, and the moves are as fast as their tables are near.
    """
    placed: dict[tuple[tuple[int, ...], bytes], int] = {}
    parts: list[Floats] = []
    length = 0

    def place(table: Floats) -> int:
        nonlocal length
        key = (table.shape, table.tobytes())
        if key not in placed:
            placed[key] = length
            parts.append(table.ravel())
            length += table.size
        return placed[key]

    at: list[list[tuple[int, int, int]]] = [[] for _ in problem.node_costs]
    known: dict[int, tuple[int, int]] = {}
    for (a, b), matrix in zip(problem.edges, problem.edge_costs, strict=True):
        if id(matrix) not in known:
            table = np.minimum(matrix, ceiling)
            known[id(matrix)] = (place(table), place(np.ascontiguousarray(table.T)))
        by_a, by_b = known[id(matrix)]
        at[a].append((b, by_b, by_a))
        at[b].append((a, by_a, by_b))
    edges = np.array([edge for edges in at for edge in edges], dtype=np.int64).reshape(-1, 3)
    return (
        np.array([0, *accumulate(len(costs) for costs in problem.node_costs)], dtype=np.int64),
        np.minimum(np.concatenate([*problem.node_costs, np.zeros(0)]), ceiling),
        np.array([0, *accumulate(map(len, at))], dtype=np.int64),
        np.ascontiguousarray(edges[:, 0]),
        np.ascontiguousarray(edges[:, 1]),
        np.ascontiguousarray(edges[:, 2]),
        np.concatenate([*parts, np.zeros(0)]),
    )
