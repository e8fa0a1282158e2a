"""One row of a comparison per formulation: solve the instance by it, and price the choice by the exact costs.

Options that were chosen axis by axis are repaired (`repair`). Each step is a sharding problem restricted to the
strategies that agree with the fixed options, O(d + 1) per node where one axis is free, solved exactly.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from alpa_explore.errors import SolverError
from alpa_explore.formulations import tuning
from alpa_explore.formulations.comparison import SolverRow, StageInstance
from alpa_explore.formulations.factor_ilp import solve_factors
from alpa_explore.formulations.independent_ilp import labels_of, solve_independent
from alpa_explore.intra_op.bounds.messages import descend, is_legal
from alpa_explore.intra_op.ilp.enumerated_ilp import solve_enumerated
from alpa_explore.intra_op.problem.sharding_problem import Choices, ShardingProblem, restricted, unrestricted_choices
from alpa_explore.intra_op.problem.solution import Status
from alpa_explore.intra_op.solve import solve
from alpa_explore.intra_op.stage.axis_options import (
    NodeOptions,
    batch_share,
    chosen_options,
    nearest_strategies,
    node_options,
)
from alpa_explore.intra_op.stage.stage_problem import StageProblem
from alpa_explore.numerics.arrays import Ints


def repair(problem: ShardingProblem, nodes: Sequence[NodeOptions], requested: Sequence[tuple[int, ...]]) -> Choices:
    """A legal, polished choice from the option `requested` on each axis at each node (-1: no option of the node).

    Raises SolverError where no legal choice is found.
    """
    nearest, _ = nearest_strategies(problem, nodes, requested)
    # A forbidden entry costs more than any legal choice, so the cheapest start is legal where one is.
    starts = [descend(problem, nearest), *keep_one_axis(problem, nodes, requested)]
    return polish(problem, nodes, min(starts, key=problem.evaluate))


def keep_one_axis(
    problem: ShardingProblem, nodes: Sequence[NodeOptions], requested: Sequence[tuple[int, ...]]
) -> list[Choices]:
    """For each axis the best choice in which that axis has the `requested` options; axes without one are left out."""
    candidates = []
    for axis in range(nodes[0].labels.shape[1] if nodes else 0):
        kept = [np.flatnonzero(node.labels[:, axis] == w[axis]) for node, w in zip(nodes, requested, strict=True)]
        allowed = [k if len(k) else np.arange(len(node.labels)) for k, node in zip(kept, nodes, strict=True)]
        choices = _best_among(problem, allowed)
        if choices is not None:
            candidates.append(choices)
    return candidates


def polish(problem: ShardingProblem, nodes: Sequence[NodeOptions], choices: Choices) -> Choices:
    """Descend over nodes, then over axes until nothing improves. The result never costs more than `choices`.

    Raises SolverError where no legal choice is found.
    """
    best = min((choices, descend(problem, choices)), key=problem.evaluate)
    if not is_legal(problem, best):  # pending sums without a producer, far from any legal choice: start again
        best = min((best, descend(problem)), key=problem.evaluate)
    for _ in range(tuning.POLISH_ROUNDS):
        before = problem.evaluate(best)
        for axis in range(nodes[0].labels.shape[1] if nodes else 0):
            kept = []
            for node, choice in zip(nodes, best, strict=True):
                others = np.delete(node.labels, axis, axis=1)
                kept.append(np.flatnonzero((others == others[choice]).all(axis=1)))
            candidate = _best_among(problem, kept)
            if candidate is not None and problem.evaluate(candidate) < problem.evaluate(best):
                best = candidate
        if problem.evaluate(best) >= before * (1 - tuning.POLISH_GAIN):
            break
    if not is_legal(problem, best):
        raise SolverError(
            "No legal choice was found near the options chosen axis by axis",
            found=f"{len(nodes)} nodes",
            remedy="Use the 'auto' solver, which decides all axes together.",
        )
    return best


def _best_among(problem: ShardingProblem, kept: Sequence[Ints]) -> Choices | None:
    """The best choice with only the strategies `kept[v]` of each node v; None when there is none."""
    solution = solve(restricted(problem, kept))
    if solution.status is Status.INFEASIBLE:
        return None
    return unrestricted_choices(kept, solution.choices)


@dataclass(frozen=True, slots=True)
class Frame:
    """What the rows of one comparison share: the instance, the problem that prices every choice, and the best
    choice."""

    instance: StageInstance
    stage_problem: StageProblem
    problem: ShardingProblem
    best: Choices
    time_limit_seconds: float | None

    def exact(self, before: Choices, choices: Choices, impossible: int = 0) -> dict[str, Any]:
        """The fields of a row that the exact costs give, of the answer `before` descent or repair and of the final
        `choices`."""
        assert is_legal(self.problem, choices), "a formulation returned an illegal choice"
        nodes = node_options(self.stage_problem)
        possible = impossible == 0 and is_legal(self.problem, before)
        return {
            "objective_seconds": self.problem.evaluate(choices),
            "objective_before_seconds": self.problem.evaluate(before) if possible else None,
            "impossible_nodes": impossible,
            "differing_nodes": sum(a != b for a, b in zip(choices, self.best, strict=True)),
            "batch_share_before": batch_share(self.stage_problem, chosen_options(nodes, before)),
            "batch_share": batch_share(self.stage_problem, chosen_options(nodes, choices)),
        }


def enumerated_row(frame: Frame) -> SolverRow:
    """Eq. 1 in PuLP with HiGHS."""
    started = time.perf_counter()
    _, problem = frame.instance.build()
    build_seconds = time.perf_counter() - started
    solution = solve_enumerated(problem, time_limit_seconds=frame.time_limit_seconds)
    return SolverRow(
        solver="enumerated",
        variables=solution.variables,
        constraints=solution.constraints,
        build_seconds=build_seconds + solution.build_seconds,
        solve_seconds=solution.seconds - solution.build_seconds,
        status=solution.status,
        **frame.exact(solution.choices, solution.choices),
    )


def factor_row(frame: Frame) -> SolverRow:
    """The factor ILP, then `polish`."""
    started = time.perf_counter()
    stage_problem, problem = frame.instance.build()
    build_seconds = time.perf_counter() - started
    answer = solve_factors(stage_problem, problem, frame.instance.inverse_b, frame.time_limit_seconds)
    started = time.perf_counter()
    choices = polish(problem, node_options(stage_problem), answer.choices)
    return SolverRow(
        solver="factor",
        variables=answer.variables,
        constraints=answer.constraints,
        build_seconds=build_seconds + answer.build_seconds,
        solve_seconds=answer.solve_seconds,
        repair_seconds=time.perf_counter() - started,
        status=Status.OPTIMAL if answer.finished else Status.TIME_LIMIT,
        **frame.exact(answer.choices, choices, answer.impossible),
    )


def independent_row(frame: Frame) -> SolverRow:
    """One ILP per axis, then `repair`."""
    answer = solve_independent(frame.instance, frame.time_limit_seconds)
    started = time.perf_counter()
    stage_problem, problem = frame.instance.build()
    nodes = node_options(stage_problem)
    requested = labels_of(nodes, answer.options)
    choices = repair(problem, nodes, requested)
    repair_seconds = time.perf_counter() - started
    nearest, impossible = nearest_strategies(problem, nodes, requested)
    exact = frame.exact(nearest, choices, impossible)
    return SolverRow(
        solver="independent",
        variables=sum(s.variables for s in answer.solutions),
        constraints=sum(s.constraints for s in answer.solutions),
        build_seconds=answer.build_seconds,
        solve_seconds=answer.solve_seconds,
        repair_seconds=repair_seconds,
        status=Status.OPTIMAL if answer.finished else Status.TIME_LIMIT,
        **exact | {"batch_share_before": batch_share(stage_problem, answer.options)},
    )
