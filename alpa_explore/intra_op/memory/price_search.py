"""A good choice under a memory limit, and a lower bound, by prices of memory (Lagrange multipliers).

With a price λ_t ≥ 0 for a byte at time t, every item costs its usage times the sum of the prices while it is alive, and

    L(λ) = min_s ( cost(s) + Σ_t λ_t · held_t(s) ) − Σ_t λ_t · room_t      ≤   least cost within the limit

Messages (`bounds.messages`) bound the minimum from below at any prices, and the messages of one step are the start of
the next. Prices rise where the choice of the last sweep overflows (subgradient steps of Polyak's length). Every few
steps that choice is brought within the limit by coordinate descent with a rising penalty; the best one is kept.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from alpa_explore.intra_op.bounds.message_kernels import Flat, given_others
from alpa_explore.intra_op.bounds.messages import Messages, descend, flatten, is_legal
from alpa_explore.intra_op.bounds.tuning import PRUNING_MARGIN
from alpa_explore.intra_op.ilp.enumerated_ilp import solve_enumerated
from alpa_explore.intra_op.memory import tuning
from alpa_explore.intra_op.problem.memory_limit import MemoryLimit
from alpa_explore.intra_op.problem.sharding_problem import Choices, ShardingProblem, restricted, unrestricted_choices
from alpa_explore.intra_op.problem.solution import ShardingSolution
from alpa_explore.intra_op.problem.timeline import Timeline, timeline
from alpa_explore.numerics.arrays import Floats, Ints
from alpa_explore.numerics.compiled import compiled


class PricedMessages:
    """Messages for a problem whose costs include the price of memory; each pass continues from the one before."""

    def __init__(self, problem: ShardingProblem, times: Timeline, ceiling: float) -> None:
        self.messages, self.times = Messages(problem, ceiling), times
        self.costs: Floats = self.messages.flat[1].copy()
        """Of all strategies, without their memory."""

    def choice(self, prices: Floats, passes: int = 1, noise: Floats | float = 0.0) -> Choices:
        """A choice that is cheap at these prices, after so many passes forth and back; `noise` is taken off the
        costs."""
        self.messages.flat[1][:] = self.costs + self.times.memory_costs(prices, len(self.costs)) - noise
        for _ in range(passes):
            self.messages.sweep(forward=True)
            choices = self.messages.sweep(forward=False)
        return choices


def priced_messages(problem: ShardingProblem, times: Timeline, ceiling: float) -> PricedMessages:
    """Messages for `problem` at prices of memory; costs above `ceiling` are replaced by it."""
    return PricedMessages(problem, times, ceiling)


@dataclass(frozen=True, slots=True, kw_only=True)
class PriceSearchResult:
    """The best choice within the limit, if there is one, and a lower bound on the least cost."""

    choices: Choices | None
    bound: float
    strategy_bounds: tuple[Floats, ...]
    """For every node and strategy a lower bound on the cost of every choice within the limit that has this strategy."""

    def rest(self, problem: ShardingProblem, memory: MemoryLimit, best_cost: float) -> Rest:
        """What is left to search where a choice that costs `best_cost` is known."""
        most = best_cost * (1 + PRUNING_MARGIN)
        kept = tuple(np.flatnonzero(bounds <= most) for bounds in self.strategy_bounds)
        return Rest(problem=restricted(problem, kept), memory=memory.restricted(kept), kept=kept, best_cost=best_cost)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Rest:
    """A problem with the strategies alone that a choice cheaper than the best known one may have."""

    problem: ShardingProblem
    memory: MemoryLimit
    kept: tuple[Ints, ...]
    """For each node its strategies in the whole problem."""
    best_cost: float

    def solve(self, best: Sequence[int] | None, *, gap: float, seconds: float | None) -> ShardingSolution:
        """The answer of HiGHS, which begins at `best`, in the numbering of the whole problem; its bound holds there.
        SolverError where no choice is found in so many seconds. It is INFEASIBLE, with no choices, where nothing is
        cheaper than the best known choice: its bound is then the cost of that."""
        start = (
            None if best is None else tuple(int(np.searchsorted(k, c)) for k, c in zip(self.kept, best, strict=True))
        )
        answer = solve_enumerated(self.problem, memory=self.memory, start=start, gap=gap, time_limit_seconds=seconds)
        fits = answer.choices and self.memory.allows(answer.choices)  # HiGHS allows a tolerance
        choices = unrestricted_choices(self.kept, answer.choices) if fits else ()
        # Choices with an excluded strategy do not cost less than the best.
        return replace(answer, choices=choices, bound=min(answer.bound, self.best_cost))


def price_search(
    problem: ShardingProblem,
    memory: MemoryLimit,
    deadline: float,
    gap: float = 1e-9,
    check: Callable[[], None] = lambda: None,
    *,
    compiling_counts: bool = True,
) -> PriceSearchResult:
    """Search until `deadline` (of time.perf_counter), a relative `gap`, or until nothing improves.

    `check` is called in every step, and may end the search by an exception. Without `compiling_counts` the deadline is
    put off by what the first step takes, which compiles kernels where none are on disk: the answer is the same then.
    """
    began = time.perf_counter()
    sizes = [len(costs) for costs in problem.node_costs]
    times = timeline(memory, sizes)
    flat = flatten(problem, math.inf)
    start = descend(problem, None, flat)
    legal_start = is_legal(problem, start)
    ceiling = 4 * problem.evaluate(start) if legal_start else problem.largest_legal_cost() + 1.0
    priced = priced_messages(problem, times, ceiling)
    prices = np.zeros(len(times.room))
    best: Choices | None = None
    best_cost, bound = math.inf, -math.inf
    strategy_bounds: Floats = np.full(sum(sizes), -math.inf)
    length, idle, step = 1.0, 0, 0
    while length > tuning.SHORTEST_STEP:
        if step == 1 and not compiling_counts:
            deadline += time.perf_counter() - began
        if time.perf_counter() >= deadline and (step > 0 or compiling_counts):
            break
        check()
        candidate = priced.choice(prices, tuning.MESSAGE_ROUNDS if step else tuning.FIRST_MESSAGE_ROUNDS)
        message_bound, slacks = priced.messages.slacks()
        step_bound = message_bound - float(prices @ times.room)
        # The bound of a strategy holds at any prices: the highest of all steps is kept.
        np.maximum(strategy_bounds, step_bound + slacks, out=strategy_bounds)
        idle = 0 if step_bound > bound + tuning.BOUND_PROGRESS * abs(bound) or step == 0 else idle + 1
        bound = max(bound, step_bound)
        if idle > tuning.IDLE_STEPS:
            length, idle = tuning.STEP_SHRINK * length, 0
        if step % tuning.REPAIR_INTERVAL == 0:
            repaired = _repair(problem, memory, times, flat, candidate, prices, bound)
            if repaired is not None and (cost := problem.evaluate(repaired)) < best_cost:
                best, best_cost = repaired, cost
        if best is not None and best_cost - bound <= gap * abs(best_cost):
            break
        subgradient = times.held(candidate) - times.room
        subgradient[(prices <= 0) & (subgradient < 0)] = 0.0
        squared_norm = float(subgradient @ subgradient)
        if squared_norm > 0:
            target = best_cost if best is not None else bound + 0.2 * abs(bound)
            missing = max(target - step_bound, 1e-3 * abs(target))
            prices = np.maximum(0.0, prices + length * missing / squared_norm * subgradient)
        step += 1
    ends = np.cumsum(sizes, dtype=np.int64)
    return PriceSearchResult(choices=best, bound=bound, strategy_bounds=tuple(np.split(strategy_bounds, ends)[:-1]))


def _repair(
    problem: ShardingProblem,
    memory: MemoryLimit,
    times: Timeline,
    flat: Flat,
    candidate: Choices,
    prices: Floats,
    bound: float,
) -> Choices | None:
    """A legal choice within the limit by descent from `candidate`; None when that fails."""
    choices = np.array(candidate, dtype=np.int64)
    byte_price = 3 * max(float(prices.max(initial=0.0)), 1e-3 * abs(bound) / max(memory.limit, 1.0))
    usage = times.of_node, times.begin, times.end, times.first, times.amounts
    for _ in range(tuning.REPAIR_ATTEMPTS):
        descend_within(flat, choices, times.held(choices), times.room, usage, byte_price, tuning.REPAIR_DESCENT_ROUNDS)
        repaired = tuple(choices.tolist())
        if memory.allows(repaired):
            return repaired if is_legal(problem, repaired) else None
        byte_price *= tuning.REPAIR_PRICE_GROWTH
    return None


@compiled()
def descend_within(
    flat: Flat, choices: Ints, held: Floats, room: Floats, usage: Any, byte_price: float, rounds: int
) -> None:
    """Let each node take its best strategy at a penalty of `byte_price` for every byte above `room` at every time.

    `held` are the bytes at each time under `choices`; both are updated in place. `usage` are the arrays (of_node,
    begin, end, first, amounts) of a timeline (see `timeline`).
    """
    of_node, begin, end, first, amounts = usage
    nodes = flat[0]
    count = len(nodes) - 1
    largest = 1
    for v in range(count):
        largest = max(largest, nodes[v + 1] - nodes[v])
    total = np.empty(largest)
    for _ in range(rounds):
        changed = False
        for v in range(count):
            size = nodes[v + 1] - nodes[v]
            if size == 1:
                continue
            given_others(flat, choices, v, total)
            current = choices[v]
            overflows = False
            for s in range(of_node[v], of_node[v + 1]):
                for t in range(begin[s], end[s]):
                    if held[t] > room[t]:
                        overflows = True
                        break
            best, best_change = current, 0.0
            for k in range(size):
                change = total[k] - total[current]
                # Where nothing overflows only a strategy that is cheaper by itself can be better.
                if k == current or (not overflows and change >= best_change):
                    continue
                for s in range(of_node[v], of_node[v + 1]):
                    grown = amounts[first[s] + k] - amounts[first[s] + current]
                    if grown == 0.0:
                        continue
                    for t in range(begin[s], end[s]):
                        above = held[t] - room[t]
                        change += byte_price * (max(above + grown, 0.0) - max(above, 0.0))
                if change < best_change:
                    best, best_change = k, change
            if best != current:
                choices[v] = best
                changed = True
                for s in range(of_node[v], of_node[v + 1]):
                    for t in range(begin[s], end[s]):
                        held[t] += amounts[first[s] + best] - amounts[first[s] + current]
        if not changed:
            break
