"""What a solver returns: the choice, how good it is proven to be, and what it took."""

from __future__ import annotations

import enum
from dataclasses import dataclass


class Status(enum.Enum):
    """Outcome of a solve; the value is the advice shown to the user."""

    OPTIMAL = "Proven optimal."
    WITHIN_GAP = "Proven to be within the gap that was asked for. Ask for a gap of 0 to have the optimum."
    TIME_LIMIT = (
        "The time limit was reached: this is the best choice so far. Try a longer time limit, or the 'auto' solver."
    )
    UNPROVEN = (
        "The problem is too large to prove the optimum: this is the best choice found, and the gap says how far from"
        " the optimum it can be."
    )
    INFEASIBLE = "No choice satisfies every node. Check the forbidden costs; a pinned spec may contradict another."


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardingSolution:
    """One choice a node, `objective` = problem.evaluate(choices) (inf when infeasible, choices empty)."""

    choices: tuple[int, ...]
    objective: float
    bound: float
    """Proven lower bound on the optimum; equals `objective` when optimal."""
    status: Status
    solver: str
    seconds: float
    variables: int
    """Variables of the ILP that was solved after simplification; 0 when nothing was left to solve."""
    constraints: int
    build_seconds: float = 0.0
    """Of `seconds`, what it took to write the program down; 0 where that is not told apart."""

    @property
    def gap(self) -> float:
        """(objective − bound) / objective; 0 when optimal."""
        return (self.objective - self.bound) / self.objective if self.objective > 0 else 0.0
