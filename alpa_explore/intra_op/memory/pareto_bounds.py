"""Which partial choices can still reach the frontier: bounds that keep the Pareto sets of `pareto` small.

For a price p of a byte let  c_p = seconds + p · bytes,  and for the price ∞ the bytes alone. A forward elimination
gives the least c_p of the problem. A backward pass gives for every table, that is, for every set of nodes eliminated so
far, its *context*:

    context_p(u) = the least c_p of everything outside the table, where the nodes in its scope take the strategies u

A partial pair (s, b) at u can therefore only be completed to pairs with  s' + p · b' ≥ s + p · b + context_p(u),  for
every p. The optimal pairs of the prices are known (supported points: the convex part of the frontier). A pair that none
of them dominates lies in one of the boxes between two neighbouring supported points, s' ≤ s_(i+1) and b' ≤ b_i. If for
every box some price shows that its far corner is out of reach, no completion of the partial pair is on the frontier,
and it is dropped (the two-phase method of biobjective optimisation).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from alpa_explore.intra_op.memory import tuning
from alpa_explore.intra_op.problem.sharding_problem import FORBIDDEN, ShardingProblem
from alpa_explore.intra_op.reduction.factor_graph import Eliminated, Scope, Table, back_substitute
from alpa_explore.numerics.arrays import Floats
from alpa_explore.numerics.lower_envelope import search_between

INPUT = -1
"""Origin of a table that no step made."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Step:
    """One elimination: the tables that read `node` at this step, and the message that replaces them,

    m_i(N(v)) = min_k ( Σ_f f(v=k, N(v)) )
    """

    node: int
    tables: tuple[Table, ...]
    """The tables that read `node` at this step: first those that were given, in their order, then messages."""
    origins: tuple[int, ...]
    """For each of `tables` the step whose message it is, or INPUT."""
    scope: Scope
    """The nodes that share a table with `node`, ascending."""
    message: Floats
    """One axis for each node in `scope`."""

    @property
    def axes(self) -> Scope:
        """The node and its scope: the axes of the join."""
        return (self.node, *self.scope)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Bounds:
    """Prices, the far corners of the boxes, and the contexts."""

    prices: Floats
    """For each price the weight of a second and of a byte, shape [prices, 2]."""
    corner_seconds: Floats
    corner_bytes: Floats
    contexts: tuple[Floats, ...]
    """For every step of the elimination, shape [prices, entries of the message of the step]."""


def pareto_bounds(core: ShardingProblem, weights: Sequence[Floats], order: Sequence[int]) -> Bounds | None:
    """Bounds for an elimination of `core` in `order`; `weights[v]` are the bytes of node v. None if infeasible."""
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
        may_solve=lambda: len(runs) < tuning.PARETO_PRICES,
    )
    pairs = sorted({run.pair for run in runs.values()})
    kept = [p for p in pairs if not any(q != p and q[0] <= p[0] and q[1] <= p[1] for q in pairs)]
    prices = sorted(runs)
    # The ends are corners too: a pair as fast as the fastest, or with as few bytes as the smallest, must stay.
    corners = [(s, b) for (s, _), (_, b) in zip(kept[1:], kept, strict=False)] + [kept[0], kept[-1]]
    return Bounds(
        prices=np.array(prices).reshape(-1, 2),
        corner_seconds=np.array([s for s, _ in corners]),
        corner_bytes=np.array([b for _, b in corners]),
        contexts=tuple(np.stack([runs[p].contexts[step].ravel() for p in prices]) for step in range(len(order))),
    )


