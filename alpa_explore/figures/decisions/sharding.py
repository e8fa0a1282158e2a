"""Sharding of a stage: a row for each operator, or for several equal ones, with its sharding specs and seconds."""

from __future__ import annotations

import math
from collections.abc import Sequence

import plotly.graph_objects as go
from plotly.colors import sample_colorscale
from plotly.subplots import make_subplots

from alpa_explore import units
from alpa_explore.figures import tuning
from alpa_explore.figures.decisions.operator_rows import OperatorPage, OperatorRow, operator_page, row_text, tensor_text
from alpa_explore.figures.keys import key
from alpa_explore.figures.style import (
    COMMUNICATION_PATTERN,
    HEAT,
    HOVER_TEXT,
    OKABE_ITO,
    dress,
    ground,
    ink_on,
    safe,
    short,
    stage_color,
)
from alpa_explore.plans.plan import Plan
from alpa_explore.plans.records import PlanStage
from alpa_explore.plans.report.specs import axis_sizes, read_spec, spec_legend
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
    """Sharding specs as a heatmap (lighter: more shards of the tensor), beside the seconds of each operator.

    Without `start`, a long stage shows the operators that take most of its time in execution order, equal ones as one
    row; with it, `count` operators from there on. Only operators of `layer` and `phase` ('forward', 'backward',
    'update') count, where these are given. OptionError for a stage that the plan does not have.
    """
    shown = stage_named(plan, stage)
    page = operator_page(shown, layer=layer, phase=phase, start=start, count=max(1, count))
    figure = make_subplots(rows=1, cols=2, shared_yaxes=True, column_widths=_widths(page.rows), horizontal_spacing=0.02)
    sizes = axis_sizes(shown.logical_mesh)
    keys = [key(stage=stage, layer=row.operator.layer, operator=row.operator.name) for row in page.rows]
    _specs(figure, page.rows, sizes, keys)
    _seconds(figure, page.rows, shown, theme, keys)
    names = [short(row.label, 28) for row in page.rows]
    figure.update_yaxes(
        tickvals=list(range(len(names))),
        ticktext=_with_phases(page.rows, names),
        range=[len(names) - 0.5, -0.5],
        showgrid=False,
        zeroline=False,
    )
    height = 186 + 19 * max(6, len(names))
    title = _sentence(page, shown) + _constraints_sentence(plan, shown)
    figure = dress(figure, title, theme=theme, height=height, barmode="stack")
    figure.update_yaxes(tickfont_size=11)
    figure.update_xaxes(title_font_size=12, tickfont_size=11, tickangle=0)
    return figure.update_layout(
        bargap=0.3,
        margin={"l": 190, "b": 20, "t": figure.layout.margin.t + 46},
        showlegend=False,
        meta={"least_width": tuning.LABELLED_PIXELS},
        coloraxis={"colorscale": HEAT, "cmin": 0, "cmax": _top(sizes), "showscale": False},
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
    legend = spec_legend(stage.logical_mesh)
    return f"{page.sentence} {f'{legend} Lighter: more shards.' if legend else 'On one device nothing is divided.'}"


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


def _inputs(rows: Sequence[OperatorRow]) -> int:
    """How many inputs have a column."""
    return min(max((len(row.operator.inputs) for row in rows), default=1), tuning.SHARDING_INPUTS)


def _widths(rows: Sequence[OperatorRow]) -> list[float]:
    """Shares of the width: of the specs, which need more with more columns, and of the seconds."""
    specs = 0.48 + 0.03 * _inputs(rows)
    return [specs, 1.0 - specs]


def _shard_count(spec: str, sizes: Sequence[int]) -> int:
    """Into how many shards a spec divides its tensor; a pending sum divides nothing."""
    return math.prod(sizes[axis] for axes in read_spec(spec).dims for axis in axes if axis < len(sizes))


def _top(sizes: Sequence[int]) -> float:
    """The upper end of the colour scale: the logarithm of the number of devices."""
    return max(1.0, math.log2(math.prod(sizes)))


def _specs(figure: go.Figure, rows: Sequence[OperatorRow], sizes: Sequence[int], keys: Sequence[str]) -> None:
    inputs = _inputs(rows)
    columns = [*(f"input {i}" for i in range(inputs)), "output"]
    places = [*range(inputs), None]
    grid = [
        [*(o.inputs[i] if i < len(o.inputs) else "" for i in range(inputs)), o.output]
        for o in (row.operator for row in rows)
    ]
    levels = [[math.log2(_shard_count(spec, sizes)) if spec else None for spec in line] for line in grid]
    figure.add_trace(
        go.Heatmap(
            x=columns,
            y=list(range(len(rows))),
            coloraxis="coloraxis",
            xgap=2,
            ygap=2,
            hoverongaps=False,
            z=levels,
            text=[[safe(spec) for spec in line] for line in grid],
            hovertext=[
                [tensor_text(row, place, sizes) if spec else "" for place, spec in zip(places, line, strict=True)]
                for row, line in zip(rows, grid, strict=True)
            ],
            hovertemplate=HOVER_TEXT,
            name="specs",
            customdata=[[name] * len(columns) for name in keys],
        ),
        row=1,
        col=1,
    )
    _spec_names(figure, columns, grid, levels, _top(sizes))
    figure.update_xaxes(
        side="top",
        showgrid=False,
        fixedrange=True,
        tickvals=columns,
        ticktext=[column.replace(" ", "<br>") for column in columns],
        row=1,
        col=1,
    )


def _spec_names(
    figure: go.Figure,
    columns: Sequence[str],
    grid: Sequence[Sequence[str]],
    levels: Sequence[Sequence[float | None]],
    top: float,
) -> None:
    """The specs as text on the heatmap, black or white; plotly's own cell texts are grey on grey in mid-scale."""
    inks = {level: _ink(level / top) for line in levels for level in line if level is not None}
    cells = [
        (column, y, spec, inks[level])
        for y, (line, line_levels) in enumerate(zip(grid, levels, strict=True))
        for column, spec, level in zip(columns, line, line_levels, strict=True)
        if level is not None
    ]
    figure.add_trace(
        go.Scatter(
            mode="text",
            x=[column for column, *_ in cells],
            y=[y for _, y, *_ in cells],
            text=[safe(spec) for *_, spec, _ in cells],
            textfont={"size": 10, "color": [color for *_, color in cells]},
            hoverinfo="skip",
            showlegend=False,
            name="names of specs",
        ),
        row=1,
        col=1,
    )


def _ink(share: float) -> str:
    """The colour of text on the heat colour at this share of the scale."""
    ((red, green, blue),) = sample_colorscale(HEAT, [share], colortype="tuple")
    return ink_on("#" + "".join(f"{round(255 * channel):02x}" for channel in (red, green, blue)))


def _seconds(figure: go.Figure, rows: Sequence[OperatorRow], stage: PlanStage, theme: str, keys: Sequence[str]) -> None:
    most = max((row.seconds for row in rows), default=0.0)
    divisor, unit = units.seconds_axis(most)
    hatched = {
        "color": OKABE_ITO[5] if stage_color(stage.index, theme) != OKABE_ITO[5] else OKABE_ITO[0],
        "pattern": {"shape": COMMUNICATION_PATTERN, "fgcolor": ground(theme), "size": 5, "solidity": 0.3},
    }
    places, texts = list(range(len(rows))), [row_text(row) for row in rows]
    for name, values, marker in (
        ("compute", [row.compute_seconds for row in rows], {"color": stage_color(stage.index, theme)}),
        ("collectives", [row.communication_seconds for row in rows], hatched),
    ):
        figure.add_trace(
            go.Bar(
                orientation="h",
                y=places,
                x=[v / divisor for v in values],
                name=name,
                marker=marker,
                customdata=list(keys),
                hovertext=texts,
                hovertemplate=HOVER_TEXT,
            ),
            row=1,
            col=2,
        )
    # Beside what dominates, a short bar cannot be read: each has its value.
    figure.add_trace(
        go.Scatter(
            mode="text",
            x=[row.seconds / divisor for row in rows],
            y=places,
            text=[_value(row) for row in rows],
            textposition="middle right",
            textfont={"size": 11},
            cliponaxis=False,
            hoverinfo="skip",
            showlegend=False,
            name="values",
        ),
        row=1,
        col=2,
    )
    figure.update_xaxes(
        title=f"{unit} per microbatch<br>(update: per iteration):<br>compute + collectives ▨",
        side="top",
        range=[0.0, tuning.SHARDING_SECONDS_ROOM * most / divisor or 1.0],
        row=1,
        col=2,
    )


def _value(row: OperatorRow) -> str:
    """'4.81 ms', or with collectives '4.81 ms + 52 µs', or '+ 52 µs' for collectives alone."""
    compute = units.seconds(row.compute_seconds) if row.compute_seconds else ""
    collectives = f" + {units.seconds(row.communication_seconds)}" if row.communication_seconds else ""
    return f" {compute}{collectives}" if compute or collectives else " 0"


def _with_phases(rows: Sequence[OperatorRow], names: list[str]) -> list[str]:
    """The names, with the phase written at its first operator."""
    phases = [row.operator.phase for row in rows]
    return [
        name if i and phases[i - 1] == phases[i] else f"<b>{safe(phases[i])}</b>  {name}"
        for i, name in enumerate(names)
    ]
