"""Two plans compared: their settings, their headline figures, and the operators that they shard differently.

An operator is divided in the same way where its mesh (without axes of one device), its strategy and the specs of its
inputs and outputs are equal, or where every device that runs it runs it whole; which devices these are does not matter.
Operators are matched by the names that capture gives them; those that only one of the plans has are left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from alpa_explore.plans.records import PlanOperator
from alpa_explore.plans.report.differences import Difference, differences
from alpa_explore.plans.report.headline import HeadlineFigure, headline
from alpa_explore.plans.value import PlanValue

WHOLE = "whole on each device"


@dataclass(frozen=True, slots=True, kw_only=True)
class DividedOtherwise:
    """An operator that the two plans divide in different ways."""

    name: str
    op: str
    phase: str
    layer: int
    """In the new plan."""
    flops: int
    old: str
    """In the old plan: specs of its inputs → outputs, and the mesh."""
    new: str
    """The same in the new plan."""


@dataclass(frozen=True, kw_only=True)
class PlanComparison:
    """The differences between `old` and `new`."""

    old: PlanValue
    new: PlanValue
    settings: tuple[Difference, ...]
    headline: tuple[tuple[HeadlineFigure, HeadlineFigure], ...]
    """(old, new) of every figure that both plans have."""
    operators: tuple[DividedOtherwise, ...]
    common: Mapping[int, int]
    """Layer of the new plan -> number of its operators that the old plan has too; empty where the operators of a plan
    are not known, or the models have none in common."""

    @property
    def equal_batches(self) -> bool:
        """Whether an iteration is the same work in both."""
        return self.old.global_batch == self.new.global_batch


def compare_plans(old: PlanValue, new: PlanValue) -> PlanComparison:
    """How `new` differs from `old`."""
    before = {figure.name: figure for figure in headline(old)}
    old_operators = _operators(old)
    common: dict[int, int] = {}
    different = []
    for name, (operator, division) in _operators(new).items():
        if name not in old_operators:
            continue
        common[operator.layer] = common.get(operator.layer, 0) + 1
        if old_operators[name][1] != division:
            different.append(
                DividedOtherwise(
                    name=name,
                    op=operator.op,
                    phase=operator.phase,
                    layer=operator.layer,
                    flops=operator.flops,
                    old=old_operators[name][1],
                    new=division,
                )
            )
    return PlanComparison(
        old=old,
        new=new,
        settings=differences(old, new),
        operators=tuple(different),
        common=common,
        headline=tuple((before[f.name], f) for f in headline(new) if f.name in before),
    )


def _operators(plan: PlanValue) -> dict[str, tuple[PlanOperator, str]]:
    """Name -> the operator and how it is divided; for a weight with several updates (one per stage), the first."""
    operators: dict[str, tuple[PlanOperator, str]] = {}
    for stage in plan.stages:
        mesh = "×".join(str(size) for size in stage.logical_mesh if size > 1) or "one device"
        for operator in stage.operators:
            division = f"{', '.join(operator.inputs)} → {', '.join(operator.outputs)} on {mesh} ({operator.strategy})"
            if not any("S" in spec or "P" in spec for spec in (*operator.inputs, *operator.outputs)):
                division = WHOLE
            operators.setdefault(operator.name, (operator, division))
    return operators