class PriceRun:
    """One price: an optimal pair, and the context of the message of each step."""

    def __init__(
        self, core: ShardingProblem, weights: Sequence[Floats], order: Sequence[int], second: float, byte: float
    ) -> None:
        priced = [
            np.where(c >= FORBIDDEN, np.inf, second * c + byte * w)
            for c, w in zip(core.node_costs, weights, strict=True)
        ]
        tables: list[Table] = [((v,), costs) for v, costs in enumerate(priced)]
        for (a, b), matrix in zip(core.edges, core.edge_costs, strict=True):
            costs = np.where(matrix >= FORBIDDEN, np.inf, second * matrix)
            tables.append(((a, b), costs) if a < b else ((b, a), costs.T))
        self.steps = _forward_pass(tables, order)
        self.contexts = _contexts(self.steps, [len(costs) for costs in core.node_costs])
        choices = [0] * len(priced)
        self.seconds = np.inf
        self.bytes = 0.0
        if sum(float(step.message) for step in self.steps if not step.scope) < np.inf:
            trail = [Eliminated(node=s.node, costs=s.tables[0][1], tables=s.tables[1:]) for s in self.steps]
            back_substitute(tuple(trail), choices)
            self.seconds = core.evaluate(tuple(choices))
            self.bytes = sum(float(w[c]) for w, c in zip(weights, choices, strict=True))

    @property
    def pair(self) -> tuple[float, float]:
        """Seconds and bytes of the least choice at this price."""
        return self.seconds, self.bytes


def sum_tables(tables: Sequence[Table], axes: Scope, sizes: Sequence[int] | None = None) -> Floats:
    """The sum of `tables` as an array with the nodes `axes` in that order.

    An axis that no table reads has length 1, or its length in `sizes` where that is given.
    """
    total: Floats = np.zeros(sizes if sizes is not None else (1,) * len(axes))
    for scope, table in tables:
        shape = [1] * len(axes)
        places = [axes.index(u) for u in scope]
        for place, size in zip(places, np.shape(table), strict=True):
            shape[place] = size
        # A scope is ascending, `axes` need not be: the node to be eliminated often comes first.
        ordered = table if places == sorted(places) else np.transpose(table, np.argsort(places))
        total = total + ordered.reshape(shape)
    return total


def _forward_pass(tables: Sequence[Table], order: Sequence[int]) -> list[Step]:
    """Eliminate every node that `tables` read, in `order`; every node has at least one table of its own."""
    place = {v: i for i, v in enumerate(order)}
    waiting: list[list[tuple[int, Table]]] = [[] for _ in order]
    """For each step the tables whose first eliminated node is that of the step, with their origins."""
    for scope, costs in tables:
        waiting[min(place[u] for u in scope)].append((INPUT, (scope, costs)))
    steps: list[Step] = []
    for number, v in enumerate(order):
        origins = tuple(origin for origin, _ in waiting[number])
        reading = tuple(table for _, table in waiting[number])
        scope = tuple(sorted({u for read, _ in reading for u in read} - {v}))
        message = sum_tables(reading, (v, *scope)).min(axis=0)
        steps.append(Step(node=v, tables=reading, origins=origins, scope=scope, message=message))
        if scope:
            waiting[min(place[u] for u in scope)].append((number, (scope, message)))
    return steps


def _contexts(steps: Sequence[Step], sizes: Sequence[int]) -> list[Floats]:
    """For each step the least sum of all tables that are not part of its message, over the scope of the message."""
    contexts: list[Floats] = [np.zeros(0)] * len(steps)
    roots = [(number, float(step.message)) for number, step in enumerate(steps) if not step.scope]
    for number, _ in roots:
        contexts[number] = np.array(sum(value for other, value in roots if other != number))
    for number in range(len(steps) - 1, -1, -1):
        step = steps[number]
        for origin, (scope, _) in zip(step.origins, step.tables, strict=True):
            if origin == INPUT:
                continue
            others = [t for other, t in zip(step.origins, step.tables, strict=True) if other != origin]
            total = sum_tables([*others, (step.scope, contexts[number])], step.axes, [sizes[u] for u in step.axes])
            contexts[origin] = _minimum_over_others(total, step.axes, scope)
    return contexts


def _minimum_over_others(total: Floats, axes: Scope, scope: Scope) -> Floats:
    """The minimum of `total` over all of its `axes` but those in `scope`, with the axes in the order of `scope`."""
    minimised = tuple(i for i, u in enumerate(axes) if u not in scope)
    remaining = [u for u in axes if u in scope]
    least = total.min(axis=minimised) if minimised else total
    return np.transpose(least, [remaining.index(u) for u in scope])
