"""Sharding specs of a stage: one row an operator, or several equal ones, with specs and seconds."""

from __future__ import annotations

import math
from collections.abc import Sequence

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from alpa_explore import units
from alpa_explore.figures.decisions.operator_rows import OperatorPage, OperatorRow, operator_page
from alpa_explore.figures.keys import key
from alpa_explore.figures.style import (
    COMMUNICATION_PATTERN,
    HEAT,
    OKABE_ITO,
    dress,
    ground,
    lines,
    safe,
    short,
    stage_color,
)
from alpa_explore.plans.plan import Plan
from alpa_explore.plans.records import PlanStage
from alpa_explore.plans.report.tables import sharding_table, stage_named

__all__ = ["sharding_figure", "sharding_sentence", "sharding_table"]

_ROWS = 48
"""Operators on one page."""
_INPUTS = 4
"""Inputs with a column of their own; the hover text has all."""
_CONSTRAINTS_SHOWN = 3
"""Told in the title."""
_LINES = 6
"""Collectives named in a hover text."""


def sharding_figure(
    plan: Plan,
    stage: int = 0,
    theme: str = "light",
    *,
    layer: int | None = None,
    phase: str | None = None,
    start: int | None = None,
    count: int = _ROWS,
) -> go.Figure:
    """Specs as a heatmap (colour: into how many pieces the tensor is cut), beside the seconds of each operator.

    Without `start` a long stage shows the operators that take most of its time, equal ones as one row, in execution
    order; with it `count` operators from there on. `layer` and `phase` ('forward', 'backward', 'update') select before
    that. OptionError for a stage that the plan does not have.
    """
    shown = stage_named(plan, stage)
    page = operator_page(shown, layer=layer, phase=phase, start=start, count=max(1, count))
    figure = make_subplots(
        rows=1,
        cols=2,
        shared_yaxes=True,
        column_widths=[0.66, 0.34],
        horizontal_spacing=0.015,
    )
    pieces = _sizes(shown)
    keys = [key(stage=stage, layer=row.operator.layer, operator=row.operator.name) for row in page.rows]
    _specs(figure, page.rows, pieces, keys)
    _seconds(figure, page.rows, shown, theme, keys)
    names = [short(row.label, 34) for row in page.rows]
    figure.update_yaxes(
        tickvals=list(range(len(names))),
        ticktext=_with_phases(page.rows, names),
        autorange="reversed",
        showgrid=False,
        zeroline=False,
    )
    height = 170 + 19 * max(6, len(names))
    most = math.prod(pieces)
    ticks = [1 << k for k in range(max(1, most).bit_length())]
    figure = dress(figure, _words(page, shown) + _constrained(plan, shown), theme=theme, height=height, barmode="stack")
    figure.update_yaxes(tickfont_size=11)
    return figure.update_layout(
        bargap=0.3,
        margin={"l": 250, "b": 44, "t": figure.layout.margin.t + 14},
        legend={"x": 1, "xanchor": "right", "y": 0, "yanchor": "top"},
        coloraxis={
            "colorscale": HEAT,
            "cmin": 0,
            "cmax": max(1.0, math.log2(max(1, most))),
            "colorbar": {
                "title": {"text": "tensor cut into"},
                "lenmode": "pixels",
                "len": min(260, height - 150),
                "y": 1,
                "yanchor": "top",
                "tickvals": [math.log2(t) for t in ticks],
                "thickness": 14,
                "ticktext": ["1 (whole)" if t == 1 else f"{t} pieces" for t in ticks],
                "outlinewidth": 0,
            },
        },
    )


def sharding_sentence(
    plan: Plan,
    stage: int = 0,
    *,
    layer: int | None = None,
    phase: str | None = None,
    start: int | None = None,
    count: int = _ROWS,
) -> str:
    """What the figure shows for this plan and stage."""
    shown = stage_named(plan, stage)
    page = operator_page(shown, layer=layer, phase=phase, start=start, count=max(1, count))
    return _words(page, shown) + _constrained(plan, shown)


def _words(page: OperatorPage, stage: PlanStage) -> str:
    if not stage.operators:
        return f"The strategies of stage {stage.index} are not in the plan: plan again to see them."
    if not _sizes(stage):
        return f"{page.words}; on one device nothing is divided."
    cuts = ", ".join(f"S{axis} means cut over {size} devices" for axis, size in enumerate(_sizes(stage)))
    return f"{page.words}; {cuts}."


def _constrained(plan: Plan, stage: PlanStage) -> str:
    """The spec constraints of the user on its operators and weights."""
    names = {o.name for o in stage.operators} | {t.name for t in stage.tensors} if plan.options.spec_constraints else ()
    here = [short(str(constraint), 60) for constraint in plan.options.spec_constraints if constraint.operator in names]
    more = f"; and {len(here) - _CONSTRAINTS_SHOWN} more" if len(here) > _CONSTRAINTS_SHOWN else ""
    return f" Spec constraints: {'; '.join(here[:_CONSTRAINTS_SHOWN])}{more}." if here else ""


