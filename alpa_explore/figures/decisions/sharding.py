"""Sharding of a stage: a row for each operator, or for several equal ones, with its sharding specs and seconds."""

from __future__ import annotations

import math
from collections.abc import Sequence

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from alpa_explore import units
from alpa_explore.figures import tuning
from alpa_explore.figures.decisions.operator_rows import OperatorPage, OperatorRow, operator_page
from alpa_explore.figures.keys import key
from alpa_explore.figures.style import (
    COMMUNICATION_PATTERN,
    HEAT,
    HOVER_TEXT,
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


def sharding_figure(
    plan: Plan,
    stage: int = 0,
    theme: str = "light",
    *,
    layer: int | None = None,
    phase: str | None = None,
    start: int | None = None,
    count: int = tuning.SHARDING_ROWS,
) -> go.Figure:
    """Sharding specs as a heatmap (colour: number of shards of the tensor), beside the seconds of each operator.

    Without `start`, a long stage shows the operators that take most of its time in execution order, equal ones as one
    row; with it, `count` operators from there on. Only operators of `layer` and `phase` ('forward', 'backward',
    'update') count, where these are given. OptionError for a stage that the plan does not have.
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
    sizes = _sizes(shown)
    keys = [key(stage=stage, layer=row.operator.layer, operator=row.operator.name) for row in page.rows]
    _specs(figure, page.rows, sizes, keys)
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
    most = math.prod(sizes)
    ticks = [1 << k for k in range(max(1, most).bit_length())]
    figure = dress(
        figure, _sentence(page, shown) + _constraints_sentence(plan, shown), theme=theme, height=height, barmode="stack"
    )
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
                "ticktext": ["1 (whole)" if t == 1 else f"{t} shards" for t in ticks],
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
    count: int = tuning.SHARDING_ROWS,
) -> str:
    """What the figure shows for this plan and stage."""
    shown = stage_named(plan, stage)
    page = operator_page(shown, layer=layer, phase=phase, start=start, count=max(1, count))
    return _sentence(page, shown) + _constraints_sentence(plan, shown)


def _sentence(page: OperatorPage, stage: PlanStage) -> str:
    if not stage.operators:
        return f"The strategies of stage {stage.index} are not in the plan: plan again to see them."
    if not _sizes(stage):
        return f"{page.phrase}; on one device nothing is sharded."
    cuts = ", ".join(f"S{axis} means cut over {size} devices" for axis, size in enumerate(_sizes(stage)))
    return f"{page.phrase}; {cuts}."


def _constraints_sentence(plan: Plan, stage: PlanStage) -> str:
    """The spec constraints that the user put on operators and weights of the stage."""
    names = {o.name for o in stage.operators} | {t.name for t in stage.tensors} if plan.options.spec_constraints else ()
    constraints = [
        short(str(constraint), 60) for constraint in plan.options.spec_constraints if constraint.operator in names
    ]
    more = (
        f"; and {len(constraints) - tuning.SPEC_CONSTRAINTS_SHOWN} more"
        if len(constraints) > tuning.SPEC_CONSTRAINTS_SHOWN
        else ""
    )
    return f" Spec constraints: {'; '.join(constraints[: tuning.SPEC_CONSTRAINTS_SHOWN])}{more}." if constraints else ""


def _sizes(stage: PlanStage) -> tuple[int, ...]:
    """Sizes of the mesh axes that specs number: those with more than one device."""
    return tuple(size for size in stage.logical_mesh if size > 1)


def _shard_count(spec: str, sizes: tuple[int, ...]) -> int:
    """Into how many shards a spec cuts its tensor; a pending sum cuts nothing."""
    return math.prod(sizes[int(axis)] for axis in spec.split("+")[0] if axis.isdecimal() and int(axis) < len(sizes))


def _specs(figure: go.Figure, rows: Sequence[OperatorRow], sizes: tuple[int, ...], keys: Sequence[str]) -> None:
    inputs = min(max((len(row.operator.inputs) for row in rows), default=1), tuning.SHARDING_INPUTS)
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
            z=[[math.log2(_shard_count(spec, sizes)) if spec else None for spec in line] for line in grid],
            text=[[safe(spec) for spec in line] for line in grid],
            texttemplate="%{text}",
            textfont={"size": 11},
            hovertext=[[_text(row, column) for column in columns] for row in rows],
            hovertemplate=HOVER_TEXT,
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
                hovertemplate=HOVER_TEXT,
            ),
            row=1,
            col=2,
        )
    figure.update_xaxes(title=f"{unit} a microbatch (update: an iteration)", side="top", row=1, col=2)


def _with_phases(rows: Sequence[OperatorRow], names: list[str]) -> list[str]:
    """The names, with the phase written at its first operator."""
    phases = [row.operator.phase for row in rows]
    return [
        name if i and phases[i - 1] == phases[i] else f"<b>{safe(phases[i])}</b>  {name}"
        for i, name in enumerate(names)
    ]


def _text(row: OperatorRow, column: str) -> str:
    o = row.operator
    when = "an iteration" if o.phase == "update" else "a microbatch"
    group = f"{row.count} equal operators, the first of them:" if row.count > 1 else ""
    total = f" ({units.seconds(row.seconds)} of all {row.count})" if row.count > 1 else ""
    compute, moving = units.seconds(o.compute_seconds), units.seconds(o.communication_seconds)
    return lines(
        f"<i>{column}</i>" if column else "",
        group,
        f"<b>{safe(o.name)}</b> ({safe(o.op)}), {safe(o.phase)}, layer {o.layer}",
        f"module {short(o.module, 90)}" if o.module else "",
        f"strategy {safe(o.strategy)}",
        f"reads {safe(', '.join(o.inputs))}; writes {safe(', '.join(o.outputs))}",
        f"output {'×'.join(map(str, o.output_shape)) or 'scalar'}; {units.flops(o.flops)}",
        f"compute {compute}, communication {moving} {when}{total}",
        *(safe(line) for line in o.communication[: tuning.COLLECTIVES_SHOWN]),
        f"… and {len(o.communication) - tuning.COLLECTIVES_SHOWN} more"
        if len(o.communication) > tuning.COLLECTIVES_SHOWN
        else "",
    )
