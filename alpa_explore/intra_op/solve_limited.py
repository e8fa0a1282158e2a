"""`solve_limited`: an optimal choice for a sharding problem under a memory limit.

1. Solve without the limit; if the optimum fits, it is the answer.
2. Drop strategies that exceed the limit with every choice of the other nodes, and strategies that are left without a
   legal partner, until none remains.
3. Eliminate nodes whose memory is the same for every strategy, where the elimination is narrow (`simplify`).
4. Prices of memory (`memory.price_search`) give a choice that fits and a lower bound; often the two meet.
5. Otherwise HiGHS solves Eq. 1 with a running sum of the memory (`ilp.enumerated_ilp`), without the strategies that the
   bounds of the price search exclude, unless the problem is too large for HiGHS.

With a time limit the answer is the best choice that is found by then, with the lower bound that was proven.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np

from alpa_explore.errors import OptionError, SolverError
from alpa_explore.intra_op import tuning
from alpa_explore.intra_op.bounds import tuning as bounds_tuning
from alpa_explore.intra_op.ilp.enumerated_ilp import solve_enumerated
from alpa_explore.intra_op.ilp.ilp_answer import Answer, checked, infeasible
from alpa_explore.intra_op.memory import tuning as memory_tuning
from alpa_explore.intra_op.memory.price_search import price_search
from alpa_explore.intra_op.problem.memory_limit import MemoryLimit
from alpa_explore.intra_op.problem.sharding_problem import Choices, ShardingProblem, restricted, unrestricted_choices
from alpa_explore.intra_op.problem.solution import ShardingSolution, Status
from alpa_explore.intra_op.reduction.arc_consistency import possible_strategies
from alpa_explore.intra_op.reduction.factor_graph import Contradiction
from alpa_explore.intra_op.reduction.simplify import simplify
from alpa_explore.intra_op.solve import deadline_of, remaining_seconds, solve


def solve_limited(
    problem: ShardingProblem,
    memory: MemoryLimit,
    solver: str = "auto",
    time_limit_seconds: float | None = None,
    *,
    bound: float | None = None,
) -> ShardingSolution:
    """A least-cost choice for `problem` within `memory`.

    `bound` is a known lower bound on the least cost without the limit; where it is given, step 1 is left out.

    "auto" takes the steps above; other solvers get the whole problem as one ILP. A problem without a choice has
    Status.INFEASIBLE: `MemoryLimit.least_peak` shows whether the limit is the reason. Raises OptionError for a solver
    that cannot take a memory limit and a time limit that is not positive, SolverError when no choice was found in time.
    """
    started = time.perf_counter()
    deadline = deadline_of(solver, time_limit_seconds, started)
    if solver == "auto":
        return _auto(problem, memory, started, deadline, bound)
    if solver not in _WHOLE_PROBLEM_SOLVERS:
        raise OptionError(
            f"The solver '{solver}' cannot take a memory limit",
            found=f"a limit of {memory.limit:.6g}",
            remedy=f"Use one of: auto, {', '.join(_WHOLE_PROBLEM_SOLVERS)}.",
        )
    solution = _WHOLE_PROBLEM_SOLVERS[solver](problem, memory=memory, time_limit_seconds=time_limit_seconds)
    return _within(memory, replace(solution, solver=solver))


_WHOLE_PROBLEM_SOLVERS: dict[str, Callable[..., ShardingSolution]] = {
    "highs": solve_enumerated,
    "cbc": partial(solve_enumerated, backend="cbc"),
}


def _auto(
    problem: ShardingProblem, memory: MemoryLimit, started: float, deadline: float, known_bound: float | None
) -> ShardingSolution:
    unlimited_bound = -math.inf if known_bound is None else known_bound
    if known_bound is None:
        unlimited = _solve_unlimited(problem)
        if unlimited is not None:
            fits = unlimited.status is Status.OPTIMAL and memory.allows(unlimited.choices)
            if fits or unlimited.status is Status.INFEASIBLE:
                return replace(unlimited, seconds=time.perf_counter() - started)
            unlimited_bound = unlimited.bound
    try:
        kept = possible_strategies(problem, memory)
        smaller, limit = restricted(problem, kept), memory.restricted(kept)
        varying = {i.node for i in limit.items if i.end > i.start and np.ptp(i.usage) > 0}
        reduced = simplify(smaller, keep=frozenset(varying))
    except Contradiction:
        return infeasible(solver="auto", started=started)
    core_bound = unlimited_bound - reduced.constant
    answer = _solve_core(reduced.core, limit.on_nodes(reduced.nodes), core_bound, deadline)
    if answer.bound == math.inf:
        return infeasible(solver="auto", started=started, variables=answer.variables, constraints=answer.constraints)
    choices = unrestricted_choices(kept, reduced.restore(answer.choices))
    answer = replace(answer, choices=choices, bound=reduced.constant + answer.bound)
    return _checked(problem, memory, answer, started, in_time=deadline < math.inf)


def _solve_core(core: ShardingProblem, memory: MemoryLimit, known_bound: float, deadline: float) -> Answer:
    """Price search, and where it leaves a gap the ILP over the strategies that a better choice may hold. The bound is
    inf where there is no choice; SolverError where none was found."""
    now = time.perf_counter()
    search_seconds = min(memory_tuning.PRICE_SEARCH_SECONDS, memory_tuning.PRICE_SEARCH_SHARE * (deadline - now))
    result = price_search(core, memory, now + search_seconds, compiling_counts=False)
    best = result.choices
    best_cost = math.inf if best is None else core.evaluate(best)
    bound = max(result.bound, known_bound)
    rest = result.rest(core, memory, best_cost)
    closed = best is not None and best_cost - bound <= tuning.PROVEN_GAP * abs(best_cost)
    in_time = (deadline - time.perf_counter()) * tuning.ILP_VARIABLES_A_SECOND
    if closed or rest.problem.variables > min(bounds_tuning.LARGEST_ILP_VARIABLES, in_time):
        return _answer(core, best, bound)
    try:
        ilp = rest.solve(best, gap=tuning.PROVEN_GAP, seconds=remaining_seconds(deadline))
    except SolverError:
        if best is None:
            raise
        return _answer(core, best, bound)
    if ilp.choices and (best is None or ilp.objective <= best_cost):
        best = ilp.choices
    answer = _answer(core, best, max(bound, ilp.bound))
    return replace(answer, variables=ilp.variables, constraints=ilp.constraints)


def _answer(core: ShardingProblem, best: Choices | None, bound: float) -> Answer:
    if best is None and bound < math.inf:
        raise SolverError(
            "No choice within the memory limit was found",
            found=f"{core.variables:,} variables",
            remedy="Give it more time, or a larger limit.",
        )
    return Answer(choices=best or (), bound=bound, finished=False)


def _solve_unlimited(problem: ShardingProblem) -> ShardingSolution | None:
    """The answer without the limit; None when no choice was found."""
    try:
        return solve(problem)
    except SolverError:
        # No legal choice: the search under the limit begins without its bound.
        return None


def checked_within(
    problem: ShardingProblem, memory: MemoryLimit, choices: Choices, bound: float, started: float
) -> ShardingSolution:
    """The checked solution for choices within the limit and a lower bound, found by a time limit."""
    return _checked(problem, memory, Answer(choices=choices, bound=bound, finished=False), started, in_time=True)


def _checked(
    problem: ShardingProblem, memory: MemoryLimit, answer: Answer, started: float, *, in_time: bool
) -> ShardingSolution:
    """The checked solution for an answer; `in_time`: a time limit ends the search."""
    objective = problem.evaluate(answer.choices)
    proven = objective - answer.bound <= tuning.PROVEN_GAP * abs(objective)
    unfinished = Status.TIME_LIMIT if in_time else Status.UNPROVEN
    answer = replace(answer, finished=proven)
    return _within(memory, checked(problem, answer, solver="auto", started=started, unfinished=unfinished))


def _within(memory: MemoryLimit, solution: ShardingSolution) -> ShardingSolution:
    """`solution`; SolverError where it exceeds the limit."""
    if solution.choices and not memory.allows(solution.choices):
        raise SolverError(
            f"The answer of '{solution.solver}' exceeds the memory limit",
            found=f"{memory.peak(solution.choices):.6g} bytes held where {memory.limit:.6g} are allowed",
            remedy="Please report this problem; another solver may serve meanwhile.",
        )
    return solution
