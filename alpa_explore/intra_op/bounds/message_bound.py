"""Prune strategies that are in no optimal choice, by a dual bound.

`messages` gives a lower bound that rises, and choices. A strategy whose bound + slack exceeds the cost of a known
choice is in no optimal choice.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from alpa_explore.intra_op.bounds import tuning
from alpa_explore.intra_op.bounds.messages import Messages, descend, flatten, is_legal
from alpa_explore.intra_op.problem.sharding_problem import Choices, ShardingProblem
from alpa_explore.numerics.arrays import Ints


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Pruned:
    """`kept[v]`: the strategies of v that an optimal choice may hold; `best`: the cheapest legal choice seen, if
    any."""

    kept: tuple[Ints, ...]
    best: Choices | None
    bound: float
    closed: bool
    """True when `best` is proven optimal, or within the requested gap."""


def prune_by_bound(problem: ShardingProblem, gap: float = 0.0) -> Pruned:
    """Pass messages until the bound no longer grows or is within a relative `gap` of the best choice, then prune."""
    flat = flatten(problem, math.inf)
    best = descend(problem, None, flat)
    if not is_legal(problem, best):
        all_strategies = tuple(np.arange(len(c)) for c in problem.node_costs)
        return Pruned(kept=all_strategies, best=None, bound=0.0, closed=False)
    best_cost = problem.evaluate(best)
    messages = Messages(problem, ceiling=2 * best_cost + 1e-12)
    bound, idle = -np.inf, 0
    factor = 1 if problem.variables <= tuning.LARGEST_ILP_VARIABLES else tuning.LARGE_PROBLEM_FACTOR
    for number in range(1, factor * tuning.MESSAGE_ROUNDS + 1):
        messages.sweep(forward=True)
        candidate = messages.sweep(forward=False)
        if number % tuning.GAP_CHECK_INTERVAL:
            continue
        candidate = descend(problem, candidate, flat)
        if is_legal(problem, candidate) and problem.evaluate(candidate) < best_cost:
            best, best_cost = candidate, problem.evaluate(candidate)
        current_bound = messages.bound()
        progressed = current_bound - bound >= tuning.MIN_PROGRESS * (best_cost - current_bound)
        idle = 0 if progressed else idle + 1
        bound = max(bound, current_bound)
        closed = best_cost - bound <= max(tuning.PROVEN_GAP, gap) * best_cost
        if closed or idle >= factor * tuning.IDLE_CHECKS:
            break
    message_bound, slacks = messages.slacks()
    node_slacks = np.split(slacks, messages.nodes[1:-1])
    return Pruned(
        kept=tuple(np.flatnonzero(message_bound + s <= best_cost * (1 + tuning.PRUNING_MARGIN)) for s in node_slacks),
        best=best,
        bound=message_bound,
        closed=best_cost - message_bound <= max(tuning.PROVEN_GAP, gap) * best_cost,
    )
