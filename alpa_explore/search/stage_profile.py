"""The result of the search: stage costs, the choices behind them, and statistics of the solves."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from alpa_explore.intra_op.stage.stage_problem import StageProblem
from alpa_explore.pricing.stage_costs import StageCosts


@dataclass(frozen=True, kw_only=True, eq=False)
class StageProfile:
    """Stage costs, the choices behind them, and statistics of the solves."""

    costs: StageCosts
    choices: Mapping[str, tuple[int, ...]]
    """`StageCandidate.solution_key` -> choice of every node of its stage problem."""
    problem_of: Callable[..., StageProblem]
    """(first, last, logical mesh), and a version where there are several -> the stage problem, to read a choice by."""
    solves: int
    distinct_solves: int
    cached_solves: int
    variables: int
    constraints: int
    warnings: tuple[str, ...]
