"""Messages that move cost between the nodes and edges of a problem without changing the cost of any choice.

    ĉ_v[i]     = c_v[i] + Σ_u m_uv[i]                        Ê_uv[i, j] = E_uv[i, j] − m_vu[i] − m_uv[j]
    bound      = Σ_v min ĉ_v + Σ_uv min Ê_uv                                                 ≤ least cost
    slack_v[i] = ĉ_v[i] − min ĉ_v + Σ_u ( min_j Ê_uv[i, j] − min Ê_uv )

Every choice that holds strategy i at v costs at least bound + slack_v[i], whatever the messages. Good ones come from
sequential reweighted message passing (V. Kolmogorov, "A new look at reweighted message passing", PAMI 2015).
"""

from __future__ import annotations

from itertools import accumulate

import numpy as np

from alpa_explore.intra_op.bounds import message_kernels
from alpa_explore.intra_op.bounds.message_kernels import Flat
from alpa_explore.intra_op.problem.sharding_problem import ShardingProblem
from alpa_explore.numerics.arrays import Floats, Ints


class Messages:
    """The state of message passing; `ceiling` stands in for every cost that no best choice pays."""

    def __init__(self, problem: ShardingProblem, ceiling: float) -> None:
        self.edges = problem.edges
        self.flat = flatten(problem, ceiling)
        self.nodes, self.tables, self.rows, self.columns = (self.flat[k] for k in (0, 2, 4, 5))
        self.into_a, self.into_b = np.zeros(self.rows[-1]), np.zeros(self.columns[-1])
        later, earlier = np.zeros(len(self.nodes) - 1), np.zeros(len(self.nodes) - 1)
        for a, b in problem.edges:
            later[min(a, b)] += 1
            earlier[max(a, b)] += 1
        self.share = 1 / np.maximum(np.maximum(later, earlier), 1)

    def sweep(self, *, forward: bool) -> tuple[int, ...]:
        """One pass over the nodes in their order or against it; returns the strategies they point to."""
        pointed = np.zeros(len(self.share), dtype=np.int64)
        message_kernels.sweep(self.flat, forward, self.into_a, self.into_b, self.share, pointed)
        return tuple(pointed.tolist())

    def slacks(self) -> tuple[float, Floats]:
        """The bound, and what each strategy adds to it at least, node after node."""
        found = np.empty(self.nodes[-1])
        bound = message_kernels.slacks(self.flat, self.into_a, self.into_b, found)
        return float(bound), found

    def bound(self) -> float:
        """Lower bound on the least cost."""
        return self.slacks()[0]

    def moved(self) -> ShardingProblem:
        """The problem with its costs moved by the messages: Σ ĉ + Σ Ê, the same for every choice below the ceiling."""
        costs = [c.copy() for c in np.split(self.flat[1], self.nodes[1:-1])]
        matrices = []
        for e, (a, b) in enumerate(self.edges):
            mine_a = self.into_a[self.rows[e] : self.rows[e + 1]]
            mine_b = self.into_b[self.columns[e] : self.columns[e + 1]]
            costs[a] += mine_a
            costs[b] += mine_b
            matrix = self.flat[3][self.tables[e] : self.tables[e + 1]].reshape(len(mine_a), len(mine_b))
            matrices.append(matrix - mine_a[:, None] - mine_b[None, :])
        return ShardingProblem(name="moved", node_costs=tuple(costs), edges=self.edges, edge_costs=tuple(matrices))


def flatten(problem: ShardingProblem, ceiling: float) -> Flat:
    """The arrays that the kernels read, with no cost above `ceiling`."""
    at: list[list[tuple[int, bool, int]]] = [[] for _ in problem.node_costs]
    for e, (a, b) in enumerate(problem.edges):
        at[a].append((e, True, b))
        at[b].append((e, False, a))
    around = [found for here in at for found in here]
    shapes = [m.shape for m in problem.edge_costs]

    def starts(sizes: list[int]) -> Ints:
        return np.array([0, *accumulate(sizes)], dtype=np.int64)

    def joined(arrays: list[Floats]) -> Floats:
        found: Floats = np.concatenate([*arrays, np.zeros(0)])
        return np.asarray(np.minimum(found, ceiling))

    return (
        starts([len(c) for c in problem.node_costs]),
        joined(list(problem.node_costs)),
        starts([a * b for a, b in shapes]),
        joined([m.ravel() for m in problem.edge_costs]),
        starts([a for a, _ in shapes]),
        starts([b for _, b in shapes]),
        starts([len(here) for here in at]),
        np.array([e for e, _, _ in around], dtype=np.int64),
        np.array([first for _, first, _ in around], dtype=np.bool_),
        np.array([u for _, _, u in around], dtype=np.int64),
    )
