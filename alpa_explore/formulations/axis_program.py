"""The PuLP model of the factor ILP: an objective in seconds, and variables that are the maximum of expressions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import pulp

from alpa_explore.formulations import tuning
from alpa_explore.intra_op.ilp.enumerated_ilp import PulpHighs

Expression: TypeAlias = pulp.LpAffineExpression


class AxisProgram:
    """A PuLP model under construction; `cost` and `constant` collect the objective in seconds."""

    def __init__(self, scale: float) -> None:
        self.model = pulp.LpProblem("factors", pulp.LpMinimize)
        self.scale = scale
        self.cost: list[tuple[pulp.LpVariable, float]] = []
        self.constant = 0.0

    def indicator(self, name: str) -> pulp.LpVariable:
        """A continuous variable between 0 and 1."""
        return self.model.add_variable(name, 0, 1, pulp.LpContinuous)

    def at_least(self, name: str, *terms: tuple[Expression, float], constant: float = 0.0) -> Expression:
        """max(0, Σ terms + constant) where it is minimised; the sum itself where that cannot be negative."""
        return self.largest(name, [linear_sum(*terms)], constant)

    def largest(self, name: str, parts: Sequence[Expression], constant: float = 0.0) -> Expression:
        """max(0, each of `parts` + constant) where it is minimised."""
        rows = [part for part in parts if any(value > 0 for value in part.values())]
        if not rows:
            return linear_sum()
        if len(rows) == 1 and constant == 0 and all(value >= 0 for value in rows[0].values()):
            return rows[0]
        variable = self.indicator(name)
        for row in rows:
            self.model += variable - row >= constant
        return Expression([(variable, 1.0)])

    def add_cost(self, expression: Expression, seconds: float) -> None:
        """Add `expression` × `seconds` to the objective."""
        self.cost += [(x, value * seconds) for x, value in expression.items()]

    def value(self) -> float:
        """The objective in seconds, after `solve`."""
        return self.constant + sum((x.varValue or 0.0) * seconds for x, seconds in self.cost)

    def solve(self, time_limit_seconds: float | None) -> bool:
        """Minimise the cost; False when the time limit ended the search."""
        self.model += Expression([(x, value * self.scale) for x, value in _sum_terms(self.cost).items()])
        self.model.solve(PulpHighs(msg=False, gapRel=tuning.FACTOR_GAP, gapAbs=0.0, timeLimit=time_limit_seconds))
        return bool(self.model.sol_status == pulp.LpSolutionOptimal)


@dataclass(frozen=True, slots=True)
class EdgeEnd:
    """One end of an edge: the y of its node, and the placement that each option gives to the tensor of the edge."""

    y: list[dict[int, pulp.LpVariable]]
    placement_of: Mapping[int, int]
    """Option -> the dim that it splits, or another placement (negative)."""

    def at(self, axis: int, placement: int) -> Expression:
        """The sum of the y whose option has this placement on an axis."""
        return Expression([(x, 1.0) for f, x in self.y[axis].items() if self.placement_of[f] == placement])

    def cut(self, axis: int) -> Expression:
        """The sum of the y whose option splits the tensor on an axis."""
        return Expression([(x, 1.0) for f, x in self.y[axis].items() if self.placement_of[f] >= 0])

    def dims(self, axis: int) -> list[int]:
        """The dims that some option splits on an axis, ascending."""
        return sorted({self.placement_of[f] for f in self.y[axis] if self.placement_of[f] >= 0})


def linear_sum(*terms: tuple[Expression, float]) -> Expression:
    """The sum of expressions, each times a factor."""
    return Expression(_sum_terms((x, value * factor) for part, factor in terms for x, value in part.items()))


def _sum_terms(pairs: Iterable[tuple[pulp.LpVariable, float]]) -> dict[pulp.LpVariable, float]:
    """Coefficients of equal variables added up, without zeros."""
    total: dict[pulp.LpVariable, float] = {}
    for x, value in pairs:
        total[x] = total.get(x, 0.0) + value
    return {x: value for x, value in total.items() if value}
