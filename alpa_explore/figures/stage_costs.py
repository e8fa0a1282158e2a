"""Stage costs: how long each run of layers would take on each submesh, which does not fit, and what the plan uses."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TypeAlias

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from alpa_explore import units
from alpa_explore.figures.keys import key
from alpa_explore.figures.style import HEAT, dress, empty, faint, ground, lines, stage_color
from alpa_explore.plans.plan import Plan
from alpa_explore.plans.tables import Row, stage_costs_table
from alpa_explore.plans.text import FOUND_PHRASES, layers_phrase

__all__ = ["stage_costs_figure", "stage_costs_sentence", "stage_costs_table"]

_PANELS, _LARGE_PANELS = 12, 6
"""Submeshes that are drawn unless told which: a browser takes a second for a dozen panels of many layers."""
_GAP = 78
"""Pixels between two rows of panels, for the axis of one and the heading of the other."""
_LETTERED = 10
"""Up to so many layers each cell has its latency written in it."""

Trace: TypeAlias = go.Heatmap | go.Scatter


def stage_costs_figure(plan: Plan, theme: str = "light", *, submeshes: Sequence[int] | None = None) -> go.Figure:
    """A heatmap a submesh: first layer down, last layer across, colour = latency of a microbatch at the plan's B.

    `submeshes` are indices into `plan.costs.submeshes`; without it those that the plan uses, and others up to 12 (6 of
    a plan with many layers).
    """
    rows = stage_costs_table(plan)
    pieces = [(m.nodes, m.devices_per_node) for m in plan.costs.submeshes]
    chosen = _panels(plan, pieces) if submeshes is None else [i for i in submeshes if 0 <= i < len(pieces)]
    columns = min(len(chosen), 3 if len(chosen) in (3, 5, 6) else 4) or 1
    lines_of_panels = max(1, math.ceil(len(chosen) / columns))
    lettered = len(plan.layers) <= _LETTERED
    inner = max(150, (32 if lettered else 9) * len(plan.layers))
    plot = lines_of_panels * inner + (lines_of_panels - 1) * _GAP
    figure = make_subplots(
        rows=lines_of_panels, cols=columns, horizontal_spacing=0.06,
        vertical_spacing=_GAP / plot if plot > inner else 0,
        subplot_titles=[_heading(pieces[i]) for i in chosen],
    )  # fmt: skip
    figure.update_annotations(font_size=13)
    # All traces at once, and all axes: plotly takes longest for single ones.
    traces: list[Trace] = []
    places: list[int] = []
    for place, index in enumerate(chosen):
        of_panel = [row for row in rows if row["submesh"] == pieces[index]]
        here = _panel(plan, of_panel, theme, lettered=lettered)
        traces += here
        places += [place] * len(here)
    figure.add_traces(traces, rows=[p // columns + 1 for p in places], cols=[p % columns + 1 for p in places])
    count = len(plan.layers)
    figure.update_xaxes(
        title="last layer", tickmode="linear", dtick=_tick(count), tickangle=0, showgrid=False, zeroline=False,
        range=[-0.5, count - 0.5],
    )  # fmt: skip
    figure.update_yaxes(
        title="first layer", tickmode="linear", dtick=_tick(count), showgrid=False, zeroline=False,
        range=[count - 0.5, -0.5],
    )  # fmt: skip
    fitting = [row["latency_seconds"] for row in rows if row["microbatches_fit"]]
    figure = dress(figure, _words(plan, rows), theme=theme, height=plot + 160, showlegend=False)
    return figure.update_layout(coloraxis=_scale(fitting), margin={"r": 96, "t": figure.layout.margin.t + 6})


def stage_costs_sentence(plan: Plan) -> str:
    """What the figure shows for this plan."""
    return _words(plan, stage_costs_table(plan))


def _words(plan: Plan, rows: list[Row]) -> str:
    fits = sum(bool(row["microbatches_fit"]) for row in rows)
    b = plan.options.num_microbatches
    framed = "the one that is framed" if len(plan.stages) == 1 else f"the {len(plan.stages)} that are framed"
    drawn, pieces = _most_panels(plan), len(plan.costs.submeshes)
    part = f" {drawn} of the {pieces} submeshes are drawn; the table has all." if drawn < pieces else ""
    blank = "no pipeline on all devices can have it"
    if not plan.costs.complete:
        blank = "not priced, because the best plan does not want it; Plan prices all"
    return (
        f"{fits} of the {len(rows)} pairs of a run of layers and a submesh fit in memory; the plan uses {framed} "
        f"(latency of one microbatch at B = {b}). Blank: {blank}.{part}"
    )


def _heading(piece: tuple[int, int]) -> str:
    nodes, devices = piece
    return f"{nodes} × {devices} device{'' if nodes * devices == 1 else 's'}"


def _panels(plan: Plan, pieces: list[tuple[int, int]]) -> list[int]:
    """Those of the plan first, then the smallest, up to the limit; in the order of size."""
    used = {s.submesh for s in plan.stages}
    order = sorted(range(len(pieces)), key=lambda i: (pieces[i] not in used, i))
    return sorted(order[: _most_panels(plan)])


def _most_panels(plan: Plan) -> int:
    used = len({s.submesh for s in plan.stages})
    return _PANELS if len(plan.layers) <= _LETTERED else min(_PANELS, max(_LARGE_PANELS, used))


def _panel(plan: Plan, rows: list[Row], theme: str, *, lettered: bool) -> list[Trace]:
    count = len(plan.layers)
    seconds: list[list[float | None]] = [[None] * count for _ in range(count)]
    over: list[list[float | None]] = [[None] * count for _ in range(count)]
    # Hover texts are most of what goes to the page: each stands only with the trace that shows its cell.
    short, texts, keys, over_texts = ([[""] * count for _ in range(count)] for _ in range(4))
    for row in rows:
        first, last = row["layers"]
        if row["stage"] is not None:
            keys[first][last] = key(stage=row["stage"])
        if row["microbatches_fit"]:
            texts[first][last] = _text(plan, row)
            seconds[first][last] = math.log10(max(row["latency_seconds"], 1e-12))
            short[first][last] = units.seconds(row["latency_seconds"]).replace(" ", "<br>" if count > 4 else " ")
        else:
            over[first][last] = 1.0
            over_texts[first][last] = _text(plan, row)
    axis = list(range(count))
    common = {"x": axis, "y": axis, "xgap": 1, "ygap": 1}
    return [
        go.Heatmap(
            z=over, colorscale=[[0, empty(theme)], [1, empty(theme)]], showscale=False, texttemplate="✕",
            textfont={"color": faint(theme)}, hovertext=over_texts, hovertemplate="%{hovertext}<extra></extra>",
            hoverongaps=False, name="does not fit", **common,
        ),
        go.Heatmap(
            z=seconds, coloraxis="coloraxis", texttemplate="%{text}" if lettered else None, textfont={"size": 11},
            text=short if lettered else None, hovertext=texts, customdata=keys, hoverongaps=False, name="fits",
            hovertemplate="%{hovertext}<extra></extra>", **common,
        ),
        *(trace for row in rows if row["stage"] is not None for trace in _frame(plan, row, theme)),
    ]  # fmt: skip


def _frame(plan: Plan, row: Row, theme: str) -> list[Trace]:
    """A frame round a cell that the plan uses: a line in the stage's colour on a wider one in the paper's."""
    (first, last), half = row["layers"], 0.46
    x = [last - half, last + half, last + half, last - half, last - half]
    y = [first - half, first - half, first + half, first + half, first - half]
    color, known = stage_color(row["stage"], theme), key(stage=row["stage"])
    return [
        *(
            go.Scatter(
                x=x, y=y, mode="lines", line={"color": line, "width": width}, hoverinfo="skip",
                name=f"stage {row['stage']}", meta=known,
            )
            for line, width in ((ground(theme), 7), (color, 4))
        ),
        go.Scatter(
            x=[last + half], y=[first - half], mode="markers+text", text=[f"<b>{row['stage']}</b>"], hoverinfo="skip",
            marker={
                "size": 19 if len(plan.layers) <= _LETTERED else 15, "color": ground(theme),
                "line": {"color": color, "width": 2},
            },
            textfont={"size": 11}, cliponaxis=False, name=f"stage {row['stage']}", meta=known,
        ),
    ]  # fmt: skip


def _tick(count: int) -> int:
    return 1 if count <= 10 else 2 if count <= 20 else 8 if count <= 80 else 32


def _scale(latencies: list[float]) -> dict[str, object]:
    """Colours by the logarithm of the seconds, with ticks in units; the same for all panels."""
    low, high = min(latencies, default=1e-3), max(latencies, default=1e-3)
    ticks = [m * 10.0**e for e in range(-7, 5) for m in (1, 2, 5) if low * 0.99 <= m * 10.0**e <= high * 1.01]
    ticks = ticks if len(ticks) >= 2 else sorted({low, high})
    logs = [math.log10(max(t, 1e-12)) for t in ticks]
    return {
        "colorscale": HEAT,
        "cmin": math.log10(max(low, 1e-12)),
        "cmax": math.log10(max(high, low * 1.0001, 1e-12)),
        "colorbar": {
            "tickvals": logs, "ticktext": [units.seconds(t) for t in ticks], "title": {"text": "latency"},
            "thickness": 14, "outlinewidth": 0,
        },
    }  # fmt: skip


def _text(plan: Plan, row: Row) -> str:
    b, fit = plan.options.num_microbatches, row["microbatches_fit"]
    found = FOUND_PHRASES[row["found"]]
    stage = "" if row["stage"] is None else f"<b>this is stage {row['stage']} of the plan</b>"
    peak = row["weight_bytes"] + row["activation_bytes"] + row["workspace_bytes"]
    if not fit:
        room = f"does not fit: {units.bytes_(peak)} and more, of {units.bytes_(plan.costs.device_memory_bytes)}"
    else:
        room = "holds as many microbatches as there are" if fit >= b else f"can hold {fit} microbatches"
    return lines(
        f"<b>{layers_phrase(row['layers'])} on submesh {row['submesh']}</b>",
        stage,
        f"{units.seconds(row['latency_seconds'])} a microbatch, as logical mesh {row['logical_mesh']}",
        f"weights {units.bytes_(row['weight_bytes'])}, activations {units.bytes_(row['activation_bytes'])} a "
        f"microbatch, workspace {units.bytes_(row['workspace_bytes'])}",
        room,
        f"found as {found}" if found else "",
    )
