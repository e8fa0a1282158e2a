"""Two plans beside each other: what was asked otherwise, what came of it, and which operators are divided otherwise.

An operator is divided alike in both where its mesh (axes of one device left out), its strategy and the specs of its
inputs and outputs are the same, or where every device that runs it runs it whole; which devices they are does not
matter. Operators are found again by their names, which the capture gives: those that only one plan has are left out.
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
    """Specs of its inputs → outputs, and the mesh."""
    new: str


@dataclass(frozen=True, kw_only=True)
class PlanComparison:
    """What differs between `old` and `new`."""

    old: PlanValue
    new: PlanValue
    settings: tuple[Difference, ...]
    headline: tuple[tuple[HeadlineFigure, HeadlineFigure], ...]
    """(old, new) of every figure that both have."""
    operators: tuple[DividedOtherwise, ...]
    common: Mapping[int, int]
    """Layer of the new plan -> how many of its operators the old one has too; empty where the operators of a plan are
    not known, or the models have none in common."""

    @property
    def equal_batches(self) -> bool:
        """Whether an iteration is the same work in both."""
        return self.old.global_batch == self.new.global_batch


def compare_plans(old: PlanValue, new: PlanValue) -> PlanComparison:
    """How `new` differs from `old`."""
    before = {figure.name: figure for figure in headline(old)}
    known = _operators(old)
    common: dict[int, int] = {}
    otherwise = []
    for name, (operator, way) in _operators(new).items():
        if name not in known:
            continue
        common[operator.layer] = common.get(operator.layer, 0) + 1
        if known[name][1] != way:
            otherwise.append(
                DividedOtherwise(
                    name=name,
                    op=operator.op,
                    phase=operator.phase,
                    layer=operator.layer,
                    flops=operator.flops,
                    old=known[name][1],
                    new=way,
                )
            )
    return PlanComparison(
        old=old,
        new=new,
        settings=differences(old, new),
        operators=tuple(otherwise),
        common=common,
        headline=tuple((before[f.name], f) for f in headline(new) if f.name in before),
    )


def _operators(plan: PlanValue) -> dict[str, tuple[PlanOperator, str]]:
    """Name -> the operator and how it is divided; of a shared weight's updates the first."""
    found: dict[str, tuple[PlanOperator, str]] = {}
    for stage in plan.stages:
        mesh = "×".join(str(size) for size in stage.logical_mesh if size > 1) or "one device"
        for operator in stage.operators:
            way = f"{', '.join(operator.inputs)} → {', '.join(operator.outputs)} on {mesh} ({operator.strategy})"
            if not any("S" in spec or "P" in spec for spec in (*operator.inputs, *operator.outputs)):
                way = WHOLE
            found.setdefault(operator.name, (operator, way))
    return found
