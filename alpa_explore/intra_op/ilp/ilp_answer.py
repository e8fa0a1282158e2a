"""Shared by the ILP solvers: the scale of the costs, and a raw answer checked and turned into a solution."""

from __future__ import annotations

import math
import time

from alpa_explore.errors import SolverError
from alpa_explore.intra_op.bounds.messages import descend, is_legal, simple_bound
from alpa_explore.intra_op.ilp import tuning
from alpa_explore.intra_op.problem.sharding_problem import FORBIDDEN, Choices, ShardingProblem
from alpa_explore.intra_op.problem.solution import ShardingSolution, Status


def cost_scale(problem: ShardingProblem) -> float:
    """The factor that brings the optimum near tuning.SCALED_OPTIMUM, estimated from a choice by descent."""
    choices = descend(problem)
    magnitude = abs(problem.evaluate(choices)) if is_legal(problem, choices) else 0.0
    if magnitude == 0.0:
        finite = [float(v[v < FORBIDDEN].mean()) for v in problem.node_costs if (v < FORBIDDEN).any()]
        finite += [float(m[m < FORBIDDEN].mean()) for m in problem.edge_costs if (m < FORBIDDEN).any()]
        magnitude = sum(map(abs, finite))
    return tuning.SCALED_OPTIMUM / magnitude if magnitude > 0.0 else 1.0


def trivial(problem: ShardingProblem, solver: str, started: float) -> ShardingSolution | None:
    """The solution where no ILP is needed: no nodes, or a node without a legal strategy; else None."""
    if any(not (costs < FORBIDDEN).any() for costs in problem.node_costs):
        return infeasible(solver=solver, started=started)
    if problem.node_costs:
        return None
    return conclude(
        problem, solver=solver, started=started, finished=True, choices=(), bound=0.0, variables=0, constraints=0
    )


def conclude(
    problem: ShardingProblem,
    *,
    solver: str,
    started: float,
    finished: bool,
    choices: Choices | None,
    bound: float,
    variables: int,
    constraints: int,
    improve_by_descent: bool = True,
    build_seconds: float = 0.0,
) -> ShardingSolution:
    """The checked solution for the raw answer of a solver.

    `finished`: the solver proved its answer (or, without choices, that there is none); else the time limit was reached,
    and with `improve_by_descent` the choice may be improved. `bound` is in the units of the problem. Raises SolverError
    when nothing legal was found in time, or when the reported optimum contradicts the costs.
    """
    if choices is None and finished:
        return infeasible(solver=solver, started=started, variables=variables, constraints=constraints)
    if not finished:
        if improve_by_descent:
            # The incumbent of an interrupted solver is often poor: descent improves it, or finds a choice on its own.
            starts = (None,) if choices is None else (choices, None)
            legal = [c for c in (descend(problem, start) for start in starts) if is_legal(problem, c)]
            choices = min(legal, key=problem.evaluate, default=None)
        if choices is None:
            raise SolverError(
                f"{solver} found no legal choice",
                found=f"time limit reached on {len(problem.node_costs)} nodes, {variables} variables",
                remedy="Give it a longer time limit, or use the 'auto' solver, which reduces the problem first.",
            )
    assert choices is not None
    objective = problem.evaluate(choices)
    status = Status.OPTIMAL if finished else Status.TIME_LIMIT
    if finished and not abs(objective - bound) <= tuning.OBJECTIVE_TOLERANCE * max(abs(objective), abs(bound)):
        raise SolverError(
            f"{solver} gave an answer that its own costs contradict",
            found=f"objective {bound!r} claimed, {objective!r} when added up",
            remedy="The costs span too many orders of magnitude for its tolerances: use the 'elimination' solver.",
        )
    lower_bound = objective if finished else min(objective, max(bound, simple_bound(problem)))
    return ShardingSolution(
        choices=choices,
        objective=objective,
        bound=lower_bound,
        status=status,
        solver=solver,
        seconds=time.perf_counter() - started,
        variables=variables,
        constraints=constraints,
        build_seconds=build_seconds,
    )


def infeasible(*, solver: str, started: float, variables: int = 0, constraints: int = 0) -> ShardingSolution:
    """The solution of an infeasible problem."""
    return ShardingSolution(
        choices=(),
        objective=math.inf,
        bound=math.inf,
        status=Status.INFEASIBLE,
        solver=solver,
        seconds=time.perf_counter() - started,
        variables=variables,
        constraints=constraints,
    )
