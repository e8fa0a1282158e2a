"""A good choice within a memory limit, and a bound, by prices for memory (Lagrange multipliers).

With a price λ_t ≥ 0 for a byte at time t, every item costs what it takes times the prices of the times it lives, and

    L(λ) = min_s ( cost(s) + Σ_t λ_t · held_t(s) ) − Σ_t λ_t · room_t      ≤   least cost within the limit

`messages` bound the minimum from below at any prices, and the messages of one step serve the next. Prices rise where
the choice that the messages point to overflows (subgradient steps of Polyak's length). Every few steps that choice is
brought within the limit by descent with a rising penalty; the best one is kept.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from alpa_explore.intra_op.bounds.descend import descend, is_legal
from alpa_explore.intra_op.bounds.messages import Messages, flatten
from alpa_explore.intra_op.ilp.memory_rows import fullest_times
from alpa_explore.intra_op.memory.price_kernels import descend_within
from alpa_explore.intra_op.problem.memory_limit import FITS, MemoryLimit
from alpa_explore.intra_op.problem.sharding_problem import FORBIDDEN, ShardingProblem
from alpa_explore.numerics.arrays import Floats, Ints

FIRST_SWEEPS, SWEEPS = 40, 6
"""Rounds of messages before the first step, and between two."""
REPAIR = 4
"""Steps between two attempts to bring a choice within the limit."""
PATIENCE = 8
"""Steps without a better bound before they become shorter."""
SHORTEST = 1e-4
"""Of the full length of a step: the search ends when steps are shorter."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """The best choice within the limit, if any was found, and a lower bound on the least cost."""

    choices: tuple[int, ...] | None
    bound: float
    floors: tuple[Floats, ...]
    """For every node what a choice within the limit costs at least that holds this strategy."""


def price_search(problem: ShardingProblem, memory: MemoryLimit, deadline: float, gap: float = 1e-9) -> Found:
    """Search until `deadline` (of time.perf_counter), a relative `gap`, or until nothing improves."""
    timeline = _Timeline(problem, memory)
    flat = flatten(problem, math.inf)
    start = descend(problem, None, flat)
    known = problem.evaluate(start)
    messages = Messages(problem, ceiling=4 * known if is_legal(problem, start) else _all_of_it(problem))
    free_costs = messages.flat[1].copy()
    prices = np.zeros(len(timeline.room))
    best: tuple[int, ...] | None = None
    best_cost, bound = math.inf, -math.inf
    floors: Floats = np.full(timeline.entries, -math.inf)
    length, idle, step = 1.0, 0, 0
    while length > SHORTEST and time.perf_counter() < deadline:
        messages.flat[1][:] = free_costs + timeline.memory_costs(prices)
        for _ in range(SWEEPS if step else FIRST_SWEEPS):
            messages.sweep(forward=True)
            pointed = messages.sweep(forward=False)
        pushed, slacks = messages.slacks()
        here = pushed - float(prices @ timeline.room)
        # Whatever the prices, what a strategy adds to the bound holds: the highest of all steps is kept.
        np.maximum(floors, here + slacks, out=floors)
        idle = 0 if here > bound + 1e-4 * abs(bound) or step == 0 else idle + 1
        bound = max(bound, here)
        if idle > PATIENCE:
            length, idle = 0.6 * length, 0
        held = timeline.held(pointed)
        if step % REPAIR == 0:
            repaired = _repair(problem, timeline, flat, pointed, prices, bound)
            if repaired is not None and (cost := problem.evaluate(repaired)) < best_cost:
                best, best_cost = repaired, cost
        if best is not None and best_cost - bound <= gap * abs(best_cost):
            break
        slope = held - timeline.room
        slope[(prices <= 0) & (slope < 0)] = 0.0
        steepness = float(slope @ slope)
        if steepness > 0:
            target = best_cost if best is not None else bound + 0.2 * abs(bound)
            prices = np.maximum(0.0, prices + length * max(target - here, 1e-3 * abs(target)) / steepness * slope)
        step += 1
    ends = np.cumsum([len(costs) for costs in problem.node_costs], dtype=np.int64)
    return Found(choices=best, bound=bound, floors=tuple(np.split(floors, ends)[:-1]))


class _Timeline:
    """The items as arrays over the fullest times alone: what fits at those fits always."""

    def __init__(self, problem: ShardingProblem, memory: MemoryLimit) -> None:
        items = [item for item in memory.items if item.end > item.start]
        times = fullest_times(memory, {item.start for item in items})
        # Counted from 0 at the first of these times at or after a time.
        place = np.searchsorted(times, np.arange(len(memory.taken) + 1))
        self.room = memory.limit - memory.taken[times]
        self.unit = max(float(self.room.max(initial=0.0)), 1.0)
        self.node = np.array([item.node for item in items], dtype=np.int64)
        self.start = np.array([place[item.start] for item in items], dtype=np.int64)
        self.end = np.array([place[item.end] for item in items], dtype=np.int64)
        sizes = np.array([len(costs) for costs in problem.node_costs], dtype=np.int64)
        offsets = np.concatenate([[0], np.cumsum(sizes)])
        counts = sizes[self.node]
        self.first = np.concatenate([[0], np.cumsum(counts)])
        self.usage: Floats = np.concatenate([*(item.usage for item in items), np.zeros(0)])
        self.owner = np.repeat(np.arange(len(items)), counts)
        self.entry = offsets[self.node][self.owner] + np.arange(len(self.usage)) - self.first[self.owner]
        self.entries = int(offsets[-1])
        self.item_at = np.argsort(self.node, kind="stable")
        self.items_of = np.concatenate([[0], np.cumsum(np.bincount(self.node, minlength=len(sizes)))])

    def memory_costs(self, prices: Floats) -> Floats:
        """What each strategy of each node pays for its memory."""
        until = np.concatenate([[0.0], np.cumsum(prices)])
        paid = self.usage * (until[self.end] - until[self.start])[self.owner]
        return np.bincount(self.entry, weights=paid, minlength=self.entries).astype(np.float64)

    def held(self, choices: Sequence[int] | Ints) -> Floats:
        """Bytes at each of the times."""
        amounts = self.usage[self.first[:-1] + np.asarray(choices, dtype=np.int64)[self.node]]
        change = np.zeros(len(self.room) + 1)
        np.add.at(change, self.start, amounts)
        np.add.at(change, self.end, -amounts)
        return np.asarray(change.cumsum()[:-1])

    def fits(self, held: Floats) -> bool:
        """True when nothing overflows."""
        return bool((held <= self.room + FITS * self.unit).all())


def _repair(
    problem: ShardingProblem,
    timeline: _Timeline,
    flat: tuple[Floats, ...],
    pointed: tuple[int, ...],
    prices: Floats,
    bound: float,
) -> tuple[int, ...] | None:
    """`pointed`, brought within the limit and bettered there; None when that fails."""
    choices = np.array(pointed, dtype=np.int64)
    byte_price = 3 * max(float(prices.max(initial=0.0)), 1e-3 * abs(bound) / timeline.unit)
    for _ in range(6):
        held = timeline.held(choices)
        descend_within(
            flat,
            choices,
            held,
            timeline.room,
            timeline.items_of,
            timeline.item_at,
            timeline.start,
            timeline.end,
            timeline.first,
            timeline.usage,
            byte_price,
            10,
        )
        if timeline.fits(timeline.held(choices)):
            found = tuple(choices.tolist())
            return found if is_legal(problem, found) else None
        byte_price *= 4
    return None


def _all_of_it(problem: ShardingProblem) -> float:
    """No legal choice costs more."""
    parts = (*problem.node_costs, *problem.edge_costs)
    return sum(float(p[p < FORBIDDEN].max(initial=0.0)) for p in parts) + 1.0
