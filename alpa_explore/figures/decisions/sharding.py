"""Sharding of a stage: a row for each operator, or for several equal ones, with its sharding specs and seconds."""

import math
from collections.abc import Sequence
from typing import Any

from plotly.colors import sample_colorscale

from alpa_explore import units
from alpa_explore.figures import tuning
from alpa_explore.figures.decisions.operator_rows import OperatorRow, operator_page, row_text, tensor_text
from alpa_explore.figures.keys import key
from alpa_explore.figures.marks import Plots, bars_across, cells, words
from alpa_explore.figures.style import (
    HEAT,
    OKABE_ITO,
    Drawing,
    ground,
    heat_scale,
    ink_on,
    safe,
    short,
    stage_color,
    with_theme,
)
from alpa_explore.plans.plan import Plan
from alpa_explore.plans.records import PlanStage
from alpa_explore.plans.report.specs import axis_sizes, spec_legend
from alpa_explore.plans.report.tables import sharding_table, stage_named
from alpa_explore.sharding.spec import read_spec

__all__ = ["sharding_figure", "sharding_sentence", "sharding_table"]


@with_theme
def sharding_figure(
    plan: Plan,
    stage: int = 0,
    *,
    layer: int | None = None,
    phase: str | None = None,
    start: int | None = None,
    count: int = tuning.SHARDING_ROWS,
) -> Drawing:
    """Sharding specs as a heatmap (lighter: more shards of the tensor), beside the seconds of each operator.

    Without `start`, a long stage shows the operators that take most of its time in execution order, equal ones as one
    row; with it, `count` operators from there on. Only operators of `layer` and `phase` ('forward', 'backward',
    'update') count, where these are given. OptionError for a stage that the plan does not have.
    """
    shown = stage_named(plan, stage)
    rows, about = operator_page(shown, layer=layer, phase=phase, start=start, count=max(1, count))
    specs = 0.48 + 0.03 * _inputs(rows)  # of the width
    figure = Plots(column_widths=[specs, 1.0 - specs], spacing=(0.02, 0.0), shared_y=True)
    sizes = axis_sizes(shown.logical_mesh)
    keys = [key(stage=stage, layer=row.operator.layer, operator=row.operator.name) for row in rows]
    _specs(figure, rows, sizes, keys)
    _seconds(figure, rows, shown, keys)
    names = _with_phases(rows)
    figure.y(ticks=dict(enumerate(names)), span=(len(names) - 0.5, -0.5), bare=True, tickfont={"size": 11})
    figure.x(tickfont={"size": 11}, tickangle=0, side="top")
    return figure.figure(
        _sentence(about, plan, shown),
        height=186 + 19 * max(6, len(names)),
        above=46,
        margin={"l": 190, "b": 20},
        barmode="stack",
        bargap=0.3,
        showlegend=False,
        meta={"least_width": tuning.LABELLED_PIXELS},
        coloraxis={"colorscale": heat_scale, "cmin": 0, "cmax": _top(sizes), "showscale": False},
    )


def sharding_sentence(plan: Plan, stage: int = 0, *, count: int = tuning.SHARDING_ROWS, **rows: Any) -> str:
    """What the figure shows for this plan and stage; `rows` are the other arguments of `sharding_figure`."""
    shown = stage_named(plan, stage)
    return _sentence(operator_page(shown, count=max(1, count), **rows)[1], plan, shown)


def _sentence(about: str, plan: Plan, stage: PlanStage) -> str:
    """Which operators are shown, the mesh axes, and the spec constraints that the user put on the stage."""
    legend = spec_legend(stage.logical_mesh)
    about += f" {legend} Lighter: more shards." if legend else " On one device nothing is divided."
    if not stage.operators:
        about = f"The strategies of stage {stage.index} are not in the plan: plan again to see them."
    names = {o.name for o in stage.operators} | {t.name for t in stage.tensors}
    shown = [short(str(constraint), 60) for constraint in plan.options.spec_constraints if constraint.operator in names]
    rest = len(shown) - tuning.SPEC_CONSTRAINTS_SHOWN
    more = f"; and {rest} more" if rest > 0 else ""
    return about + (f" Spec constraints: {'; '.join(shown[: tuning.SPEC_CONSTRAINTS_SHOWN])}{more}." if shown else "")


def _inputs(rows: Sequence[OperatorRow]) -> int:
    """How many inputs have a column."""
    return min(max((len(row.operator.inputs) for row in rows), default=1), tuning.SHARDING_INPUTS)


def _shard_count(spec: str, sizes: Sequence[int]) -> int:
    """Into how many shards a spec divides its tensor; a pending sum divides nothing."""
    return math.prod(sizes[axis] for axes in read_spec(spec).dims for axis in axes if axis < len(sizes))


