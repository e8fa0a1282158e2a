"""Messages that reparameterise a problem: they move cost between nodes and edges without changing the cost of a choice.

    ĉ_v[i]     = c_v[i] + Σ_u m_uv[i]                        Ê_uv[i, j] = E_uv[i, j] − m_vu[i] − m_uv[j]
    bound      = Σ_v min ĉ_v + Σ_uv min Ê_uv                                                 ≤ least cost
    slack_v[i] = ĉ_v[i] − min ĉ_v + Σ_u ( min_j Ê_uv[i, j] − min Ê_uv )

Every choice with strategy i at v costs at least bound + slack_v[i], for any messages: where that exceeds the cost of a
known choice, the strategy is in no optimal choice (`prune_by_bound`). Good messages come from
sequential reweighted message passing (V. Kolmogorov, "A new look at reweighted message passing", PAMI 2015).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import accumulate

import numpy as np

from alpa_explore.intra_op.bounds import message_kernels, tuning
from alpa_explore.intra_op.bounds.message_kernels import Flat
from alpa_explore.intra_op.problem.sharding_problem import FORBIDDEN, Choices, ShardingProblem
from alpa_explore.numerics.arrays import Floats, Ints


class Messages:
    """The state of message passing; every cost above `ceiling` is replaced by it.

    The lower bounds stay valid, because that never raises a cost.
    """

    def __init__(self, problem: ShardingProblem, ceiling: float) -> None:
        self.flat = flatten(problem, ceiling)
        self.nodes = self.flat[0]
        self.into_a, self.into_b = np.zeros(self.flat[4][-1]), np.zeros(self.flat[5][-1])
        later, earlier = np.zeros(len(self.nodes) - 1), np.zeros(len(self.nodes) - 1)
        for a, b in problem.edges:
            later[min(a, b)] += 1
            earlier[max(a, b)] += 1
        self.share = 1 / np.maximum(np.maximum(later, earlier), 1)

    def sweep(self, *, forward: bool) -> tuple[int, ...]:
        """One pass over the nodes in their order or against it; returns a choice that is cheap under the messages."""
        choices = np.zeros(len(self.share), dtype=np.int64)
        message_kernels.sweep(self.flat, forward, self.into_a, self.into_b, self.share, choices)
        return tuple(choices.tolist())

    def slacks(self) -> tuple[float, Floats]:
        """The lower bound, and the slack of every strategy, node after node."""
        slacks = np.empty(self.nodes[-1])
        bound = message_kernels.slacks(self.flat, self.into_a, self.into_b, slacks)
        return float(bound), slacks

    def bound(self) -> float:
        """Lower bound on the least cost."""
        return self.slacks()[0]


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


def flatten(problem: ShardingProblem, ceiling: float) -> Flat:
    """The arrays that the kernels read (see `message_kernels`), with every cost above `ceiling` replaced by it."""
    edges_at: list[list[tuple[int, bool, int]]] = [[] for _ in problem.node_costs]
    for e, (a, b) in enumerate(problem.edges):
        edges_at[a].append((e, True, b))
        edges_at[b].append((e, False, a))
    incidences = [incidence for edges in edges_at for incidence in edges]
    shapes = [m.shape for m in problem.edge_costs]

    def starts(sizes: list[int]) -> Ints:
        return np.array([0, *accumulate(sizes)], dtype=np.int64)

    def joined(arrays: list[Floats]) -> Floats:
        entries: Floats = np.concatenate([*arrays, np.zeros(0)])
        return np.asarray(np.minimum(entries, ceiling))

    return (
        starts([len(c) for c in problem.node_costs]),
        joined(list(problem.node_costs)),
        starts([a * b for a, b in shapes]),
        joined([m.ravel() for m in problem.edge_costs]),
        starts([a for a, _ in shapes]),
        starts([b for _, b in shapes]),
        starts([len(edges) for edges in edges_at]),
        np.array([e for e, _, _ in incidences], dtype=np.int64),
        np.array([first for _, first, _ in incidences], dtype=np.bool_),
        np.array([u for _, _, u in incidences], dtype=np.int64),
    )


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
