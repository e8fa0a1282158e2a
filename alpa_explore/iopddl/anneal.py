"""A good choice within a memory limit by a deadline: simulated annealing under prices of memory.

1. Start: the strategies that hold least. Where they fit they are the first answer.
2. Priced: annealing of cost(s) + Σ_t λ_t · held_t(s) without the limit. After every slice of moves the price of a byte
   at time t is multiplied by exp(rate · overflow_t / room_t), so that the limit is nearly kept when the temperature
   is low.
3. Repaired: nodes give way at the fullest time, the cheapest a byte first, until all fits.
4. Limited: annealing at a falling temperature in which no move exceeds the limit, while the prices fall to zero.

Steps 2 to 4 are one round. How good its answer can become is decided while it is hot, by the nodes with most edges, and
luck has a part in it: several rounds are made, each from the best choice so far and its prices, and the last ones begin
less hot. The first gives an answer early. Every choice that is kept is legal and within the limit. The moves are those
of `anneal_kernels` and of `tree_kernels`.
Temperatures are relative to the mean cost of a node of the best choice.

A second thread, where there is one, shares the moves. In step 2 both move nodes of the same choice: each draws a node
by what it sees of the others, and where two neighbours move at once the field is off until the next slice begins, in
which it is summed up anew. In step 4 each has a choice of its own.
"""

from __future__ import annotations

import math
import queue
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

import numpy as np

from alpa_explore.intra_op.problem.memory_limit import MemoryLimit
from alpa_explore.intra_op.problem.sharding_problem import Choices, ShardingProblem
from alpa_explore.iopddl import tuning
from alpa_explore.iopddl.walk import SearchProblem, Walk
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
    second: SecondThread | None = None,
) -> Annealed:
    """Search until `deadline` (of time.perf_counter).

    `improved` is called with every better answer, or nearer to the limit where none is within it yet; `check` after
    every slice of moves. Either may end the search by an exception. `second` takes part in it as soon
    as it is ready.

    The choice begins at `start` where it is given. Raises nothing where no choice fits: see `Annealed.overflow`.
    """
    search = _Search(SearchProblem.of(problem, memory), deadline, seed, improved, check, second)
    search.begin(start)
    if search.instance.free.size:
        whole = search.left()
        while (left := search.left()) > 0:
            if left > tuning.LAST_SHARE * whole:
                search.round(tuning.ROUND_SHARE * whole, tuning.HOT)
            else:
                search.round(left, tuning.REHEATED)
    return search.answer()