def _sizes(stage: PlanStage) -> tuple[int, ...]:
    """Sizes of the axes that specs number: those with more than one device."""
    return tuple(size for size in stage.logical_mesh if size > 1)


def _cut(spec: str, sizes: tuple[int, ...]) -> int:
    """Into how many pieces a spec cuts its tensor; a pending sum cuts nothing."""
    return math.prod(sizes[int(axis)] for axis in spec.split("+")[0] if axis.isdecimal() and int(axis) < len(sizes))


def _specs(figure: go.Figure, rows: Sequence[OperatorRow], sizes: tuple[int, ...], keys: Sequence[str]) -> None:
    inputs = min(max((len(row.operator.inputs) for row in rows), default=1), _INPUTS)
    columns = [*(f"input {i}" for i in range(inputs)), "output"]
    grid = [
        [*(o.inputs[i] if i < len(o.inputs) else "" for i in range(inputs)), o.output]
        for o in (row.operator for row in rows)
    ]
    figure.add_trace(
        go.Heatmap(
            x=columns,
            y=list(range(len(rows))),
            coloraxis="coloraxis",
            xgap=2,
            ygap=2,
            hoverongaps=False,
            z=[[math.log2(_cut(spec, sizes)) if spec else None for spec in line] for line in grid],
            text=[[safe(spec) for spec in line] for line in grid],
            texttemplate="%{text}",
            textfont={"size": 11},
            hovertext=[[_text(row, column) for column in columns] for row in rows],
            hovertemplate="%{hovertext}<extra></extra>",
            name="specs",
            customdata=[[name] * len(columns) for name in keys],
        ),
        row=1,
        col=1,
    )
    figure.update_xaxes(side="top", showgrid=False, row=1, col=1)


def _seconds(figure: go.Figure, rows: Sequence[OperatorRow], stage: PlanStage, theme: str, keys: Sequence[str]) -> None:
    divisor, unit = units.seconds_axis(max((row.seconds for row in rows), default=0.0))
    color = stage_color(stage.index, theme)
    hatched = {
        "color": OKABE_ITO[5] if color != OKABE_ITO[5] else OKABE_ITO[0],
        "pattern": {"shape": COMMUNICATION_PATTERN, "fgcolor": ground(theme), "size": 5, "solidity": 0.3},
    }
    for name, values, marker in (
        ("compute", [row.compute_seconds for row in rows], {"color": color}),
        ("communication", [row.communication_seconds for row in rows], hatched),
    ):
        figure.add_trace(
            go.Bar(
                orientation="h",
                y=list(range(len(rows))),
                x=[v / divisor for v in values],
                name=name,
                marker=marker,
                customdata=list(keys),
                hovertext=[_text(row, "") for row in rows],
                hovertemplate="%{hovertext}<extra></extra>",
            ),
            row=1,
            col=2,
        )
    figure.update_xaxes(title=f"{unit} a microbatch (update: an iteration)", side="top", row=1, col=2)


def _with_phases(rows: Sequence[OperatorRow], names: list[str]) -> list[str]:
    """The phase is written where it begins."""
    phases = [row.operator.phase for row in rows]
    return [
        name if i and phases[i - 1] == phases[i] else f"<b>{safe(phases[i])}</b>  {name}"
        for i, name in enumerate(names)
    ]


def _text(row: OperatorRow, column: str) -> str:
    o = row.operator
    when = "an iteration" if o.phase == "update" else "a microbatch"
    many = f"{row.count} equal operators, the first of them:" if row.count > 1 else ""
    together = f" ({units.seconds(row.seconds)} of all {row.count})" if row.count > 1 else ""
    compute, moving = units.seconds(o.compute_seconds), units.seconds(o.communication_seconds)
    return lines(
        f"<i>{column}</i>" if column else "",
        many,
        f"<b>{safe(o.name)}</b> ({safe(o.op)}), {safe(o.phase)}, layer {o.layer}",
        f"module {short(o.module, 90)}" if o.module else "",
        f"strategy {safe(o.strategy)}",
        f"reads {safe(', '.join(o.inputs))}; makes {safe(', '.join(o.outputs))}",
        f"output {'×'.join(map(str, o.output_shape)) or 'scalar'}; {units.flops(o.flops)}",
        f"compute {compute}, communication {moving} {when}{together}",
        *(safe(line) for line in o.communication[:_LINES]),
        f"… and {len(o.communication) - _LINES} more" if len(o.communication) > _LINES else "",
    )
