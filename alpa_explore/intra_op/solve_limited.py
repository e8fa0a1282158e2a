"""Solve a sharding problem under a memory limit, exactly.

1. The optimum without the limit; where it fits, it is the answer.
2. Strategies that cannot fit whatever the others do are struck, and with them those that are left without a legal
   partner, until nothing changes.
3. Nodes whose memory is the same for every strategy are eliminated where that is narrow (`simplify`).
4. Prices for memory give a choice that fits and a bound (`price_search`); often they meet.
5. Else HiGHS gets Eq. 1 with a running sum of the memory (`highs_direct`), unless that is too large for it, without
   the strategies that the prices ruled out.

A time limit ends 4 and 5 early: then the best choice that fits is the answer, with the bound that was proven.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np

from alpa_explore.errors import OptionError, SolverError
from alpa_explore.intra_op.bounds.descend import is_legal
from alpa_explore.intra_op.bounds.message_bound import LARGEST_ILP, MARGIN, restricted
from alpa_explore.intra_op.ilp.enumerated_ilp import solve_enumerated
from alpa_explore.intra_op.ilp.highs_direct import solve_highs_direct
from alpa_explore.intra_op.ilp.ilp_answer import infeasible
from alpa_explore.intra_op.ilp.toulbar2 import solve_toulbar2
from alpa_explore.intra_op.memory.price_search import price_search
from alpa_explore.intra_op.problem.memory_limit import MemoryLimit
from alpa_explore.intra_op.problem.sharding_problem import FORBIDDEN, ShardingProblem
from alpa_explore.intra_op.problem.solution import ShardingSolution, Status
from alpa_explore.intra_op.reduction.factor_graph import Contradiction
from alpa_explore.intra_op.reduction.simplify import simplify
from alpa_explore.intra_op.solve import check_solver, solve

SMALL = 10**6
"""Variables of Eq. 1 up to which the optimum without the limit is found first."""
PRICE_SECONDS = 20.0
"""What the price search may take where the ILP can still prove the answer."""
EASY_ILP = 25_000
"""Variables of an ILP that HiGHS solves in a second or so."""
CLOSED = 1e-9
"""Relative gap that is rounding."""

Alive = list[np.ndarray[tuple[int, ...], np.dtype[np.bool_]]]


def solve_limited(
    problem: ShardingProblem,
    memory: MemoryLimit,
    solver: str = "auto",
    time_limit_seconds: float | None = None,
    *,
    gap: float = 0.0,
    bound: float | None = None,
) -> ShardingSolution:
    """A least-cost choice for `problem` that stays within `memory`; where that would take an ILP of more than EASY_ILP
    variables, one within a relative `gap` of it will do.

    `bound`, where it is given, is below the least cost without the limit, which then is not looked for.

    "auto" does the steps above, others hand the whole to one ILP or to toulbar2. Status.INFEASIBLE when there is none:
    `MemoryLimit.least_peak` then says whether the limit is at fault. OptionError for a solver that knows no memory,
    SolverError when time was up before any choice was found.
    """
    started = time.perf_counter()
    check_solver(solver)
    if solver == "auto":
        return _auto(problem, memory, started, time_limit_seconds, gap, bound)
    if solver not in _WHOLE:
        raise OptionError(
            f"The solver '{solver}' knows no memory limit",
            found=f"a limit of {memory.limit:.6g}",
            remedy=f"Use one of: auto, {', '.join(_WHOLE)}.",
        )
    found = _WHOLE[solver](problem, memory=memory, time_limit_seconds=time_limit_seconds)
    return _checked(problem, memory, replace(found, solver=solver))


def _auto(
    problem: ShardingProblem,
    memory: MemoryLimit,
    started: float,
    time_limit_seconds: float | None,
    gap: float,
    known: float | None,
) -> ShardingSolution:
    deadline = math.inf if time_limit_seconds is None else started + time_limit_seconds
    free_bound = -math.inf if known is None else known
    if known is None and problem.variables <= SMALL:
        free = _free(problem, time_limit_seconds)
        if free is not None:
            fits = free.status is Status.OPTIMAL and memory.allows(free.choices)
            if fits or free.status is Status.INFEASIBLE:
                return replace(free, seconds=time.perf_counter() - started)
            free_bound = free.bound
    try:
        kept = tuple(np.flatnonzero(a) for a in _possible(problem, memory))
        smaller, limit = restricted(problem, kept), memory.restricted(kept)
        bound_to_memory = {i.node for i in limit.items if i.end > i.start and np.ptp(i.usage) > 0}
        reduced = simplify(smaller, dominance=False, keep=frozenset(bound_to_memory))
    except Contradiction:
        return infeasible(solver="auto", started=started)
    core, core_memory = reduced.core, limit.on(reduced.nodes)
    found = price_search(core, core_memory, _share(deadline, core.variables))
    best, bound = found.choices, found.bound
    variables = constraints = 0
    cost = math.inf if best is None else core.evaluate(best)
    bound = max(bound, free_bound - reduced.constant)
    # A strategy whose floor is above the cost of the best is in no better choice.
    worth = tuple(np.flatnonzero(f <= cost * (1 + MARGIN)) for f in found.floors)
    smaller, limit = restricted(core, worth), core_memory.restricted(worth)
    enough = CLOSED if smaller.variables <= EASY_ILP else max(gap, CLOSED)
    if smaller.variables <= LARGEST_ILP and (best is None or cost - bound > enough * abs(cost)):
        remaining = None if deadline == math.inf else max(0.01, deadline - time.perf_counter())
        start = None if best is None else tuple(int(np.searchsorted(k, c)) for k, c in zip(worth, best, strict=True))
        try:
            ilp = solve_highs_direct(smaller, memory=limit, time_limit_seconds=remaining, start=start, gap=enough)
        except SolverError:
            # Time was up before it had any choice: what the prices found stands, if they found one.
            if best is None:
                raise
        else:
            if ilp.status is Status.INFEASIBLE:
                return infeasible(solver="auto", started=started, variables=ilp.variables, constraints=ilp.constraints)
            variables, constraints = ilp.variables, ilp.constraints
            # No choice that was struck is below the cost of the best.
            bound = max(bound, min(ilp.bound, cost))
            if best is None or ilp.objective <= cost:
                best = tuple(int(k[c]) for k, c in zip(worth, ilp.choices, strict=True))
    if best is None:
        raise SolverError(
            "No choice within the memory limit was found",
            found=f"{problem.variables:,} variables",
            remedy="Give it more time, or a larger limit.",
        )
    inside = reduced.restore(best)
    choices = tuple(int(k[c]) for k, c in zip(kept, inside, strict=True))
    objective = problem.evaluate(choices)
    bound = reduced.constant + bound
    optimal = objective - bound <= CLOSED * abs(objective)
    answer = ShardingSolution(
        choices=choices,
        objective=objective,
        bound=objective if optimal else bound,
        solver="auto",
        status=Status.OPTIMAL if optimal else Status.TIME_LIMIT if time.perf_counter() >= deadline else Status.UNPROVEN,
        seconds=time.perf_counter() - started,
        variables=variables,
        constraints=constraints,
    )
    return _checked(problem, memory, answer)


def _free(problem: ShardingProblem, time_limit_seconds: float | None) -> ShardingSolution | None:
    """The answer without the limit, in a quarter of the time; None when nothing was found by then."""
    try:
        return solve(problem, time_limit_seconds=None if time_limit_seconds is None else time_limit_seconds / 4)
    except SolverError:
        # No legal choice in time: the search under the limit begins without its bound.
        return None


def _share(deadline: float, variables: int) -> float:
    """When the price search must leave the time to the ILP; never where an ILP is out of the question."""
    if variables > LARGEST_ILP:
        return deadline
    now = time.perf_counter()
    return now + min(PRICE_SECONDS, 0.4 * (deadline - now))


def _checked(problem: ShardingProblem, memory: MemoryLimit, found: ShardingSolution) -> ShardingSolution:
    if found.choices and not (is_legal(problem, found.choices) and memory.allows(found.choices)):
        raise SolverError(
            f"The answer of '{found.solver}' under a memory limit does not hold",
            found=f"{memory.peak(found.choices):.6g} bytes held where {memory.limit:.6g} are allowed",
            remedy="Please report this problem; another solver may serve meanwhile.",
        )
    return found


_WHOLE: dict[str, Callable[..., ShardingSolution]] = {
    "enumerated": solve_enumerated,
    "highs": solve_enumerated,
    "cbc": partial(solve_enumerated, backend="cbc"),
    "highs-direct": solve_highs_direct,
    "toulbar2": solve_toulbar2,
}


def _possible(problem: ShardingProblem, memory: MemoryLimit) -> Alive:
    """For every node which strategies some choice within the limit may hold (more may be struck by harder proofs)."""
    alive = [costs < FORBIDDEN for costs in problem.node_costs]
    forbidding: list[list[tuple[np.ndarray[tuple[int, ...], np.dtype[np.bool_]], int]]] = [[] for _ in alive]
    for (a, b), matrix in zip(problem.edges, problem.edge_costs, strict=True):
        if matrix.size and matrix.max() >= FORBIDDEN:
            legal = matrix < FORBIDDEN
            forbidding[a].append((legal, b))
            forbidding[b].append((legal.T, a))
    todo = set(range(len(alive)))
    while todo:
        while todo:
            v = todo.pop()
            good = alive[v].copy()
            for legal, u in forbidding[v]:
                good &= legal @ alive[u]
            if good.sum() < alive[v].sum():
                alive[v] = good
                todo |= {u for _, u in forbidding[v]}
        for v, here in enumerate(alive):
            if not here.any():
                raise Contradiction(v)
        for v in memory.possible(alive):
            todo |= {v, *(u for _, u in forbidding[v])}
    return alive
