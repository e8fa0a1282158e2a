"""A good choice within a memory limit by a deadline: messages under prices of memory, then annealing within the limit.

1. Start: the strategies that hold least. Where they fit they are the first answer.
2. Messages (`bounds.messages`) at prices of memory give a choice that is cheap as a whole, which no move of some nodes
   would find. After each pass the price of a byte at time t is multiplied by exp(rate · overflow_t / room_t).
3. Repair: nodes give way at the fullest time, the cheapest a byte first, until all fits.
4. Annealing at a falling temperature in which no move exceeds the limit, while the prices fall to zero.

Steps 2 to 4 are a round. Noise on the costs makes the choices of the rounds differ. The moves are those of
`anneal_kernels` and of `tree_kernels`, temperatures are relative to the mean cost of a node. Several threads may
search, with other seeds: they share what they found.
"""

from __future__ import annotations

import math
import threading
import time
from contextlib import suppress

import numpy as np

from alpa_explore.intra_op.bounds.messages import simple_bound
from alpa_explore.intra_op.memory.price_search import priced_messages
from alpa_explore.intra_op.problem.sharding_problem import ShardingProblem
from alpa_explore.iopddl import tuning
from alpa_explore.iopddl.walk import SearchProblem, Walk
from alpa_explore.numerics.arrays import Floats, Ints


class Closed(Exception):
    """The search is over: the bound is reached, or nobody waits for the answer."""


class Found:
    """What the threads of a search have found; mutable, guarded by a lock."""

    def __init__(self, problem: ShardingProblem) -> None:
        self.lock = threading.Lock()
        self.bound = simple_bound(problem)
        self.choices: Ints | None = None
        self.cost, self.overflow = math.inf, math.inf
        """The overflow is the least number of bytes by which a legal choice exceeds the limit; 0 where one fits."""
        self.over = False

    def add(self, choices: Ints, cost: float, overflow: float) -> None:
        """Take a legal choice, kept where it fits and is the cheapest; raises Closed when none can be better."""
        with self.lock:
            self.overflow = min(self.overflow, max(overflow, 0.0))
            if overflow <= 0 and cost < self.cost:
                self.choices, self.cost = np.array(choices, dtype=np.int64), cost
            self.check()

    def check(self) -> None:
        """Raise Closed when nothing better can be found, or nobody waits for it."""
        closed = self.cost < math.inf and self.cost - self.bound <= tuning.PROVEN_GAP * abs(self.cost)
        if self.over or closed or self.bound == math.inf:
            raise Closed


def anneal_within(instance: SearchProblem, found: Found, deadline: float, seed: int = 1) -> None:
    """Search until `deadline` (of time.perf_counter) or until `found` is closed, and add to it what is found."""
    search = _Search(instance, found, deadline, seed)
    with suppress(Closed):
        search.begin()
        whole = search.left()
        while search.left() > 0 and instance.free.size:
            search.round(search.most_seconds(tuning.ROUND_SHARE * whole))


class _Search:
    """Mutable; lives inside one search of a thread."""

    def __init__(self, instance: SearchProblem, found: Found, deadline: float, seed: int) -> None:
        self.instance, self.found, self.deadline = instance, found, deadline
        self.walk = Walk(instance, np.zeros(len(instance.graph[0]) - 1, dtype=np.int64), seed)
        self.messages = priced_messages(instance.problem, instance.times, instance.ceiling)
        self.random = np.random.default_rng(seed)
        self.prices: Floats = np.zeros(len(instance.times.room))
        self.rounds, self.moves, self.speed = 0, tuning.FIRST_MOVES, 0.0
        """`speed`: moves a second in the last slice."""

    def left(self) -> float:
        """Seconds until the deadline."""
        return self.deadline - time.perf_counter()

    def begin(self) -> None:
        """Take the strategies that hold least."""
        nodes, costs = self.instance.graph[0], self.instance.graph[1]
        held = self.instance.times.memory_costs(np.ones(len(self.prices)), nodes[-1])
        # Of strategies that hold equally much the cheapest.
        order = np.lexsort((costs, held, np.repeat(np.arange(len(nodes) - 1), np.diff(nodes))))
        self.walk.choices[:] = order[nodes[:-1]] - nodes[:-1]
        scale = float(np.maximum(self.instance.times.room, 0.0).sum())
        self.prices[:] = tuning.FIRST_PRICE_SHARE * self.walk.cost()[0] / max(scale, 1.0)
        self.record()

    def most_seconds(self, seconds: float) -> float:
        """Time for a round: so many seconds, or fewer where the nodes are few."""
        if self.speed > 0:
            seconds = min(seconds, tuning.MOST_SWEEPS * len(self.instance.free) / self.speed)
        return min(max(seconds, tuning.SHORTEST_ROUND_SECONDS), self.left())

    def round(self, seconds: float) -> None:
        """Steps 2 to 4 in so many seconds."""
        began = time.perf_counter()
        self.pass_messages(began + tuning.MESSAGE_SHARE * seconds)
        if self.repair():
            self.record()
            self.anneal(began + seconds)

    def pass_messages(self, until: float) -> None:
        """Step 2."""
        nodes = self.instance.graph[0]
        noise = self.random.gumbel(size=nodes[-1]) * (tuning.NOISE * self.unit() if self.rounds else 0.0)
        first, self.rounds = self.rounds == 0, self.rounds + 1
        passes = tuning.FIRST_PASSES if first else tuning.PASSES
        room = self.instance.times.room
        room = np.maximum(room, tuning.LEAST_ROOM_SHARE * max(room.max(), 1.0))
        for i in range(passes):
            self.walk.choices[:] = self.messages.choice(self.prices, noise=noise)
            self.record()
            rate = tuning.PRICE_RATE
            if first:
                rate *= (tuning.FIRST_PRICE_RATE / rate) ** (1 - i / passes)
            self.prices *= np.exp(rate * np.clip(self.walk.profile[0] / room, -1.0, 1.0))
            np.maximum(self.prices, tuning.LEAST_PRICE_SHARE * self.prices.max(), out=self.prices)
            if time.perf_counter() >= until:
                break

    def repair(self) -> bool:
        """Let nodes give way until the limit is kept; False where that fails."""
        self.walk.price(self.prices)
        for _ in range(tuning.MOST_REPAIRS):
            if self.walk.above() <= 0:
                return True
            if self.left() <= 0 or not self.walk.relieve_peak():
                return False
        return False

    def anneal(self, until: float) -> None:
        """Step 4, from a choice within the limit."""
        began = time.perf_counter()
        while (now := time.perf_counter()) < until:
            x = (now - began) / (until - began)
            self.walk.price(self.prices * (1 - x))
            self.walk.move(self.moves, self.unit() * tuning.HOT * (tuning.COLD / tuning.HOT) ** x)
            self.record()
            seconds = max(time.perf_counter() - now, 1e-6)
            self.speed = self.moves / seconds
            wished = min(tuning.SLICE_SECONDS, max(self.left(), 0.0) / 2)
            self.moves = max(tuning.LEAST_MOVES, int(self.moves * min(2.0, wished / seconds)))

    def record(self) -> None:
        """Weigh the choice, and add it to what was found where it is legal."""
        overflow = self.walk.weigh()
        cost, legal = self.walk.cost()
        self.found.check()
        if legal:
            self.found.add(self.walk.choices, cost, overflow)

    def unit(self) -> float:
        """The mean cost of a node, of the best choice or of the current one."""
        return min(self.found.cost, self.walk.cost()[0]) / len(self.instance.free)