class _Search:
    """Mutable; lives inside one search."""

    def __init__(
        self,
        instance: SearchProblem,
        deadline: float,
        seed: int,
        improved: Callable[[Annealed], None],
        check: Callable[[], None],
        second: SecondThread | None,
    ) -> None:
        self.instance, self.deadline, self.improved, self.check = instance, deadline, improved, check
        self.second, self.seed = second, seed
        self.walk = Walk(instance, np.zeros(len(instance.graph[0]) - 1, dtype=np.int64), seed)
        self.twin = self.walk.beside(seed + 1)
        self.prices: Floats = np.zeros(len(instance.segments.room))
        self.best: Ints | None = None
        self.best_prices: Floats = self.prices
        self.best_cost, self.overflow = math.inf, math.inf
        self.moves = tuning.FIRST_MOVES
        self.speed = 0.0
        """Moves a second in the last slice."""

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
        instance = self.instance
        nodes, costs = instance.graph[0], instance.graph[1]
        held = instance.memory_costs(np.ones(len(self.prices)))
        # Of strategies that hold equally much the cheapest.
        order = np.lexsort((costs, held, np.repeat(np.arange(len(nodes) - 1), np.diff(nodes))))
        self.walk.choices[:] = order[nodes[:-1]] - nodes[:-1]
        scale = float(np.maximum(instance.segments.room, 0.0).sum())
        self.prices[:] = tuning.FIRST_PRICE_SHARE * self.walk.cost()[0] / max(scale, 1.0)
        self.record(self.walk)
        if start is not None:
            self.walk.choices[:] = start
            self.record(self.walk)

    def round(self, seconds: float, hot: float) -> None:
        """Steps 2 to 4 from the temperature `hot`, in so many seconds, or fewer where the nodes are few."""
        if self.best is not None:
            self.walk.choices[:] = self.best
            self.prices[:] = self.best_prices
        began = time.perf_counter()
        if self.speed > 0:
            seconds = min(seconds, tuning.MOST_SWEEPS * len(self.instance.free) / self.speed)
        seconds = min(max(seconds, tuning.SHORTEST_ROUND_SECONDS), self.left())
        priced_until, until = began + tuning.PRICED_SHARE * seconds, began + seconds
        room = self.instance.segments.room
        room = np.maximum(room, tuning.LEAST_ROOM_SHARE * max(room.max(), 1.0))
        cold, coldest = tuning.COLD, tuning.COLDEST
        while (now := time.perf_counter()) < priced_until:
            x = (now - began) / (priced_until - began)
            self.priced_slice(self.unit() * hot * (cold / hot) ** x)
            self.record(self.walk)
            rate = tuning.PRICE_RATE * (1 - tuning.PRICE_RATE_FALL * x)
            fall = tuning.SETTLING_FALL if x > tuning.SETTLING else 1.0
            self.prices *= np.exp(rate * np.clip(self.walk.profile[0] / room, -fall, 1.0))
            np.maximum(self.prices, tuning.LEAST_PRICE_SHARE * self.prices.max(), out=self.prices)
        if not self.repair():
            if self.best is None:
                return
            self.walk.choices[:] = self.best
        self.record(self.walk)
        walks = [self.walk, Walk(self.instance, self.walk.choices.copy(), self.seed + 2)]
        began = time.perf_counter()
        while (now := time.perf_counter()) < until:
            x = (now - began) / (until - began)
            self.limited_slice(walks, self.prices * (1 - x), self.unit() * cold * (coldest / cold) ** x)
            for walk in walks:
                self.record(walk)

    def priced_slice(self, temperature: float) -> None:
        """Moves of both threads on the same choice, without the limit."""
        self.walk.price(self.prices)
        job = None
        if self.helped:
            job = partial(self.twin.move, 4 * self.moves, temperature, math.inf, singles_first=True)
        self.timed(job, partial(self.walk.move, self.moves, temperature, math.inf))

    def limited_slice(self, walks: list[Walk], prices: Floats, temperature: float) -> None:
        """Moves of each thread on a choice of its own, none beyond the limit."""
        for walk in walks if self.helped else walks[:1]:
            walk.price(prices)
            walk.weigh()
            walk.halt = self.walk.halt
        job = partial(walks[1].move, 4 * self.moves, temperature, 0.0, singles_first=True) if self.helped else None
        self.timed(job, partial(walks[0].move, self.moves, temperature, 0.0))

    @property
    def helped(self) -> bool:
        """Whether there is another thread for the moves."""
        return self.second is not None and self.second.ready

    def timed(self, job: Callable[[], None] | None, own: Callable[[], None]) -> None:
        """Do `own` and beside it `job`; the moves of the next slice follow from the time that it takes."""
        began = time.perf_counter()
        self.walk.halt[0] = 0
        if job is None or self.second is None:
            own()
        else:
            with self.second.beside(job):
                own()
                self.walk.halt[0] = 1
        seconds = max(time.perf_counter() - began, 1e-6)
        self.check()
        self.speed = self.moves / seconds
        wished = min(tuning.SLICE_SECONDS, max(self.left(), 0.0) / 2)
        factor = min(2.0, wished / seconds)
        self.moves = max(tuning.LEAST_MOVES, int(self.moves * factor))

    def repair(self) -> bool:
        """Let nodes give way until the limit is kept; False where that fails."""
        walk = self.walk
        walk.price(self.prices)
        for _ in range(tuning.MOST_REPAIRS):
            if walk.above() <= 0:
                return True
            if self.left() <= 0 or not walk.relieve_peak():
                return False
        return False

    def record(self, walk: Walk) -> None:
        """Weigh the choice of a walk, and keep it where it is legal, fits and costs least so far."""
        overflow = walk.weigh()
        cost, legal = walk.cost()
        if legal:
            nearer = self.best is None and overflow < self.overflow
            self.overflow = min(self.overflow, overflow)
            if nearer and overflow > 0:
                self.improved(self.answer())
            if overflow <= 0 and cost < self.best_cost:
                self.best, self.best_cost = walk.choices.copy(), cost
                self.best_prices = self.prices.copy()
                self.improved(self.answer())

    def unit(self) -> float:
        """The mean cost of a node, of the best choice or of the current one."""
        return min(self.best_cost, self.walk.cost()[0]) / len(self.instance.free)


class SecondThread:
    """What the two threads have in common. The searching one calls `beside` and `dismiss`, the other one `serve`."""

    def __init__(self) -> None:
        self._jobs: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._done: queue.SimpleQueue[Exception | None] = queue.SimpleQueue()
        self.ready = False
        """Whether the other thread waits for work, or is at it."""

    def serve(self) -> None:
        """Do what is asked for until `dismiss`."""
        self.ready = True
        while (job := self._jobs.get()) is not None:
            try:
                job()
            except Exception as fault:
                self._done.put(fault)
            else:
                self._done.put(None)

    def dismiss(self) -> None:
        """Nothing will be asked for any more."""
        self.ready = False
        self._jobs.put(None)

    @contextmanager
    def beside(self, job: Callable[[], None] | None) -> Iterator[None]:
        """Let the other thread do `job` during the block, and wait for it after the block."""
        if job is None:
            yield
            return
        self._jobs.put(job)
        fault: Exception | None = None
        try:
            yield
        finally:
            fault = self._done.get()
        if fault is not None:
            raise fault
