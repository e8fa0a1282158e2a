"""The result of a solver: a choice, the lower bound that was proven, and statistics of the solve."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from alpa_explore.intra_op.problem.sharding_problem import Choices


class Status(enum.Enum):
    """Outcome of a solve; the value is the advice shown to the user."""

    OPTIMAL = "Proven optimal."
    WITHIN_GAP = "Proven to be within the requested gap. Request a gap of 0 for the optimum."
    TIME_LIMIT = (
        "The time limit was reached: this is the best choice so far. Try a longer time limit, or the 'auto' solver."
    )
    UNPROVEN = (
        "The problem is too large to prove the optimum: this is the best choice found, and the gap bounds how far it"
        " can be from the optimum."
    )
    INFEASIBLE = "No choice satisfies every node. Check the forbidden costs; a pinned spec may contradict another."


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardingSolution:
    """One strategy per node; `objective` = problem.evaluate(choices) (inf and no choices when infeasible)."""

    choices: Choices
    objective: float
    bound: float
    """Proven lower bound on the optimum; equals `objective` when optimal."""
    status: Status
    solver: str
    seconds: float
    variables: int
    """Variables of the ILP that was solved after simplification; 0 when no ILP was needed."""
    constraints: int
    build_seconds: float = 0.0
    """Of `seconds`, the time to build the ILP; 0 where it is not measured separately."""

    @property
    def gap(self) -> float:
        """(objective − bound) / objective; 0 when optimal."""
        return (self.objective - self.bound) / self.objective if self.objective > 0 else 0.0
