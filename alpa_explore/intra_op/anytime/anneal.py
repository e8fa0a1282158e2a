"""A good choice within a memory limit by a deadline: simulated annealing under prices of memory.

1. Start: the strategies that hold least. Where they fit they are the first answer.
2. Priced: annealing of cost(s) + Σ_t λ_t · held_t(s) without the limit. After every slice of moves the price of a byte
   at time t is multiplied by exp(rate · overflow_t / room_t), so that the limit is nearly kept when the temperature
   is low.
3. Repaired: nodes give way at the fullest time, the cheapest a byte first, until all fits.
4. Limited: annealing at a falling temperature in which no move exceeds the limit, while the prices fall to zero.

Steps 2 to 4 are one round; the next begins with the prices of the last and lasts longer. Every choice that is kept is
legal and within the limit. The moves are those of `anneal_kernels` and of `tree_kernels`, equally many nodes each.
Temperatures are relative to the mean cost of a node of the best choice.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from alpa_explore.intra_op.anytime import tuning
from alpa_explore.intra_op.anytime.anneal_kernels import BLOCK_BITS, Profile, anneal, fullest, give_way, put
from alpa_explore.intra_op.anytime.segments import Segments, segments
from alpa_explore.intra_op.anytime.tree_kernels import anneal_trees
from alpa_explore.intra_op.bounds.messages import flatten
from alpa_explore.intra_op.problem.memory_limit import MemoryLimit
from alpa_explore.intra_op.problem.sharding_problem import FORBIDDEN, Choices, ShardingProblem
from alpa_explore.numerics.arrays import Floats, Ints


@dataclass(frozen=True, slots=True, kw_only=True)
class Annealed:
    """The best choice found, if any fits, and the least overflow seen."""

    choices: Choices | None
    cost: float
    """inf without choices."""
    overflow: float
    """The fewest bytes by which a choice that was visited exceeds the limit at any time; 0 where one fits."""


def anneal_within(
    problem: ShardingProblem,
    memory: MemoryLimit,
    deadline: float,
    seed: int = 1,
    start: Choices | None = None,
    improved: Callable[[Annealed], None] = lambda annealed: None,
    check: Callable[[], None] = lambda: None,
) -> Annealed:
    """Search until `deadline` (of time.perf_counter).

    `improved` is called with every better answer, or nearer to the limit where none is within it yet; `check` after
    every slice of moves. Either may end the search by an exception.

    The choice begins at `start` where it is given. Raises nothing where no choice fits: see `Annealed.overflow`.
    """
    search = _Search(problem, memory, deadline, seed, improved, check)
    search.begin(start)
    if search.free.size:
        share, hot = tuning.FIRST_ROUND_SHARE, tuning.HOT
        while search.left() > 0:
            search.round(time.perf_counter() + max(share * search.left(), tuning.SHORTEST_ROUND_SECONDS), hot)
            share, hot = 1.0, tuning.REHEATED
    return search.answer()


class _Search:
    """Mutable; lives inside one search."""

    def __init__(
        self,
        problem: ShardingProblem,
        memory: MemoryLimit,
        deadline: float,
        seed: int,
        improved: Callable[[Annealed], None],
        check: Callable[[], None],
    ) -> None:
        self.deadline, self.improved, self.check = deadline, improved, check
        self.state = np.array([0x9E3779B97F4A7C15 * (2 * seed + 1) % 2**64], dtype=np.uint64)
        self.sizes = np.array([len(costs) for costs in problem.node_costs], dtype=np.int64)
        self.free = np.flatnonzero(self.sizes > 1)
        self.segments: Segments = segments(memory, self.sizes.tolist())
        self.flat = flatten(problem, math.inf)
        legal = [array[array < FORBIDDEN] for array in (self.flat[1], self.flat[3])]
        self.ceiling = tuning.FORBIDDEN_FACTOR * max(float(a.max(initial=0.0)) for a in legal)
        self.edges = np.array(problem.edges, dtype=np.int64).reshape(-1, 2)
        self.capped = (*self.flat[:3], np.minimum(self.flat[3], self.ceiling), *self.flat[4:])
        self.node_costs = np.minimum(self.flat[1], self.ceiling)
        _, _, _, first, amounts, _, _, owner = self.segments.usage
        counts = np.diff(np.append(first, len(amounts)))
        self.segment_of = np.repeat(np.arange(len(first)), counts)
        self.entry = self.flat[0][owner][self.segment_of] + np.arange(len(amounts)) - first[self.segment_of]
        self.choices: Ints = np.zeros(len(self.sizes), dtype=np.int64)
        self.prices: Floats = np.zeros(len(self.segments.room))
        self.best: Ints | None = None
        self.best_cost, self.overflow = math.inf, math.inf
        self.moves = tuning.FIRST_MOVES
        self.profile: Profile = self.segments.profile(self.choices)

    def left(self) -> float:
        """Seconds until the deadline."""
        return self.deadline - time.perf_counter()

    def answer(self) -> Annealed:
        """The best so far."""
        return Annealed(
            choices=None if self.best is None else tuple(self.best.tolist()),
            cost=self.best_cost,
            overflow=max(self.overflow, 0.0),
        )

    def begin(self, start: Choices | None) -> None:
        """Take the strategies that hold least, and `start` where it is given."""
        held = self.priced(np.ones(len(self.prices))) - self.node_costs
        # Of strategies that hold equally much the cheapest.
        order = np.lexsort((self.node_costs, held, np.repeat(np.arange(len(self.sizes)), self.sizes)))
        self.choices = (order[self.flat[0][:-1]] - self.flat[0][:-1]).astype(np.int64)
        self.profile = self.segments.profile(self.choices)
        self.record()
        scale = float(np.maximum(self.segments.room, 0.0).sum())
        self.prices[:] = tuning.FIRST_PRICE_SHARE * self.cost(capped=True) / max(scale, 1.0)
        if start is not None:
            self.choices = np.array(start, dtype=np.int64)
            self.profile = self.segments.profile(self.choices)
            self.record()

    def round(self, until: float, hot: float) -> None:
        """Steps 2 to 4 from the temperature `hot`, until the time `until`."""
        began = time.perf_counter()
        until = min(until, self.deadline)
        priced_until = began + tuning.PRICED_SHARE * (until - began)
        cold, coldest = tuning.COLD, tuning.COLDEST
        room = np.maximum(self.segments.room, tuning.LEAST_ROOM_SHARE * max(self.segments.room.max(), 1.0))
        while (now := time.perf_counter()) < priced_until:
            x = (now - began) / (priced_until - began)
            self.slice(self.prices, self.unit() * hot * (cold / hot) ** x, math.inf)
            self.record()
            rate = tuning.PRICE_RATE * (1 - tuning.PRICE_RATE_FALL * x)
            fall = tuning.SETTLING_FALL if x > tuning.SETTLING else 1.0
            self.prices *= np.exp(rate * np.clip(self.above() / room, -fall, 1.0))
            np.maximum(self.prices, tuning.LEAST_PRICE_SHARE * self.prices.max(), out=self.prices)
        if not self.repair():
            if self.best is None:
                return
            self.choices = self.best.copy()
            self.profile = self.segments.profile(self.choices)
        self.record()
        began = time.perf_counter()
        while (now := time.perf_counter()) < until:
            x = (now - began) / (until - began)
            self.slice(self.prices * (1 - x), self.unit() * cold * (coldest / cold) ** x, 0.0)
            self.record()

    def slice(self, prices: Floats, temperature: float, tolerance: float) -> None:
        """Some moves at these prices, of trees and of single nodes; their number follows from the time that the last
        ones took."""
        flat = (self.capped[0], self.priced(prices), *self.capped[2:])
        began = time.perf_counter()
        anneal_trees(
            flat,
            self.segments.usage,
            self.profile,
            self.choices,
            self.free,
            max(temperature, 1e-300),
            tolerance,
            self.moves,
            tuning.LARGEST_TREE,
            tuning.LONGEST_TREE_REPAIR,
            tuning.SAMPLES,
            self.state,
        )
        anneal(
            flat,
            self.segments.usage,
            self.profile,
            self.choices,
            self.choices.copy(),
            self.free,
            np.zeros(2),
            max(temperature, 1e-300),
            tolerance,
            self.moves,
            tuning.CHAIN_SHARE,
            tuning.LONGEST_CHAIN,
            tuning.SAMPLES,
            self.state,
        )
        self.check()
        seconds = time.perf_counter() - began
        wished = min(tuning.SLICE_SECONDS, max(self.left(), 0.0) / 2)
        factor = min(2.0, wished / max(seconds, 1e-6))
        self.moves = max(tuning.LEAST_MOVES, int(self.moves * factor))

    def repair(self) -> bool:
        """Let nodes give way until the limit is kept; False where that fails."""
        flat = (self.capped[0], self.priced(self.prices), *self.capped[2:])
        total = np.empty(int(self.sizes.max()))
        for _ in range(tuning.MOST_REPAIRS):
            if fullest(self.profile)[1] <= 0:
                return True
            if self.left() <= 0:
                return False
            node, strategy, _ = give_way(
                flat,
                self.segments.usage,
                self.profile,
                self.choices,
                -1,
                tuning.REPAIR_SAMPLES,
                self.state,
                total,
            )
            if node < 0:
                return False
            put(self.segments.usage, self.profile, self.choices, node, strategy)
        return False

    def record(self) -> None:
        """Keep the current choice where it is legal, fits and costs least so far."""
        overflow = float(fullest(self.profile)[1])
        cost = self.cost(capped=False)
        if cost < FORBIDDEN:
            nearer = self.best is None and overflow < self.overflow
            self.overflow = min(self.overflow, overflow)
            if nearer and overflow > 0:
                self.improved(self.answer())
            if overflow <= 0 and cost < self.best_cost:
                # The running sums have the rounding of all moves: sum up anew.
                self.profile = self.segments.profile(self.choices)
                if fullest(self.profile)[1] <= 0:
                    self.best, self.best_cost = self.choices.copy(), cost
                    self.improved(self.answer())

    def cost(self, *, capped: bool) -> float:
        """Cost of the current choice; with `capped`, forbidden entries count as the ceiling."""
        nodes, costs, tables, matrices = self.flat[:4]
        at_nodes = costs[nodes[:-1] + self.choices]
        a, b = self.edges[:, 0], self.edges[:, 1]
        at_edges = matrices[tables[:-1] + self.choices[a] * self.sizes[b] + self.choices[b]]
        if capped:
            at_nodes, at_edges = np.minimum(at_nodes, self.ceiling), np.minimum(at_edges, self.ceiling)
        return float(at_nodes.sum() + at_edges.sum())

    def unit(self) -> float:
        """The mean cost of a node, of the best choice or of the current one."""
        return min(self.best_cost, self.cost(capped=True)) / len(self.free)

    def above(self) -> Floats:
        """Bytes above the limit at each time."""
        above, shift, _ = self.profile
        return np.asarray(above + np.repeat(shift, 1 << BLOCK_BITS)[: len(above)])

    def priced(self, prices: Floats) -> Floats:
        """The cost of every strategy with the price of its memory."""
        _, begin, end, _, amounts, _, _, _ = self.segments.usage
        until = np.concatenate([[0.0], np.cumsum(prices)])
        charged = amounts * (until[end] - until[begin])[self.segment_of]
        summed = np.bincount(self.entry, weights=charged, minlength=len(self.node_costs))
        return np.asarray(self.node_costs + summed)
