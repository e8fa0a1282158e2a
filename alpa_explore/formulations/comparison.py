"""Values of a comparison of formulations: the instance, a row per formulation, and the rows as plain numbers."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from alpa_explore.cluster import Device, LogicalMesh
from alpa_explore.cost.model import CostModel
from alpa_explore.formulations import tuning
from alpa_explore.intra_op.problem.sharding_problem import ShardingProblem
from alpa_explore.intra_op.problem.solution import Status
from alpa_explore.intra_op.stage.build_problem import build_stage_problem
from alpa_explore.intra_op.stage.stage_graph import StageGraph
from alpa_explore.intra_op.stage.stage_problem import StageProblem


@dataclass(frozen=True, slots=True, kw_only=True)
class StageInstance:
    """One stage on one mesh, with the weights of its costs (see `StageProblem.at`)."""

    stage: StageGraph
    device: Device
    mesh: LogicalMesh
    inverse_b: float
    memory_price: float = 0.0
    microbatches_held: int = 1

    def build(self) -> tuple[StageProblem, ShardingProblem]:
        """The problem on all axes, rebuilt on each call, so that timed methods share nothing."""
        stage_problem = build_stage_problem(self.stage, CostModel(self.device, self.mesh))
        return stage_problem, stage_problem.at(
            inverse_b=self.inverse_b, memory_price=self.memory_price, microbatches_held=self.microbatches_held
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class SolverRow:
    """One formulation on one stage. Solver times are of the machine that ran it; objectives are seconds of training."""

    solver: str
    variables: int
    constraints: int
    build_seconds: float
    solve_seconds: float
    repair_seconds: float = 0.0
    """Descent and joint repair under the exact costs; 0 for the exact formulations."""
    objective_seconds: float
    """Exact cost of the final choice."""
    objective_before_seconds: float | None
    """Exact cost of the answer before descent or repair; None where that answer is not legal."""
    impossible_nodes: int
    """Number of nodes at which the answer before repair is not a strategy."""
    differing_nodes: int
    """Nodes at which the final choice differs from that of `auto` (there may be several optima)."""
    batch_share_before: float
    """Share of the operators that can split the batch at which every axis does, before descent or repair."""
    batch_share: float
    """The same for the final choice."""
    status: Status

    @property
    def total_seconds(self) -> float:
        """Seconds from the stage to the final choice."""
        return self.build_seconds + self.solve_seconds + self.repair_seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """The rows, the size of the instance, and the optimum they are measured against."""

    mesh: LogicalMesh
    first: int
    last: int
    nodes: int
    edges: int
    strategies: int
    """Of all nodes together."""
    most_strategies: int
    """Of one node."""
    pairs: int
    """Variables of Eq. 1."""
    optimum_seconds: float
    """Lower bound that `auto` proved, in seconds of training; the optimum where `proven`."""
    proven: bool
    rows: tuple[SolverRow, ...]
    left_out: tuple[str, ...]
    """Formulations that were not solved because they are too large."""

    def gap(self, row: SolverRow) -> float:
        """By how much the final choice exceeds the optimum, as a share of it."""
        return _gap(row.objective_seconds, self.optimum_seconds)

    def gap_before(self, row: SolverRow) -> float | None:
        """The same before descent or repair; None where that answer is not legal."""
        if row.objective_before_seconds is None:
            return None
        return _gap(row.objective_before_seconds, self.optimum_seconds)


def solvers_table(comparison: Comparison) -> list[dict[str, Any]]:
    """One row per formulation in plain numbers: seconds, and shares between 0 and 1; units are in the keys."""
    return [
        {
            "solver": row.solver,
            "variables": row.variables,
            "constraints": row.constraints,
            "build_seconds": row.build_seconds,
            "solve_seconds": row.solve_seconds,
            "repair_seconds": row.repair_seconds,
            "total_seconds": row.total_seconds,
            "objective_seconds": row.objective_seconds,
            "gap": comparison.gap(row),
            "objective_before_repair_seconds": row.objective_before_seconds,
            "gap_before_repair": comparison.gap_before(row),
            "impossible_nodes_before_repair": row.impossible_nodes,
            "differing_nodes": row.differing_nodes,
            "batch_share_before_repair": row.batch_share_before,
            "batch_share": row.batch_share,
            "finished": row.status.name == "OPTIMAL",
        }
        for row in comparison.rows
    ]


def _gap(objective: float, optimum: float) -> float:
    if optimum <= 0:
        return 0.0 if objective <= optimum else math.inf
    gap = objective / optimum - 1.0
    return gap if gap > tuning.REPORTED_GAP else 0.0
