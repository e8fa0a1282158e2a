"""Which operators of a stage a figure shows: a page of them, or, of a long stage, equal ones as one row."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from alpa_explore import units
from alpa_explore.plans.records import PlanOperator, PlanStage

_TIME_SHARE = 0.95
"""Of a long stage those rows are shown that take this share of its time together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorRow:
    """An operator, or several that differ only in the number of their block ('h.3.mlp' and 'h.4.mlp')."""

    operator: PlanOperator
    """The first of them."""
    count: int
    compute_seconds: float
    """Of all of them together, as is `communication_seconds`."""
    communication_seconds: float

    @property
    def seconds(self) -> float:
        """Compute and communication."""
        return self.compute_seconds + self.communication_seconds

    @property
    def label(self) -> str:
        """Name of a single operator; for several the end of their module, their kind and how many they are."""
        if self.count == 1:
            return self.operator.name
        place = ".".join(_any_block(self.operator.module).split(".")[-2:]).removeprefix("*.")
        return f"{place} {kind(self.operator)} × {self.count}".strip()


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorPage:
    """Rows in execution order, and what they are in words (the subject of a title)."""

    rows: Sequence[OperatorRow]
    words: str


def operator_page(
    stage: PlanStage, *, count: int, start: int | None = None, layer: int | None = None, phase: str | None = None
) -> OperatorPage:
    """`count` operators from `start` on; without `start` all where they fit, else the rows that take most time.

    `layer` and `phase` select before that.
    """
    chosen = [o for o in stage.operators if (layer is None or o.layer == layer) and (phase is None or o.phase == phase)]
    kinds = f"{phase} operators" if phase else "operators"
    where = f"of layer {layer} " if layer is not None else ""
    if start is not None:
        first = min(max(start, 0), max(len(chosen) - 1, 0))
        some = chosen[first : first + count]
        last = first + len(some) - 1
        words = f"{kinds.capitalize()} {first}–{last} of {len(chosen):,} {where}in stage {stage.index}"
        return OperatorPage(rows=[_row([o]) for o in some], words=words)
    if len(chosen) <= count:
        words = f"All {len(chosen)} {kinds} {where}in stage {stage.index}"
        return OperatorPage(rows=[_row([o]) for o in chosen], words=words)
    rows = _grouped(chosen)
    kept, covered = _heaviest(rows, count)
    number = sum(row.count for row in kept)
    words = (
        f"{number:,} of the {len(chosen):,} {kinds} {where}in stage {stage.index} take "
        f"{units.percent(round(covered, 3))} of their time (equal ones share a row)"
    )
    return OperatorPage(rows=kept, words=words)


def kind(operator: PlanOperator) -> str:
    """'aten.addmm.default' -> 'addmm'."""
    parts = operator.op.split(".")
    return parts[1] if len(parts) > 1 and parts[0] == "aten" else operator.op


def _any_block(module: str) -> str:
    return re.sub(r"\d+", "*", module)


def _row(operators: Sequence[PlanOperator]) -> OperatorRow:
    return OperatorRow(
        operator=operators[0],
        count=len(operators),
        compute_seconds=sum(o.compute_seconds for o in operators),
        communication_seconds=sum(o.communication_seconds for o in operators),
    )


def _grouped(operators: Sequence[PlanOperator]) -> list[OperatorRow]:
    """Equal operators together, at the place of the first: same phase, kind, place in a block, shape and specs."""
    groups: dict[object, list[PlanOperator]] = {}
    for o in operators:
        moves = o.communication_seconds > 0
        key = (o.phase, o.op, _any_block(o.module), o.output_shape, o.strategy, o.inputs, o.outputs, moves)
        groups.setdefault(key, []).append(o)
    return [_row(group) for group in groups.values()]


def _heaviest(rows: Sequence[OperatorRow], count: int) -> tuple[list[OperatorRow], float]:
    """At most `count` rows that take `_TIME_SHARE` of the time, in their order, and the share that they take."""
    total = sum(row.seconds for row in rows)
    kept: list[int] = []
    covered = 0.0
    for i in sorted(range(len(rows)), key=lambda i: -rows[i].seconds)[:count]:
        kept.append(i)
        covered += rows[i].seconds
        if covered >= _TIME_SHARE * total:
            break
    return [rows[i] for i in sorted(kept)], covered / total if total else 0.0
