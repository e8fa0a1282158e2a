"""Strategies that no best choice holds, by a dual bound: what elimination and the ILP need not look at.

`messages` gives a bound that rises, and points to choices. A strategy whose bound + slack is above the cost of a choice
that is known is in no best choice.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from alpa_explore.intra_op.bounds.descend import descend, is_legal
from alpa_explore.intra_op.bounds.messages import Messages, flatten
from alpa_explore.intra_op.problem.sharding_problem import ShardingProblem
from alpa_explore.numerics.arrays import Ints

ROUNDS = 400
LOOK = 4
"""Rounds between two looks at the gap."""
CLOSED = 1e-12
"""Relative gap at which the best known choice is proven optimal: no more than rounding."""
MARGIN = 1e-9
"""A strategy goes only if its bound is above the best known cost by this share: ties and rounding keep it."""
LARGEST_ILP = 3 * 10**6
"""Variables of Eq. 1 in one part that are too many for HiGHS on a small machine (some GB): there messages are all that
is left, and get eight times as long."""
PROGRESS = 2e-3
"""A look that closes less than this share of the gap sees no progress."""
PATIENCE = 3
"""Looks without progress before the messages stop."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Pruned:
    """`kept[v]`: the strategies of v that a best choice may hold; `best`: the cheapest choice seen, if any is legal."""

    kept: tuple[Ints, ...]
    best: tuple[int, ...] | None
    bound: float
    closed: bool
    """True when `best` is proven optimal, or within the gap that was asked for."""
    messages: Messages | None
    """None where no legal choice is known."""


def prune_by_bound(problem: ShardingProblem, gap: float = 0.0) -> Pruned:
    """Messages until the bound no longer grows or is within `gap` of the best choice; then the slack test."""
    flat = flatten(problem, math.inf)
    best = descend(problem, None, flat)
    if not is_legal(problem, best):
        everything = tuple(np.arange(len(c)) for c in problem.node_costs)
        return Pruned(kept=everything, best=None, bound=0.0, closed=False, messages=None)
    known = problem.evaluate(best)
    messages = Messages(problem, ceiling=2 * known + 1e-12)
    bound, idle = -np.inf, 0
    more = 1 if problem.variables <= LARGEST_ILP else 8
    for number in range(1, more * ROUNDS + 1):
        messages.sweep(forward=True)
        pointed = messages.sweep(forward=False)
        if number % LOOK:
            continue
        found = descend(problem, pointed, flat)
        if is_legal(problem, found) and problem.evaluate(found) < known:
            best, known = found, problem.evaluate(found)
        grown = messages.bound()
        idle = idle + 1 if grown - bound < PROGRESS * (known - grown) else 0
        bound = max(bound, grown)
        if known - bound <= max(CLOSED, gap) * known or idle >= more * PATIENCE:
            break
    return pruned_at(problem, messages, best, -math.inf, gap)


def pruned_at(problem: ShardingProblem, messages: Messages, best: tuple[int, ...], bound: float, gap: float) -> Pruned:
    """The slack test with the choice `best`; `bound` is one that is known beside that of the messages."""
    known = problem.evaluate(best)
    pushed, slacks = messages.slacks()
    slack = np.split(slacks, messages.nodes[1:-1])
    proven = max(bound, pushed)
    return Pruned(
        kept=tuple(np.flatnonzero(pushed + s <= known * (1 + MARGIN)) for s in slack),
        best=best,
        bound=proven,
        closed=known - proven <= max(CLOSED, gap) * known,
        messages=messages,
    )


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
