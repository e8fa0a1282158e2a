"""The one verb of the intra-op pass: a sharding problem in, a checked solution out.

    auto           simplify exactly, eliminate where narrow; elsewhere a dual bound proves the optimum or prunes until
                   elimination is possible, and HiGHS gets the parts that are left (default)
    elimination    the same without HiGHS; an error where the problem is too wide for it
    ilp            simplify, then PuLP with HiGHS on what is left
    enumerated     the plain ILP of the paper (Eq. 1) in PuLP with HiGHS; also called highs. cbc: with CBC
    highs-direct   the same ILP handed to HiGHS as a matrix
    toulbar2       branch and bound with soft arc consistency (needs the extra `toulbar2`)

All are exact. The objective of every answer is added up again by `ShardingProblem.evaluate` before it is returned.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Protocol

from alpa_explore.errors import OptionError, SolverError, nearest_names
from alpa_explore.intra_op.bounds.descend import is_legal
from alpa_explore.intra_op.bounds.disagreement import settle
from alpa_explore.intra_op.bounds.message_bound import LARGEST_ILP, prune_by_bound, restricted
from alpa_explore.intra_op.elimination.eliminate import Limits, cheap_order_of, eliminate, order_of
from alpa_explore.intra_op.elimination.elimination_order import HOPELESS_JOINS, EliminationOrder
from alpa_explore.intra_op.ilp.enumerated_ilp import solve_enumerated
from alpa_explore.intra_op.ilp.highs_direct import solve_highs_direct
from alpa_explore.intra_op.ilp.ilp_answer import TRUST, infeasible
from alpa_explore.intra_op.ilp.toulbar2 import solve_toulbar2
from alpa_explore.intra_op.problem.sharding_problem import ShardingProblem
from alpa_explore.intra_op.problem.solution import ShardingSolution, Status
from alpa_explore.intra_op.reduction.factor_graph import Contradiction
from alpa_explore.intra_op.reduction.simplify import components, simplify

SOLVERS = ("auto", "elimination", "ilp", "enumerated", "highs", "cbc", "highs-direct", "toulbar2")


class _Ilp(Protocol):
    def __call__(
        self, problem: ShardingProblem, *, time_limit_seconds: float | None, gap: float = 0.0
    ) -> ShardingSolution: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class _Answer:
    """What a runner found, before it is checked; `finished` when `bound` is claimed to be the optimum."""

    choices: tuple[int, ...]
    bound: float
    finished: bool
    variables: int = 0
    constraints: int = 0

    def with_part(self, nodes: tuple[int, ...], part: _Answer) -> _Answer:
        """The answer with the choices of `part` at `nodes`, and its figures added."""
        choices = list(self.choices)
        for v, choice in zip(nodes, part.choices, strict=True):
            choices[v] = choice
        return _Answer(
            choices=tuple(choices),
            bound=self.bound + part.bound,
            finished=self.finished and part.finished,
            variables=self.variables + part.variables,
            constraints=self.constraints + part.constraints,
        )


def solve(
    problem: ShardingProblem, solver: str = "auto", time_limit_seconds: float | None = None, gap: float = 0.0
) -> ShardingSolution:
    """A least-cost choice for `problem`. With a `gap`, "auto" may stop at one proven to be within that share of it.

    Raises OptionError for an unknown solver or a time limit that is not positive, SolverError for a damaged problem or
    when no choice at all was found. An infeasible problem is an answer: Status.INFEASIBLE; `conflicting_nodes` says
    which nodes cannot agree.
    """
    started = time.perf_counter()
    check_solver(solver)
    if time_limit_seconds is not None and not time_limit_seconds > 0:
        raise OptionError(
            "The time limit must be positive", found=f"{time_limit_seconds} s", remedy="Leave it out for no limit."
        )
    _check(problem)
    deadline = math.inf if time_limit_seconds is None else started + time_limit_seconds
    try:
        if any(not costs.size for costs in problem.node_costs):
            raise Contradiction(0)
        answer = _RUNNERS[solver](problem, deadline, gap)
    except Contradiction:
        return infeasible(solver=solver, started=started)
    return _verified(problem, solver, answer, started, gap, deadline)


def check_solver(solver: str) -> None:
    """Raise OptionError, with the nearest names, for a solver that does not exist."""
    if solver not in SOLVERS:
        raise OptionError("Unknown solver", found=repr(solver), remedy=nearest_names(str(solver), SOLVERS))


def _auto(problem: ShardingProblem, deadline: float, gap: float) -> _Answer:
    return _reduced(problem, eliminating=True, ilp=solve_highs_direct, deadline=deadline, gap=gap)


def _elimination(problem: ShardingProblem, deadline: float, gap: float) -> _Answer:
    return _reduced(problem, eliminating=True, ilp=None, deadline=deadline)


def _ilp(problem: ShardingProblem, deadline: float, gap: float) -> _Answer:
    return _reduced(problem, eliminating=False, ilp=solve_enumerated, deadline=deadline)


def _plain(ilp: _Ilp) -> Callable[[ShardingProblem, float, float], _Answer]:
    return lambda problem, deadline, gap: _answer_of(ilp(problem, time_limit_seconds=_remaining(deadline)))


_RUNNERS: dict[str, Callable[[ShardingProblem, float, float], _Answer]] = {
    "auto": _auto,
    "elimination": _elimination,
    "ilp": _ilp,
    "enumerated": _plain(partial(solve_enumerated, backend="highs")),
    "highs": _plain(partial(solve_enumerated, backend="highs")),
    "cbc": _plain(partial(solve_enumerated, backend="cbc")),
    "highs-direct": _plain(solve_highs_direct),
    "toulbar2": _plain(solve_toulbar2),
}


def _reduced(
    problem: ShardingProblem, *, eliminating: bool, ilp: _Ilp | None, deadline: float, gap: float = 0.0
) -> _Answer:
    """Simplify, solve each connected part of what is left, and go back."""
    # Dominance costs more than it saves where the plain reductions already leave a narrow core.
    quick = simplify(problem, dominance=not eliminating)
    total = _Answer(choices=(0,) * len(quick.nodes), bound=quick.constant, finished=True)
    for nodes, part in components(quick.core):
        if not eliminating:
            assert ilp is not None
            answer = _answer_of(ilp(part, time_limit_seconds=_remaining(deadline)))
        elif (order := cheap_order_of(part)) is not None:
            answer = _eliminated(part, order)
        else:
            answer = _wide(part, ilp, deadline, gap)
        total = total.with_part(nodes, answer)
    return replace(total, choices=quick.restore(total.choices))


def _wide(problem: ShardingProblem, ilp: _Ilp | None, deadline: float, gap: float, rounds: int = 2) -> _Answer:
    """A wide part: a dual bound proves the answer or prunes it; then eliminate within the limits, else the ILP.

    What was pruned makes the next bound tighter, so a part that shrank is bounded again, `rounds` times at most.
    """
    pruned = prune_by_bound(problem, gap)
    if not pruned.closed and problem.variables <= LARGEST_ILP:
        pruned = settle(problem, pruned, gap)
    if pruned.best is not None and pruned.closed:
        proven = gap == 0.0
        bound = problem.evaluate(pruned.best) if proven else pruned.bound
        return _Answer(choices=pruned.best, bound=bound, finished=proven)
    if problem.variables > LARGEST_ILP and pruned.best is not None:
        return _Answer(choices=pruned.best, bound=pruned.bound, finished=False)
    reduced = simplify(restricted(problem, pruned.kept), dominance=True)
    total = _Answer(choices=(0,) * len(reduced.nodes), bound=reduced.constant, finished=True)
    for nodes, part in components(reduced.core):
        order, remaining = order_of(part), _remaining(deadline)
        if Limits().within(remaining).allow(order):
            answer = _eliminated(part, order)
        elif rounds > 1 and part.variables < 0.7 * problem.variables:
            answer = _wide(part, ilp, deadline, gap, rounds - 1)
        elif ilp is not None:
            answer = _answer_of(ilp(part, time_limit_seconds=remaining, gap=gap))
        else:
            raise SolverError(
                "The problem is too wide for elimination",
                found=_width(order) + f" on the {len(part.node_costs)} nodes that are left after simplification",
                remedy="Use solver='auto', which gives such a part to an ILP.",
            )
        total = total.with_part(nodes, answer)
    among_kept = reduced.restore(total.choices)
    return replace(total, choices=tuple(int(k[c]) for k, c in zip(pruned.kept, among_kept, strict=True)))


def _width(order: EliminationOrder) -> str:
    if not order.nodes:
        return f"more than {HOPELESS_JOINS:.0e} entries to join"
    return f"a table of {order.largest_table:.1e} entries, {order.joined_entries:.1e} to join"


def _eliminated(part: ShardingProblem, order: EliminationOrder) -> _Answer:
    choices = eliminate(part, order)
    return _Answer(choices=choices, bound=part.evaluate(choices), finished=True)


def _answer_of(solution: ShardingSolution) -> _Answer:
    if solution.status is Status.INFEASIBLE:
        raise Contradiction(0)
    return _Answer(
        choices=solution.choices,
        bound=solution.bound,
        finished=solution.status is Status.OPTIMAL,
        variables=solution.variables,
        constraints=solution.constraints,
    )


def _remaining(deadline: float) -> float | None:
    return None if deadline == math.inf else max(0.01, deadline - time.perf_counter())


def _check(problem: ShardingProblem) -> None:
    """Raise SolverError for arrays of the wrong shape, an edge to nowhere, and costs that are negative or NaN."""
    remedy = "Repair the problem where it is built or read."
    nodes = len(problem.node_costs)
    for v, costs in enumerate(problem.node_costs):
        # The minimum is NaN when an entry is: one call says all on thousands of small arrays.
        if costs.ndim != 1 or not (costs.size == 0 or costs.min() >= 0.0):
            raise SolverError("Damaged sharding problem", found=f"costs of node {v}: {costs!r:.80}", remedy=remedy)
    for e, ((a, b), matrix) in enumerate(zip(problem.edges, problem.edge_costs, strict=True)):
        if not (0 <= a < nodes and 0 <= b < nodes and a != b):
            raise SolverError("Damaged sharding problem", found=f"edge {e} joins {a} and {b} of {nodes}", remedy=remedy)
        if matrix.shape != (len(problem.node_costs[a]), len(problem.node_costs[b])):
            raise SolverError("Damaged sharding problem", found=f"edge {e} has shape {matrix.shape}", remedy=remedy)
        if not (matrix.size == 0 or matrix.min() >= 0.0):
            raise SolverError("Damaged sharding problem", found=f"a cost of edge {e} is negative or NaN", remedy=remedy)


def _verified(
    problem: ShardingProblem, solver: str, answer: _Answer, started: float, gap: float, deadline: float
) -> ShardingSolution:
    """Price the choices anew; raise SolverError when they are illegal or differ from what was proven."""
    objective = problem.evaluate(answer.choices)
    short = answer.finished and abs(objective - answer.bound) > TRUST * max(abs(objective), abs(answer.bound))
    if short or answer.bound > objective + TRUST * abs(objective) or not is_legal(problem, answer.choices):
        raise SolverError(
            f"The answer of '{solver}' does not hold",
            found=f"{answer.bound!r} was claimed, the costs add up to {objective!r}",
            remedy="Please report this problem; another solver may serve meanwhile.",
        )
    if answer.finished:
        status = Status.OPTIMAL
    else:
        near = objective - answer.bound <= gap * objective
        status = Status.WITHIN_GAP if near else Status.UNPROVEN if deadline == math.inf else Status.TIME_LIMIT
    return ShardingSolution(
        choices=answer.choices,
        objective=objective,
        bound=objective if answer.finished else answer.bound,
        status=status,
        solver=solver,
        seconds=time.perf_counter() - started,
        variables=answer.variables,
        constraints=answer.constraints,
    )
