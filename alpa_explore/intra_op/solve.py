"""`solve`: a sharding problem in, a checked solution out.

    auto           simplify exactly, then solve each component as below (default)
    elimination    the same without HiGHS; an error where the problem is too wide for elimination
    ilp            simplify, then PuLP with HiGHS on each component
    highs          the plain ILP of the paper (Eq. 1) in PuLP with HiGHS
    cbc            the same with CBC

`auto` tries the cheapest step first; every step is exact:

1. `decompose`: strategies without a legal partner are dropped, nodes with at most two neighbours are eliminated, and
   the rest is split into connected components.
2. A component with an obvious and cheap elimination order is contracted (`composition.contraction`).
3. Otherwise message passing raises a dual bound and suggests choices (`prune_by_bound`); where the two meet, the
   optimum is proven. Strategies that the bound and their slack exclude are pruned.
4. The pruned component is decomposed again. Parts that have become narrow are contracted, and HiGHS solves the rest as
   Eq. 1. Without a time limit it is asked for no part of more than EASY_ILP_VARIABLES, and for WIDE_ILP_SECONDS at
   most: what it does not prove is left at the best choice and the best lower bound so far, with Status.UNPROVEN. So a
   problem of any size is answered in seconds, with a bound.

The objective of every answer is added up again by `ShardingProblem.evaluate` before it is returned.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from alpa_explore.errors import OptionError, SolverError, nearest_names
from alpa_explore.intra_op import tuning
from alpa_explore.intra_op.bounds import tuning as bounds_tuning
from alpa_explore.intra_op.bounds.messages import Pruned, prune_by_bound
from alpa_explore.intra_op.composition.contraction.contract import optimum
from alpa_explore.intra_op.elimination import tuning as elimination_tuning
from alpa_explore.intra_op.elimination.elimination_order import Limits, elimination_order, is_cheap
from alpa_explore.intra_op.ilp import tuning as ilp_tuning
from alpa_explore.intra_op.ilp.enumerated_ilp import solve_enumerated
from alpa_explore.intra_op.ilp.ilp_answer import Answer, checked, infeasible
from alpa_explore.intra_op.problem.sharding_problem import Choices, ShardingProblem, restricted, unrestricted_choices
from alpa_explore.intra_op.problem.solution import ShardingSolution, Status
from alpa_explore.intra_op.reduction.factor_graph import Contradiction
from alpa_explore.intra_op.reduction.simplify import Decomposition, decompose

SOLVERS = ("auto", "elimination", "ilp", "highs", "cbc")


def solve(
    problem: ShardingProblem, solver: str = "auto", time_limit_seconds: float | None = None, gap: float = 0.0
) -> ShardingSolution:
    """A least-cost choice for `problem`. With a `gap`, "auto" may stop at a choice proven to be within that share of
    it.

    Raises OptionError for an unknown solver or a time limit that is not positive, SolverError for a damaged problem or
    when no choice at all was found. An infeasible problem is not an error: its answer has Status.INFEASIBLE.
    """
    started = time.perf_counter()
    deadline = deadline_of(solver, time_limit_seconds, started)
    _check(problem)
    try:
        if any(not costs.size for costs in problem.node_costs):
            raise Contradiction(0)
        answer = _RUNNERS[solver](problem, deadline, gap)
    except Contradiction:
        return infeasible(solver=solver, started=started)
    unfinished = Status.UNPROVEN if deadline == math.inf else Status.TIME_LIMIT
    if not answer.finished and (objective := problem.evaluate(answer.choices)) - answer.bound <= gap * objective:
        unfinished = Status.WITHIN_GAP
    return checked(problem, answer, solver=solver, started=started, unfinished=unfinished)


def check_solver(solver: str) -> None:
    """Raise OptionError, with the nearest names, for a solver that does not exist."""
    if solver not in SOLVERS:
        raise OptionError("Unknown solver", found=repr(solver), remedy=nearest_names(str(solver), SOLVERS))


def deadline_of(solver: str, time_limit_seconds: float | None, started: float) -> float:
    """On the clock of time.perf_counter; raises OptionError for an unknown solver or a limit that is not positive."""
    check_solver(solver)
    if time_limit_seconds is None:
        return math.inf
    if not time_limit_seconds > 0:
        raise OptionError(
            "The time limit must be positive", found=f"{time_limit_seconds} s", remedy="Leave it out for no limit."
        )
    return started + time_limit_seconds


def _reduced(
    problem: ShardingProblem, deadline: float, gap: float, *, eliminating: bool = True, ilp: bool = True
) -> Answer:
    """Decompose the problem and solve each component, by elimination where `eliminating`, and by Eq. 1 where `ilp`."""
    parts = decompose(problem)
    answers = []
    for component in parts.components:
        if not eliminating:
            answer = _solved_as_ilp(component, deadline)
        elif is_cheap(component) and (choices := optimum(component, Limits())) is not None:
            answer = _proven(component, choices)
        else:
            answer = _wide(component, deadline, gap, ilp=ilp)
        answers.append(answer)
    return _combined(parts, answers)


_RUNNERS: dict[str, Callable[[ShardingProblem, float, float], Answer]] = {
    "auto": _reduced,
    "elimination": partial(_reduced, ilp=False),
    "ilp": partial(_reduced, eliminating=False),
    "highs": lambda problem, deadline, _gap: _solved_as_ilp(problem, deadline),
    "cbc": lambda problem, deadline, _gap: _solved_as_ilp(problem, deadline, backend="cbc"),
}


def _wide(problem: ShardingProblem, deadline: float, gap: float, *, ilp: bool) -> Answer:
    """The fallback for a component without a cheap order: dual bound, pruning, then elimination within limits, the ILP,
    or the bound alone."""
    pruned = prune_by_bound(problem, gap)
    if pruned.best is not None and pruned.closed:
        return _bounded(problem, pruned, gap)
    parts = decompose(restricted(problem, pruned.kept))
    until = time.perf_counter() + tuning.WIDE_ILP_SECONDS if deadline == math.inf else deadline
    largest = tuning.EASY_ILP_VARIABLES if deadline == math.inf else bounds_tuning.LARGEST_ILP_VARIABLES
    answers = []
    for component in parts.components:
        if (optimal := optimum(component, Limits().within(remaining_seconds(deadline)))) is not None:
            answers.append(_proven(component, optimal))
        elif not ilp:
            raise SolverError(
                "The problem is too wide for elimination",
                found=_width(component) + f" on the {len(component.node_costs)} nodes that simplification leaves",
                remedy="Use solver='auto', which gives such a part to an ILP.",
            )
        elif component.variables > largest and (rest := prune_by_bound(component, gap)).best is not None:
            answers.append(_bounded(component, rest, gap))
        else:
            answers.append(_solved_as_ilp(component, until, gap=gap))
    combined = _combined(parts, answers)
    choices = unrestricted_choices(pruned.kept, combined.choices)
    if combined.finished or pruned.best is None:
        return replace(combined, choices=choices)
    best = min((choices, pruned.best), key=problem.evaluate)
    return replace(combined, choices=best, bound=max(combined.bound, pruned.bound))


def _combined(parts: Decomposition, answers: Sequence[Answer]) -> Answer:
    """The answers for the components combined into the answer for the whole problem."""
    bound = parts.constant
    for answer in answers:
        bound += answer.bound
    return Answer(
        choices=parts.restore([answer.choices for answer in answers]),
        bound=bound,
        finished=all(answer.finished for answer in answers),
        variables=sum(answer.variables for answer in answers),
        constraints=sum(answer.constraints for answer in answers),
    )


def _width(problem: ShardingProblem) -> str:
    order = elimination_order([len(costs) for costs in problem.node_costs], problem.edges)
    if not order.nodes:
        return f"more than {elimination_tuning.HOPELESS_JOINS:.0e} entries to join"
    return f"a table of {order.largest_table:.1e} entries, {order.joined_entries:.1e} to join"


def _bounded(problem: ShardingProblem, pruned: Pruned, gap: float) -> Answer:
    """The best choice of message passing, which is proven where its bound meets it without a `gap`."""
    assert pruned.best is not None, "the caller has looked"
    if pruned.closed and gap == 0.0:
        return _proven(problem, pruned.best)
    return Answer(choices=pruned.best, bound=pruned.bound, finished=False)


def _proven(problem: ShardingProblem, choices: Choices) -> Answer:
    return Answer(choices=choices, bound=problem.evaluate(choices), finished=True)


def _solved_as_ilp(problem: ShardingProblem, deadline: float, backend: str = "highs", gap: float = 0.0) -> Answer:
    limit = remaining_seconds(deadline)
    solution = solve_enumerated(problem, backend=backend, time_limit_seconds=limit, gap=gap)
    if solution.status is Status.INFEASIBLE:
        raise Contradiction(0)
    return Answer(
        choices=solution.choices,
        bound=solution.bound,
        finished=solution.status is Status.OPTIMAL,
        variables=solution.variables,
        constraints=solution.constraints,
    )


def remaining_seconds(deadline: float) -> float | None:
    """What is left, as the time limit of an ILP; None for no deadline."""
    return None if deadline == math.inf else max(ilp_tuning.MIN_TIME_LIMIT_SECONDS, deadline - time.perf_counter())


def _check(problem: ShardingProblem) -> None:
    """Raise SolverError for arrays of the wrong shape, an edge to nowhere, and costs that are negative or NaN."""
    remedy = "Repair the problem where it is built or read."
    nodes = len(problem.node_costs)
    for v, costs in enumerate(problem.node_costs):
        # The minimum is NaN when an entry is NaN: one numpy call per array, of which there are thousands.
        if costs.ndim != 1 or not (costs.size == 0 or costs.min() >= 0.0):
            raise SolverError("Damaged sharding problem", found=f"costs of node {v}: {costs!r:.80}", remedy=remedy)
    for e, ((a, b), matrix) in enumerate(zip(problem.edges, problem.edge_costs, strict=True)):
        if not (0 <= a < nodes and 0 <= b < nodes and a != b):
            raise SolverError("Damaged sharding problem", found=f"edge {e} joins {a} and {b} of {nodes}", remedy=remedy)
        if matrix.shape != (len(problem.node_costs[a]), len(problem.node_costs[b])):
            raise SolverError("Damaged sharding problem", found=f"edge {e} has shape {matrix.shape}", remedy=remedy)
        if not (matrix.size == 0 or matrix.min() >= 0.0):
            raise SolverError("Damaged sharding problem", found=f"a cost of edge {e} is negative or NaN", remedy=remedy)
