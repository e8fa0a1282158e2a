"""What a part of a choice can still become: bounds that keep the Pareto sets of `pareto` small.

For a price p of a byte, let  c_p = seconds + p · bytes,  and for the price ∞ the bytes alone. One elimination forward
gives the least c_p of the problem, and one backward gives for every table, that is for every set of nodes eliminated so
far, its *context*:

    context_p(u) = the least c_p of all that is not in the table, where its scope takes the strategies u

So a partial pair (s, b) at u ends in pairs with  s' + p · b' ≥ s + p · b + context_p(u)  for every p. The least pairs
of the prices are known (the convex part of the frontier). A pair that none of them dominates lies in one of the boxes
between two neighbours, s' ≤ s_(i+1) and b' ≤ b_i. If for every box some price says that its far corner is out of
reach, then nothing that the partial pair can become is on the frontier, and it may go (the two-phase method for
problems of two objectives).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from alpa_explore.intra_op.problem.sharding_problem import FORBIDDEN, ShardingProblem
from alpa_explore.intra_op.reduction.factor_graph import Scope
from alpa_explore.numerics.arrays import Floats
from alpa_explore.numerics.lower_envelope import search_between

PRICES = 16
"""Prices tried at most: each is an elimination."""
SLACK = 1e-9
"""Share of a sum by which it may be off by rounding."""

Table = tuple[Scope, Floats]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Bounds:
    """Prices, the corners of the boxes, and the contexts."""

    prices: Floats
    """What a second and a byte cost, shape [prices, 2]."""
    corner_seconds: Floats
    corner_bytes: Floats
    contexts: tuple[Floats, ...]
    """For every step of the elimination, shape [prices, entries of the table that the step makes]."""


def pareto_bounds(core: ShardingProblem, weights: Sequence[Floats], order: Sequence[int]) -> Bounds | None:
    """Bounds for an elimination of `core` in `order`; `weights[v]` are the bytes of node v. None without a choice."""
    runs: dict[tuple[float, float], PriceRun] = {}

    def at(second: float, byte: float) -> PriceRun:
        if (second, byte) not in runs:
            runs[second, byte] = PriceRun(core, weights, order, second, byte)
        return runs[second, byte]

    fast, lean = at(1.0, 0.0), at(0.0, 1.0)
    if fast.seconds == np.inf:
        return None
    search_between(
        fast.pair,
        lean.pair,
        figures=lambda pair: pair,
        solve_at=lambda price: at(1.0, price).pair,
        may_solve=lambda: len(runs) < PRICES,
    )
    pairs = sorted({run.pair for run in runs.values()})
    kept = [p for p in pairs if not any(q != p and q[0] <= p[0] and q[1] <= p[1] for q in pairs)]
    prices = sorted(runs)
    # The ends are corners too: a pair that is as fast as the fastest, or as lean as the leanest, must stay.
    corners = [(s, b) for (s, _), (_, b) in zip(kept[1:], kept, strict=False)] + [kept[0], kept[-1]]
    return Bounds(
        prices=np.array(prices).reshape(-1, 2),
        corner_seconds=np.array([s for s, _ in corners]),
        corner_bytes=np.array([b for _, b in corners]),
        contexts=tuple(np.stack([runs[p].contexts[step].ravel() for p in prices]) for step in range(len(order))),
    )


class PriceRun:
    """One price: the least pair, and the context of the table that each step makes."""

    def __init__(
        self, core: ShardingProblem, weights: Sequence[Floats], order: Sequence[int], second: float, byte: float
    ) -> None:
        priced = [
            np.where(c >= FORBIDDEN, np.inf, second * c + byte * w)
            for c, w in zip(core.node_costs, weights, strict=True)
        ]
        tables: list[tuple[int, Table]] = [(-1, ((v,), costs)) for v, costs in enumerate(priced)]
        for (a, b), matrix in zip(core.edges, core.edge_costs, strict=True):
            costs = np.where(matrix >= FORBIDDEN, np.inf, second * matrix)
            tables.append((-1, ((a, b), costs) if a < b else ((b, a), costs.T)))
        self.steps: list[tuple[int, Scope, list[tuple[int, Table]]]] = []
        for step, v in enumerate(order):
            reading = [t for t in tables if v in t[1][0]]
            tables = [t for t in tables if v not in t[1][0]]
            scope = tuple(sorted({u for _, (s, _) in reading for u in s} - {v}))
            tables.append((step, (scope, sum_over([t for _, t in reading], (v, *scope)).min(axis=0))))
            self.steps.append((v, scope, reading))
        self.contexts: list[Floats] = [np.zeros(0)] * len(order)
        roots = [(step, float(table)) for step, (_, table) in tables]
        for step, _ in roots:
            self.contexts[step] = np.array(sum(value for other, value in roots if other != step))
        for step in range(len(order) - 1, -1, -1):
            v, scope, reading = self.steps[step]
            for made, (own, _) in reading:
                if made >= 0:
                    others = [t for other, t in reading if other != made] + [(scope, self.contexts[step])]
                    total = sum_over(others, (v, *scope), full=[len(core.node_costs[u]) for u in (v, *scope)])
                    gone = tuple(i for i, u in enumerate((v, *scope)) if u not in own)
                    left = [u for u in (v, *scope) if u in own]
                    best = total.min(axis=gone) if gone else total
                    self.contexts[made] = np.transpose(best, [left.index(u) for u in own])
        choices = [0] * len(priced)
        self.seconds = np.inf
        self.bytes = 0.0
        if sum(value for _, value in roots) < np.inf:
            for v, _, reading in reversed(self.steps):
                at = [t[tuple(slice(None) if u == v else choices[u] for u in s)] for _, (s, t) in reading]
                choices[v] = int(sum(at[1:], at[0]).argmin())
            self.seconds = core.evaluate(tuple(choices))
            self.bytes = sum(float(w[c]) for w, c in zip(weights, choices, strict=True))

    @property
    def pair(self) -> tuple[float, float]:
        """Seconds and bytes of the least choice at this price."""
        return self.seconds, self.bytes


def sum_over(tables: Sequence[Table], axes: Scope, full: Sequence[int] | None = None) -> Floats:
    """The tables added up over `axes` (each in ascending order in its scope); over their full sizes where told."""
    total: Floats = np.zeros(full if full is not None else (1,) * len(axes))
    for scope, table in tables:
        # The axes of a scope are ascending, but the first of `axes` is the node that goes: it may come anywhere.
        places = [axes.index(u) for u in scope]
        moved = np.transpose(table, np.argsort(places)) if scope else table
        shape = [1] * len(axes)
        for u, size in zip(scope, np.shape(table), strict=True):
            shape[axes.index(u)] = size
        total = total + moved.reshape(shape)
    return total
