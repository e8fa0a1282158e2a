"""`solve_within`: the best choice within a memory limit that is found by a deadline, and a lower bound.

1. `condense`: nodes that follow from a neighbour become part of it.
2. Two threads, as many as a small machine has cores: `anneal_within` in one; in the other one prices and messages
   (`memory.price_search`), which give the bound and often a good choice, then HiGHS on the strategies that the bounds
   leave where these are few, and after that `anneal_within` with other random numbers.

The answer does not wait for these threads, which end after their current step; what they found before counts. The end
of Python waits for that step where it is compiled code, which Python's end would crash.
"""

from __future__ import annotations

import atexit
import math
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial

import numpy as np

from alpa_explore.errors import SolverError
from alpa_explore.intra_op.bounds.messages import is_legal
from alpa_explore.intra_op.bounds.tuning import LARGEST_ILP_VARIABLES
from alpa_explore.intra_op.ilp.ilp_answer import infeasible
from alpa_explore.intra_op.memory.price_search import price_search
from alpa_explore.intra_op.problem.memory_limit import Item, MemoryLimit
from alpa_explore.intra_op.problem.sharding_problem import ShardingProblem
from alpa_explore.intra_op.problem.solution import ShardingSolution
from alpa_explore.intra_op.reduction.arc_consistency import possible_strategies
from alpa_explore.intra_op.reduction.factor_graph import Contradiction
from alpa_explore.intra_op.solve_limited import checked_within, solve_limited
from alpa_explore.iopddl import tuning
from alpa_explore.iopddl.anneal import Closed, Found, anneal_within
from alpa_explore.iopddl.condense import Condensed, condense
from alpa_explore.iopddl.walk import SearchProblem
from alpa_explore.numerics.arrays import Ints


def solve_within(
    problem: ShardingProblem,
    memory: MemoryLimit,
    solver: str = "auto",
    time_limit_seconds: float | None = None,
    *,
    keep_when_interrupted: bool = False,
) -> ShardingSolution:
    """The best choice for `problem` within `memory` that is found in the time, and the lower bound that was proven.

    Without a time limit `intra_op.solve_limited` proves the optimum where an ILP can; larger problems get
    tuning.ANYTIME_SECONDS, and solvers that are named the whole problem. With `keep_when_interrupted`, Ctrl-C ends the
    search early and the best choice so far is the answer; without one so far, and without the flag, KeyboardInterrupt
    is raised. SolverError when nothing was found in time.
    """
    if time_limit_seconds is None and problem.variables > LARGEST_ILP_VARIABLES:
        time_limit_seconds = tuning.ANYTIME_SECONDS
    if solver != "auto" or time_limit_seconds is None or not time_limit_seconds > 0:
        return solve_limited(problem, memory, solver, time_limit_seconds)
    started = time.perf_counter()
    deadline = started + time_limit_seconds
    search = _Search(problem, memory, deadline)
    try:
        search.run(keep_when_interrupted)
    except Contradiction:
        return infeasible(solver="auto", started=started)
    condensed, found = search.condensed, search.found
    if condensed is None or found is None:
        raise _nothing("the time was over before the problem was prepared")
    with found.lock:
        choices, cost, bound = found.choices, found.cost, found.bound
    if choices is None:
        if bound == math.inf:
            return infeasible(solver="auto", started=started)
        if found.overflow == math.inf:
            raise _nothing(f"no legal choice, the limit {memory.limit:,.0f}")
        raise _nothing(f"the least usage found is {memory.limit + found.overflow:,.0f}, the limit {memory.limit:,.0f}")
    return checked_within(problem, memory, condensed.restore(choices.tolist()), min(bound, cost), started)


def _nothing(found: str) -> SolverError:
    return SolverError(
        "No choice within the memory limit was found", found=found, remedy="Give it more time, or a larger limit."
    )


