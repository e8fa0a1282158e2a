"""Strategies that no best choice holds, by a dual bound: what elimination and the ILP need not look at.

Messages move cost between nodes and edges without changing the cost of any choice (a reparametrisation):

    ĉ_v[i]     = c_v[i] + Σ_u m_uv[i]                        Ê_uv[i, j] = E_uv[i, j] − m_vu[i] − m_uv[j]
    bound      = Σ_v min ĉ_v + Σ_uv min Ê_uv                                                 ≤ least cost
    slack_v[i] = ĉ_v[i] − min ĉ_v + Σ_u ( min_j Ê_uv[i, j] − min Ê_uv )

Every choice that holds strategy i at v costs at least bound + slack_v[i]. If that is above the cost of a choice that is
known, i is in no best choice. This holds for any messages; good ones come from sequential reweighted message passing
(V. Kolmogorov, "A new look at reweighted message passing", PAMI 2015), known choices from coordinate descent started
where the messages point.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from alpa_explore.intra_op.descend import descend, is_legal
from alpa_explore.intra_op.factor_graph import Ints
from alpa_explore.intra_op.problem import Floats, ShardingProblem

ROUNDS = 80
CLOSED = 1e-12
"""Relative gap at which the best known choice is proven optimal: no more than rounding."""
MARGIN = 1e-9
"""A strategy goes only if its bound is above the best known cost by this share: ties and rounding keep it."""
PATIENCE = 2
"""Looks at the gap without progress before the messages stop."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Pruned:
    """`kept[v]`: the strategies of v that a best choice may hold; `best`: the cheapest choice seen, if any is legal."""

    kept: tuple[Ints, ...]
    best: tuple[int, ...] | None
    bound: float
    closed: bool
    """True when `best` is proven optimal, or within the gap that was asked for."""


def prune_by_bound(problem: ShardingProblem, gap: float = 0.0) -> Pruned:
    """Messages until the bound no longer grows or is within `gap` of the best choice; then the slack test."""
    enough = max(CLOSED, gap)
    best = descend(problem)
    everything = tuple(np.arange(len(c)) for c in problem.node_costs)
    if not is_legal(problem, best):
        return Pruned(kept=everything, best=None, bound=0.0, closed=False)
    known = problem.evaluate(best)
    state = _Messages(problem, ceiling=2 * known + 1e-12)
    bound, idle = -np.inf, 0
    for number in range(ROUNDS):
        state.sweep(forward=True)
        pointed = state.sweep(forward=False)
        if number % 4 != 3:
            continue
        found = descend(problem, pointed)
        if is_legal(problem, found) and problem.evaluate(found) < known:
            best, known = found, problem.evaluate(found)
        grown = state.bound()
        idle = idle + 1 if grown - bound < 0.01 * (known - grown) else 0
        bound = max(bound, grown)
        if known - bound <= enough * known or idle >= PATIENCE:
            break
    limit = known * (1 + MARGIN)
    bound, slack = state.slacks()
    kept = tuple(np.flatnonzero(bound + s <= limit) for s in slack)
    return Pruned(kept=kept, best=best, bound=bound, closed=known - bound <= enough * known)


def restricted(problem: ShardingProblem, kept: tuple[Ints, ...]) -> ShardingProblem:
    """The problem with only the strategies `kept` of each node."""
    return ShardingProblem(
        name=problem.name,
        node_costs=tuple(c[k] for c, k in zip(problem.node_costs, kept, strict=True)),
        edges=problem.edges,
        edge_costs=tuple(
            m[np.ix_(kept[a], kept[b])] for (a, b), m in zip(problem.edges, problem.edge_costs, strict=True)
        ),
    )


class _Messages:
    """The state of message passing; `ceiling` stands in for every cost that no best choice pays."""

    def __init__(self, problem: ShardingProblem, ceiling: float) -> None:
        self.costs = [np.minimum(c, ceiling) for c in problem.node_costs]
        self.edges = problem.edges
        self.matrices = [np.minimum(m, ceiling) for m in problem.edge_costs]
        # Messages into a and into b of each edge.
        self.into_a: list[Floats] = [np.zeros(m.shape[0]) for m in self.matrices]
        self.into_b: list[Floats] = [np.zeros(m.shape[1]) for m in self.matrices]
        self.around: list[list[int]] = [[] for _ in self.costs]
        for e, (a, b) in enumerate(self.edges):
            self.around[a].append(e)
            self.around[b].append(e)
        self.later = [[e for e in found if max(self.edges[e]) != v] for v, found in enumerate(self.around)]
        self.earlier = [[e for e in found if min(self.edges[e]) != v] for v, found in enumerate(self.around)]

    def total(self, v: int) -> Floats:
        """ĉ_v."""
        found = self.costs[v].copy()
        for e in self.around[v]:
            found += self.into_a[e] if self.edges[e][0] == v else self.into_b[e]
        return found

    def sweep(self, *, forward: bool) -> tuple[int, ...]:
        """Each node collects what its edges can give and hands it on ahead; returns the strategies they point to.

        A node points to its best strategy given those of the nodes before it and what the edges ahead report.
        """
        pointed = [0] * len(self.costs)
        order = range(len(self.costs)) if forward else range(len(self.costs) - 1, -1, -1)
        for v in order:
            here = self.costs[v].copy()
            given = self.costs[v].copy()
            for e in self.around[v]:
                a, b = self.edges[e]
                first = a == v
                message = self.into_a[e] if first else self.into_b[e]
                message += self._left(e).min(axis=1 if first else 0)
                here += message
                other = b if first else a
                if (other < v) == forward:
                    given += self.matrices[e][:, pointed[other]] if first else self.matrices[e][pointed[other]]
                else:
                    given += message
            pointed[v] = int(given.argmin())
            ahead = self.later[v] if forward else self.earlier[v]
            share = here / max(len(self.later[v]), len(self.earlier[v]), 1)
            for e in ahead:
                message = self.into_a[e] if self.edges[e][0] == v else self.into_b[e]
                message -= share
        return tuple(pointed)

    def bound(self) -> float:
        """Lower bound on the least cost."""
        nodes = sum(float(self.total(v).min()) for v in range(len(self.costs)))
        return nodes + sum(float(self._left(e).min()) for e in range(len(self.edges)))

    def slacks(self) -> tuple[float, list[Floats]]:
        """The bound, and for every node what each strategy adds to it at least."""
        found = []
        bound = 0.0
        for v in range(len(self.costs)):
            total = self.total(v)
            bound += float(total.min())
            found.append(total - total.min())
        for e, (a, b) in enumerate(self.edges):
            left = self._left(e)
            least = float(left.min())
            bound += least
            found[a] += left.min(axis=1) - least
            found[b] += left.min(axis=0) - least
        return bound, found

    def _left(self, e: int) -> Floats:
        """Ê of edge e."""
        return np.asarray(self.matrices[e] - self.into_a[e][:, None] - self.into_b[e][None, :])
