"""Shared by the solvers: the scale of the costs, and an answer checked and turned into a solution."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass

from alpa_explore.errors import SolverError
from alpa_explore.intra_op.bounds.messages import descend, is_legal
from alpa_explore.intra_op.ilp import tuning
from alpa_explore.intra_op.problem.sharding_problem import FORBIDDEN, Choices, ShardingProblem
from alpa_explore.intra_op.problem.solution import ShardingSolution, Status


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a solver claims, before it is checked."""

    choices: Choices
    bound: float
    finished: bool
    """Whether `bound` is claimed to be the optimum."""
    variables: int = 0
    constraints: int = 0


def cost_scale(problem: ShardingProblem) -> float:
    """The factor that brings the optimum near tuning.SCALED_OPTIMUM, estimated from a choice by descent."""
    choices = descend(problem)
    magnitude = abs(problem.evaluate(choices)) if is_legal(problem, choices) else 0.0
    if magnitude == 0.0:
        finite = [float(v[v < FORBIDDEN].mean()) for v in problem.node_costs if (v < FORBIDDEN).any()]
        finite += [float(m[m < FORBIDDEN].mean()) for m in problem.edge_costs if (m < FORBIDDEN).any()]
        magnitude = sum(map(abs, finite))
    return tuning.SCALED_OPTIMUM / magnitude if magnitude > 0.0 else 1.0


def checked(
    problem: ShardingProblem,
    answer: Answer,
    *,
    solver: str,
    started: float,
    unfinished: Status = Status.TIME_LIMIT,
    build_seconds: float = 0.0,
) -> ShardingSolution:
    """The solution for an answer; `unfinished` is its status where it is not claimed to be the optimum. Raises
    SolverError where the costs, added up again, forbid the choices or contradict the bound."""
    objective = problem.evaluate(answer.choices)
    tolerance = tuning.OBJECTIVE_TOLERANCE
    as_claimed = abs(objective - answer.bound) <= tolerance * max(abs(objective), abs(answer.bound))
    too_high = answer.bound > objective + tolerance * abs(objective)
    if (answer.finished and not as_claimed) or too_high or not is_legal(problem, answer.choices):
        raise SolverError(
            f"The answer of '{solver}' contradicts the costs of the problem",
            found=f"{answer.bound!r} was claimed, the costs add up to {objective!r}",
            remedy="Please report this problem; another solver, as 'elimination', may serve meanwhile.",
        )
    return ShardingSolution(
        choices=answer.choices,
        objective=objective,
        bound=objective if answer.finished else answer.bound,
        status=Status.OPTIMAL if answer.finished else unfinished,
        solver=solver,
        seconds=time.perf_counter() - started,
        variables=answer.variables,
        constraints=answer.constraints,
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