class _Search:
    """The two threads of one search; mutable.

    The thread that asks only waits: whatever step the others are in, the answer is given at the deadline. They end
    after that step.
    """

    def __init__(self, problem: ShardingProblem, memory: MemoryLimit, deadline: float) -> None:
        began = time.perf_counter()
        # The answer is restored, evaluated and checked after the deadline of the search: as long as this takes.
        problem.evaluate((0,) * len(problem.node_costs))
        closing = tuning.CLOSING_FACTOR * (time.perf_counter() - began)
        self.problem, self.memory = problem, memory
        self.deadline = deadline - closing
        self.condensed: Condensed | None = None
        self.found: Found | None = None
        self.fault: Exception | None = None
        self.ended = threading.Event()
        """There is nothing left to do, or a fault to raise."""
        self.stopped = False
        self.threads: list[threading.Thread] = []

    def run(self, keep_when_interrupted: bool) -> None:
        """Until the deadline, or until the bound is reached. Raises Contradiction where no choice is legal."""
        try:
            self._begin(self._anneal, "alpa-explore annealing")
            # The system may hand a signal to another thread, which does not wake this one: look at times.
            while (left := self.deadline - time.perf_counter()) > 0:
                if self.ended.wait(min(left, tuning.WAKE_SECONDS)):
                    break
        except KeyboardInterrupt:
            if not keep_when_interrupted or self.found is None or self.found.choices is None:
                raise
        finally:
            self.stop()
        if self.fault is not None:
            raise self.fault

    def stop(self) -> None:
        """Tell the threads that nobody waits for them."""
        self.stopped = True
        if self.found is not None:
            self.found.over = True
        if not self.ended.is_set():
            atexit.register(self._leave)

    def _leave(self) -> None:
        """At the end of Python, wait for threads that may be in compiled code."""
        for thread in self.threads if self.found is not None else ():
            thread.join(tuning.LEAVING_SECONDS)

    def _begin(self, work: Callable[[], None], name: str) -> threading.Thread:
        def guarded() -> None:
            try:
                work()
            except Exception as fault:
                self.fault = fault
                self.ended.set()
            finally:
                if not any(other.is_alive() for other in self.threads if other is not threading.current_thread()):
                    atexit.unregister(self._leave)

        thread = threading.Thread(target=guarded, name=name, daemon=True)
        self.threads.append(thread)
        thread.start()
        return thread

    def _anneal(self) -> None:
        kept = possible_strategies(self.problem, self.memory)
        now = time.perf_counter()
        if self.stopped:
            return
        self.condensed = condense(self.problem, self.memory, kept, now + tuning.CONDENSE_SHARE * (self.deadline - now))
        if self.stopped:
            return
        self.found = Found(self.condensed.problem)
        instance = SearchProblem.of(self.condensed.problem, self.condensed.memory)
        bound = partial(_bound_then_anneal, self.condensed, instance, self.found, self.deadline)
        helper = self._begin(bound, "alpa-explore bound")
        anneal_within(instance, self.found, self.deadline)
        helper.join()
        self.ended.set()


def _bound_then_anneal(condensed: Condensed, instance: SearchProblem, found: Found, deadline: float) -> None:
    problem, memory = condensed.problem, condensed.memory
    now = time.perf_counter()
    share = tuning.BOUND_SHARE if problem.variables <= tuning.BOUNDED_VARIABLES else tuning.LARGE_BOUND_SHARE
    try:
        result = price_search(problem, memory, now + share * (deadline - now), check=found.check)
        with found.lock:
            found.bound = max(found.bound, result.bound)
        if result.choices is not None and is_legal(problem, result.choices) and memory.allows(result.choices):
            found.add(np.array(result.choices), problem.evaluate(result.choices), 0.0)
        found.check()
        with found.lock:
            best, cost = found.choices, found.cost
        rest = result.rest(problem, memory, cost)
        if rest.problem.variables <= tuning.ILP_VARIABLES:
            # Python may end while this thread runs, but not while HiGHS does: it would abort the process.
            proof = threading.Thread(
                target=_proof,
                args=(rest.solve, rest.problem.variables, found, best, deadline),
                name="alpa-explore proof",
            )
            proof.start()
            proof.join()
            found.check()
    except Closed:
        return
    anneal_within(instance, found, deadline, seed=2)


def _proof(
    solve: Callable[..., ShardingSolution], variables: int, found: Found, best: Ints | None, deadline: float
) -> None:
    """HiGHS on the strategies that a choice as cheap as `best` may have: `solve` (`Rest.solve`), so many variables."""
    share = tuning.EASY_PROOF_SHARE if variables <= tuning.EASY_VARIABLES else tuning.PROOF_SHARE
    seconds = share * (deadline - time.perf_counter())
    try:
        ilp = solve(None if best is None else best.tolist(), gap=tuning.PROVEN_GAP, seconds=seconds)
    except SolverError:
        return  # no choice in time
    with found.lock:
        found.bound = max(found.bound, ilp.bound)
    if ilp.choices:
        with suppress(Closed):
            found.add(np.array(ilp.choices), ilp.objective, 0.0)


def warm_up_search() -> None:
    """Load or compile what `solve_within` calls under a time limit: about 25 s of one core where nothing is on disk,
    much of a time limit of a minute."""
    problem, memory = _small_problem()
    # One step after the other is compiled; a time limit ends each call after the step that it is in.
    for _ in range(tuning.WARM_UP_ROUNDS):
        price_search(problem, memory, time.perf_counter() + tuning.WARM_UP_SECONDS)
        deadline = time.perf_counter() + tuning.WARM_UP_SECONDS
        anneal_within(SearchProblem.of(problem, memory), Found(problem), deadline)


def _small_problem() -> tuple[ShardingProblem, MemoryLimit]:
    """A chain of nodes with shortcuts, in which cheap strategies hold more than is allowed, and some pairs are
    forbidden."""
    rng = np.random.default_rng(0)
    nodes, size = 60, 4
    costs = tuple(rng.integers(0, 100, size).astype(float) for _ in range(nodes))
    edges = tuple((v - step, v) for v in range(1, nodes) for step in (1, 5) if v >= step)
    matrices = tuple(rng.integers(0, 100, (size, size)).astype(float) for _ in edges)
    for matrix in matrices:
        matrix[0, 1] = math.inf
    items = [Item(node=v, start=v, end=min(nodes, v + 20), usage=100.0 - costs[v]) for v in range(nodes)]
    least = MemoryLimit.of(items, 1.0).least_peak()
    problem = ShardingProblem(name="warm-up", node_costs=costs, edges=edges, edge_costs=matrices)
    return problem, MemoryLimit.of(items, 1.5 * least)