def _top(sizes: Sequence[int]) -> float:
    """The upper end of the colour scale: the logarithm of the number of devices."""
    return max(1.0, math.log2(math.prod(sizes)))


def _specs(figure: Plots, rows: Sequence[OperatorRow], sizes: Sequence[int], keys: Sequence[str]) -> None:
    inputs, top = _inputs(rows), _top(sizes)
    columns = [*(f"input {i}" for i in range(inputs)), "output"]
    places = [*range(inputs), None]
    grid = [
        [*(o.inputs[i] if i < len(o.inputs) else "" for i in range(inputs)), o.output]
        for o in (row.operator for row in rows)
    ]
    levels = [[math.log2(_shard_count(spec, sizes)) if spec else None for spec in line] for line in grid]
    hover = [
        [tensor_text(row, place, sizes) if spec else "" for place, spec in zip(places, line, strict=True)]
        for row, line in zip(rows, grid, strict=True)
    ]
    text, of_cells = [[safe(spec) for spec in line] for line in grid], [[name] * len(columns) for name in keys]
    looks = {"name": "specs", "coloraxis": "coloraxis", "text": text, "hover": hover, "keys": of_cells}
    # The specs as text on the heatmap, black or white; plotly's own cell texts are grey on grey in mid-scale.
    inks = {level: _ink(level / top) for line in levels for level in line if level is not None}
    written = [
        (column, y, spec, inks[level])
        for y, line in enumerate(zip(text, levels, strict=True))
        for column, spec, level in zip(columns, *line, strict=True)
        if level is not None
    ]
    x, y, names, colors = ([cell[part] for cell in written] for part in range(4))
    heat = cells(columns, list(range(len(rows))), levels, gap=2, **looks)
    figure.add(heat, words(x, y, names, size=10, color=colors, name="names of specs"))
    ticks = {column: column.replace(" ", "<br>") for column in columns}
    figure.x(1, 1, showgrid=False, fixedrange=True, ticks=ticks)


def _ink(share: float) -> str:
    """The colour of text on the heat colour at this share of the scale."""
    ((red, green, blue),) = sample_colorscale(HEAT, [share], colortype="tuple")
    return str(ink_on("#" + "".join(f"{round(255 * channel):02x}" for channel in (red, green, blue))))


def _seconds(figure: Plots, rows: Sequence[OperatorRow], stage: PlanStage, keys: Sequence[str]) -> None:
    most, color = max((row.seconds for row in rows), default=0.0), stage_color(stage.index)
    divisor, unit = units.seconds_axis(most)
    places, hover = list(range(len(rows))), [row_text(row) for row in rows]
    looks = {"hover": hover, "keys": list(keys)}
    computing = [row.compute_seconds / divisor for row in rows]
    moving = [row.communication_seconds / divisor for row in rows]
    pattern = {"shape": "x", "fgcolor": ground, "size": 5, "solidity": 0.3}
    other = OKABE_ITO[5] if color != OKABE_ITO[5] else OKABE_ITO[0]
    # Beside what dominates, a short bar cannot be read: each has its value.
    ends, values = [row.seconds / divisor for row in rows], [_value(row) for row in rows]
    figure.add(
        bars_across(computing, places, color, name="compute", **looks),
        bars_across(moving, places, None, name="collectives", marker={"color": other, "pattern": pattern}, **looks),
        words(ends, places, values, "middle right", 11, None, name="values", cliponaxis=False),
        col=2,
    )
    title = f"{unit} per microbatch<br>(update: per iteration):<br>compute + collectives ▨"
    span = (0.0, tuning.SHARDING_SECONDS_ROOM * most / divisor or 1.0)
    figure.x(1, 2, title=title, size=12, span=span)


def _value(row: OperatorRow) -> str:
    """'4.81 ms', or with collectives '4.81 ms + 52 µs', or '+ 52 µs' for collectives alone."""
    compute = units.seconds(row.compute_seconds) if row.compute_seconds else ""
    collectives = f" + {units.seconds(row.communication_seconds)}" if row.communication_seconds else ""
    return f" {compute}{collectives}" if compute or collectives else " 0"


def _with_phases(rows: Sequence[OperatorRow]) -> list[str]:
    """The names of the rows, with the phase written at its first operator."""
    phases, names = [row.operator.phase for row in rows], [short(row.label, 28) for row in rows]
    return [
        name if i and phases[i - 1] == phases[i] else f"<b>{safe(phases[i])}</b>  {name}"
        for i, name in enumerate(names)
    ]
