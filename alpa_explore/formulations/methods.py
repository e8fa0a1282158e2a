"""One row of a comparison per formulation: solve the instance by it, and price the choice by the exact costs."""

from __future__ import annotations

import time
from dataclasses import dataclass

from alpa_explore.cost.model import CostModel
from alpa_explore.formulations.comparison import SolverRow, StageInstance
from alpa_explore.formulations.factor_ilp import solve_factors
from alpa_explore.formulations.independent_ilp import labels_of, solve_independent
from alpa_explore.formulations.joint_repair import polish, repair
from alpa_explore.intra_op.bounds.messages import is_legal
from alpa_explore.intra_op.ilp.enumerated_ilp import solve_enumerated
from alpa_explore.intra_op.problem.sharding_problem import Choices, ShardingProblem
from alpa_explore.intra_op.problem.solution import Status
from alpa_explore.intra_op.stage.axis_options import batch_share, chosen_options, nearest_strategies, node_options
from alpa_explore.intra_op.stage.stage_problem import StageProblem


@dataclass(frozen=True, slots=True)
class Frame:
    """What the rows of one comparison share: the instance, the problem that prices every choice, and the best
    choice."""

    instance: StageInstance
    stage_problem: StageProblem
    problem: ShardingProblem
    best: Choices
    time_limit_seconds: float | None

    def row(
        self,
        solver: str,
        before: Choices,
        choices: Choices,
        *,
        status: Status,
        variables: int,
        constraints: int,
        build: float,
        solve: float,
        repair: float = 0.0,
        impossible: int = 0,
        batch_before: float | None = None,
    ) -> SolverRow:
        """The row for an answer `before` descent or repair and the final `choices`."""
        assert is_legal(self.problem, choices), f"{solver} returned an illegal choice"
        nodes = node_options(self.stage_problem)
        share = batch_share(self.stage_problem, chosen_options(nodes, choices))
        possible = impossible == 0 and is_legal(self.problem, before)
        if batch_before is None:
            batch_before = batch_share(self.stage_problem, chosen_options(nodes, before))
        return SolverRow(
            solver=solver,
            variables=variables,
            constraints=constraints,
            build_seconds=build,
            solve_seconds=solve,
            repair_seconds=repair,
            objective_seconds=self.problem.evaluate(choices),
            objective_before_seconds=self.problem.evaluate(before) if possible else None,
            impossible_nodes=impossible,
            differing_nodes=sum(a != b for a, b in zip(choices, self.best, strict=True)),
            batch_share_before=batch_before,
            batch_share=share,
            status=status,
        )


def enumerated_row(frame: Frame) -> SolverRow:
    """Eq. 1 in PuLP with HiGHS."""
    started = time.perf_counter()
    _, problem = frame.instance.build()
    build_seconds = time.perf_counter() - started
    solution = solve_enumerated(problem, time_limit_seconds=frame.time_limit_seconds)
    return frame.row(
        "enumerated",
        solution.choices,
        solution.choices,
        status=solution.status,
        variables=solution.variables,
        constraints=solution.constraints,
        build=build_seconds + solution.build_seconds,
        solve=solution.seconds - solution.build_seconds,
    )


def factor_row(frame: Frame) -> SolverRow:
    """The factor ILP, then `polish`."""
    started = time.perf_counter()
    stage_problem, problem = frame.instance.build()
    build_seconds = time.perf_counter() - started
    answer = solve_factors(stage_problem, problem, frame.instance.inverse_b, frame.time_limit_seconds)
    started = time.perf_counter()
    choices = polish(problem, node_options(stage_problem), answer.choices)
    return frame.row(
        "factor",
        answer.choices,
        choices,
        status=Status.OPTIMAL if answer.finished else Status.TIME_LIMIT,
        variables=answer.variables,
        constraints=answer.constraints,
        build=build_seconds + answer.build_seconds,
        solve=answer.solve_seconds,
        repair=time.perf_counter() - started,
        impossible=answer.impossible,
    )


def independent_row(frame: Frame) -> SolverRow:
    """One ILP per axis, then `repair`."""
    instance = frame.instance
    answer = solve_independent(
        instance.stage,
        CostModel(instance.device, instance.mesh),
        inverse_b=instance.inverse_b,
        memory_price=instance.memory_price,
        microbatches_held=instance.microbatches_held,
        time_limit_seconds=frame.time_limit_seconds,
    )
    started = time.perf_counter()
    stage_problem, problem = instance.build()
    nodes = node_options(stage_problem)
    requested = labels_of(nodes, answer.options)
    choices = repair(problem, nodes, requested)
    repair_seconds = time.perf_counter() - started
    nearest, impossible = nearest_strategies(problem, nodes, requested)
    return frame.row(
        "independent",
        nearest,
        choices,
        status=Status.OPTIMAL if answer.finished else Status.TIME_LIMIT,
        variables=sum(s.variables for s in answer.solutions),
        constraints=sum(s.constraints for s in answer.solutions),
        build=answer.build_seconds,
        solve=answer.solve_seconds,
        repair=repair_seconds,
        impossible=impossible,
        batch_before=batch_share(stage_problem, answer.options),
    )
