"""The operators of a stage that a figure shows: one page of them or, for a long stage, the slowest, equal ones
merged; and what is said about a row, and about one tensor of it."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from alpa_explore import units
from alpa_explore.figures import tuning
from alpa_explore.figures.style import lines, safe, short
from alpa_explore.plans.records import PlanOperator, PlanStage
from alpa_explore.plans.report.specs import spec_lines


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorRow:
    """An operator, or several that differ only in the number of their block ('h.3.mlp' and 'h.4.mlp')."""

    operator: PlanOperator
    """The first of them in execution order."""
    count: int
    compute_seconds: float
    """Sum over all of them, like `communication_seconds`."""
    communication_seconds: float

    @property
    def seconds(self) -> float:
        """Compute and communication."""
        return self.compute_seconds + self.communication_seconds

    @property
    def label(self) -> str:
        """Name of a single operator; for several, the end of their module's name, their kind and their number."""
        if self.count == 1:
            return self.operator.name
        place = ".".join(_any_block(self.operator.module).split(".")[-2:]).removeprefix("*.")
        return f"{place} {kind(self.operator)} × {self.count}".strip()


def operator_page(
    stage: PlanStage, *, count: int, start: int | None = None, layer: int | None = None, phase: str | None = None
) -> tuple[list[OperatorRow], str]:
    """Rows in execution order, and a sentence that says which operators they are: `count` from `start` on; without
    `start` all of them where they fit, else the rows that take most time.

    Only operators of `layer` and `phase` count, where these are given.
    """
    selected = [
        o for o in stage.operators if (layer is None or o.layer == layer) and (phase is None or o.phase == phase)
    ]
    kinds = f"{phase} operators" if phase else "operators"
    where = f" in layer {layer}" if layer is not None else ""
    named = f"{kinds} of stage {stage.index}{where}"
    if start is not None:
        first = min(max(start, 0), max(len(selected) - 1, 0))
        page = selected[first : first + count]
        last = first + len(page) - 1
        return [_row([o]) for o in page], f"{first}–{last} of the {len(selected):,} {named}."
    if len(selected) <= count:
        return [_row([o]) for o in selected], f"All {len(selected)} {named}."
    rows = _grouped(selected)
    kept, covered = _heaviest(rows, count)
    number = sum(row.count for row in kept)
    return kept, (
        f"{number:,} of the {len(selected):,} {named}: they take {units.percent(round(covered, 3))} of the time. "
        "Equal operators share a row (× 6: six of them)."
    )


def row_text(row: OperatorRow) -> str:
    """The operator of a row, its strategy, its time, and the collectives on its inputs; the hover text of its bar."""
    o = row.operator
    total = f", {units.seconds(row.seconds)} for all {row.count}" if row.count > 1 else ""
    compute, collectives = units.seconds(o.compute_seconds), units.seconds(o.communication_seconds)
    more = len(o.communication) - tuning.COLLECTIVES_SHOWN
    return lines(
        _named(row),
        f"module {short(o.module, 90)}" if o.module else "",
        f"strategy {safe(o.strategy)}: reads {safe(', '.join(o.inputs)) or 'nothing'}, writes "
        f"{safe(', '.join(o.outputs)) or 'nothing'}",
        f"output {units.shape(o.output_shape)}, {units.flops(o.flops)}",
        f"compute {compute} + collectives {collectives} {per(o)}{total}",
        *(safe(line) for line in o.communication[: tuning.COLLECTIVES_SHOWN]),
        f"… and {more} more" if more > 0 else "",
    )


def tensor_text(row: OperatorRow, place: int | None, sizes: Sequence[int]) -> str:
    """One tensor of the operator of a row: its name, its spec in words, and what one device holds of it. `place` is the
    number of an input; None for the output. `sizes` are those of the mesh axes."""
    o = row.operator
    heading, spec, name = f"<b>output</b> of {safe(o.name)}", o.output, ""
    shape: Sequence[int] | None = o.output_shape
    if place is not None:
        heading, spec = f"<b>input {place}</b> of {safe(o.name)}", o.inputs[place]
        name = o.input_names[place] if place < len(o.input_names) else ""
        shape = o.input_shapes[place] if place < len(o.input_shapes) else None
    first, *others = spec_lines(spec, shape, sizes)
    return lines(
        heading, f"tensor {short(name, 60)}" if name else "", f"<b>{safe(spec)}</b>: {first}", *others, _named(row)
    )


def per(operator: PlanOperator) -> str:
    """How often the operator runs."""
    return "per iteration" if operator.phase == "update" else "per microbatch"


def _named(row: OperatorRow) -> str:
    o = row.operator
    first = f"the first of {row.count} equal operators: " if row.count > 1 else ""
    return f"{first}<b>{safe(o.name)}</b> ({safe(o.op)}), {safe(o.phase)}, layer {o.layer}"


def kind(operator: PlanOperator) -> str:
    """'aten.addmm.default' -> 'addmm'; the same for operators of another library."""
    parts = operator.op.split(".")
    return parts[1] if len(parts) > 2 or (parts[0] == "aten" and len(parts) > 1) else operator.op


def equality(operator: PlanOperator, place: str) -> tuple[object, ...]:
    """Equal for operators of one phase, kind, `place` in their block, shape and specs."""
    o = operator
    moves = o.communication_seconds > 0
    return (o.phase, o.op, place, o.output_shape, o.strategy, o.inputs, o.outputs, moves)


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
    """Equal operators together, where the first one is."""
    groups: dict[object, list[PlanOperator]] = {}
    for o in operators:
        groups.setdefault(equality(o, _any_block(o.module)), []).append(o)
    return [_row(group) for group in groups.values()]


def _heaviest(rows: Sequence[OperatorRow], count: int) -> tuple[list[OperatorRow], float]:
    """Up to `count` rows, in order, that take `tuning.SHARDING_TIME_SHARE` of the time, and the share they take."""
    total = sum(row.seconds for row in rows)
    kept: list[int] = []
    covered = 0.0
    for i in sorted(range(len(rows)), key=lambda i: -rows[i].seconds)[:count]:
        kept.append(i)
        covered += rows[i].seconds
        if covered >= tuning.SHARDING_TIME_SHARE * total:
            break
    return [rows[i] for i in sorted(kept)], covered / total if total else 0.0
