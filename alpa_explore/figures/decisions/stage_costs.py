"""Stage costs: the latency of each range of layers on each submesh, what does not fit, and what the plan uses."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import plotly.graph_objects as go

from alpa_explore import units
from alpa_explore.figures import tuning
from alpa_explore.figures.decisions.stage_cost_grid import PanelGrid
from alpa_explore.figures.keys import key
from alpa_explore.figures.style import HEAT, HOVER_TEXT, dress, empty, faint, ground, ink, lines, stage_color
from alpa_explore.plans.phrases import layers_phrase
from alpa_explore.plans.plan import Plan
from alpa_explore.plans.report.tables import Row, stage_costs_table
from alpa_explore.plans.report.text import PROVENANCE_PHRASES

__all__ = ["stage_costs_figure", "stage_costs_sentence", "stage_costs_table"]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Cell:
    """A row of the table, and its cell of the grid."""

    row: Row
    y: int
    x: int

    @property
    def fits(self) -> bool:
        return bool(self.row["microbatches_fit"])


def stage_costs_figure(plan: Plan, theme: str = "light", *, submeshes: Sequence[int] | None = None) -> go.Figure:
    """A heatmap a submesh: first layer down, last layer across, colour = latency of a microbatch at the plan's B.

    `submeshes` are indices into `plan.costs.submeshes`; without it those that the plan uses, and others up to
    `tuning.STAGE_COST_PANELS`.
    """
    rows = stage_costs_table(plan)
    shapes = [(m.nodes, m.devices_per_node) for m in plan.costs.submeshes]
    drawn = _default_panels(plan, shapes) if submeshes is None else [i for i in submeshes if 0 <= i < len(shapes)]
    grid = PanelGrid(layers=len(plan.layers), panels=len(drawn))
    cells = _cells(rows, grid, {shapes[index]: panel for panel, index in enumerate(drawn)})
    figure = go.Figure(
        [
            _too_large(plan, grid, [cell for cell in cells if not cell.fits], theme),
            _latencies(plan, grid, [cell for cell in cells if cell.fits]),
            _headings(grid, [shapes[index] for index in drawn]),
            *_stage_frames(grid, [cell for cell in cells if cell.row["stage"] is not None], theme),
        ]
    )
    (down, across), corners = grid.shape, [grid.cell(panel) for panel in range(grid.panels)]
    axis = {"showgrid": False, "zeroline": False}
    dress(
        figure,
        _sentence(plan, rows),
        theme=theme,
        height=round(grid.cell_pixels * down) + 160,
        showlegend=False,
        coloraxis=_color_axis([row["latency_seconds"] for row in rows if row["microbatches_fit"]]),
        xaxis={
            "title": {"text": "last layer"},
            "tickangle": 0,
            "range": [-0.5, across - 0.5],
            **axis,
            **grid.ticks(sorted({x for _, x in corners})),
        },
        yaxis={
            "title": {"text": "first layer"},
            "range": [down - 0.5, -0.5],
            **axis,
            **grid.ticks(sorted({y for y, _ in corners})),
        },
    )
    return figure.update_layout(margin={"r": 96})


def stage_costs_sentence(plan: Plan) -> str:
    """What the figure shows for this plan."""
    return _sentence(plan, stage_costs_table(plan))


def _sentence(plan: Plan, rows: list[Row]) -> str:
    fitting = sum(bool(row["microbatches_fit"]) for row in rows)
    b = plan.options.num_microbatches
    framed = "the framed one" if len(plan.stages) == 1 else f"the {len(plan.stages)} framed ones"
    drawn, total = _default_panel_count(plan), len(plan.costs.submeshes)
    part = f" {drawn} of the {total} submeshes are drawn; the table has all." if drawn < total else ""
    small = "" if len(plan.layers) <= tuning.LETTERED_LAYERS else " Small and grey: does not fit."
    blank = "no pipeline that uses all devices can contain it"
    if not plan.costs.complete:
        blank = "not priced, because lower bounds exclude it from the best plan; Plan prices all"
    return (
        f"{fitting} of the {len(rows)} pairs of a range of layers and a submesh fit in memory; the plan uses {framed} "
        f"(latency of one microbatch at B = {b}).{small} Blank: {blank}.{part}"
    )


def _default_panels(plan: Plan, shapes: list[tuple[int, int]]) -> list[int]:
    """The submeshes of the plan first, then the smallest, up to the limit; in order of size."""
    used = {s.submesh for s in plan.stages}
    order = sorted(range(len(shapes)), key=lambda i: (shapes[i] not in used, i))
    return sorted(order[: _default_panel_count(plan)])


def _default_panel_count(plan: Plan) -> int:
    if len(plan.layers) <= tuning.LETTERED_LAYERS:
        return tuning.STAGE_COST_PANELS
    used = len({s.submesh for s in plan.stages})
    return min(tuning.STAGE_COST_PANELS, max(tuning.STAGE_COST_PANELS_OF_MANY_LAYERS, used))


def _cells(rows: list[Row], grid: PanelGrid, panel_of_shape: dict[tuple[int, int], int]) -> list[_Cell]:
    """The cell of every row whose submesh is drawn."""
    cells = []
    for row in rows:
        if row["submesh"] in panel_of_shape:
            y, x = grid.cell(panel_of_shape[row["submesh"]], row["layers"])
            cells.append(_Cell(row=row, y=y, x=x))
    return cells


def _headings(grid: PanelGrid, shapes: Sequence[tuple[int, int]]) -> go.Scatter:
    corners = [grid.cell(panel) for panel in range(grid.panels)]
    return go.Scatter(
        x=[x - 0.5 for _, x in corners],
        y=[y - 0.5 - 8 / grid.cell_pixels for y, _ in corners],
        mode="text",
        text=[f"<b>{n} × {m} device{'' if n * m == 1 else 's'}</b>" for n, m in shapes],
        textposition="top right",
        hoverinfo="skip",
        cliponaxis=False,
        name="submeshes",
    )


def _too_large(plan: Plan, grid: PanelGrid, cells: list[_Cell], theme: str) -> go.Heatmap:
    """What does not fit in memory: a grey box, crossed out where there is room, else a small one.

    Hundreds of crosses take a browser longer than all the rest of the figure.
    """
    boxes, texts = grid.blank_numbers(), grid.blank_texts()
    for cell in cells:
        boxes[cell.y, cell.x], texts[cell.y, cell.x] = 1.0, _hover_text(plan, cell.row)
    grey = empty(theme) if grid.lettered else faint(theme)
    looks: dict[str, Any] = {"xgap": grid.cell_pixels * 0.8, "ygap": grid.cell_pixels * 0.6, "opacity": 0.5}
    if grid.lettered:
        looks = {"xgap": 1, "ygap": 1, "texttemplate": "✕", "textfont": {"color": faint(theme)}}
    return go.Heatmap(
        z=boxes,
        colorscale=[[0, grey], [1, grey]],
        showscale=False,
        hovertext=texts,
        hoverongaps=False,
        hovertemplate=HOVER_TEXT,
        name="does not fit",
        **looks,
    )


def _latencies(plan: Plan, grid: PanelGrid, cells: list[_Cell]) -> go.Heatmap:
    # Hover texts are most of what goes to the page: each is only in the trace that shows its cell.
    logarithms, written = grid.blank_numbers(), grid.blank_texts()
    texts, keys = grid.blank_texts(), grid.blank_texts()
    gap = "<br>" if grid.layers > 4 else " "
    for cell in cells:
        row, place = cell.row, (cell.y, cell.x)
        texts[place] = _hover_text(plan, row)
        logarithms[place] = math.log10(max(row["latency_seconds"], 1e-12))
        written[place] = units.seconds(row["latency_seconds"]).replace(" ", gap)
        keys[place] = "" if row["stage"] is None else key(stage=row["stage"])
    letters = {"texttemplate": "%{text}", "text": written, "textfont": {"size": 11}} if grid.lettered else {}
    return go.Heatmap(
        z=logarithms,
        coloraxis="coloraxis",
        hovertext=texts,
        customdata=keys,
        hoverongaps=False,
        name="fits",
        hovertemplate=HOVER_TEXT,
        xgap=1,
        ygap=1,
        **letters,
    )


def _stage_frames(grid: PanelGrid, cells: list[_Cell], theme: str) -> list[go.Scatter]:
    """A frame round each cell that the plan uses, and the stage's number at its corner.

    A frame is a line in the stage's colour on a wider one in the background colour.
    """
    half, corner_size, no_markers = 0.46, 19 if grid.lettered else 15, [0, 0, 0, 0]
    frames = []
    outline: dict[str, list[float | None]] = {"x": [], "y": []}
    for cell in cells:
        stage, x, y = cell.row["stage"], cell.x, cell.y
        color = stage_color(stage, theme)
        path = {
            "x": [x + half, x + half, x - half, x - half, x + half],
            "y": [y - half, y + half, y + half, y - half, y - half],
        }
        outline = {axis: [*outline[axis], *path[axis], None] for axis in outline}
        frames.append(
            go.Scatter(
                **path,
                mode="lines+markers+text",
                line={"color": color, "width": 4},
                hoverinfo="skip",
                cliponaxis=False,
                text=[f"<b>{stage}</b>"],
                textfont={"size": 11, "color": ink(theme)},
                marker={
                    "size": [corner_size, *no_markers],
                    "color": ground(theme),
                    "opacity": 1,
                    "line": {"color": color, "width": [2, *no_markers]},
                },
                name=f"stage {stage}",
                meta=key(stage=stage),
            )
        )
    wide = {"mode": "lines", "line": {"color": ground(theme), "width": 7}, "hoverinfo": "skip", "cliponaxis": False}
    return [go.Scatter(name="frames", **outline, **wide), *frames]


def _color_axis(latencies: list[float]) -> dict[str, object]:
    """Colours by the logarithm of the seconds, with ticks in units; the same for all panels."""
    low, high = min(latencies, default=1e-3), max(latencies, default=1e-3)
    ticks = [m * 10.0**e for e in range(-7, 5) for m in (1, 2, 5) if low * 0.99 <= m * 10.0**e <= high * 1.01]
    ticks = ticks if len(ticks) >= 2 else sorted({low, high})
    return {
        "colorscale": HEAT,
        "cmin": math.log10(max(low, 1e-12)),
        "cmax": math.log10(max(high, low * 1.0001, 1e-12)),
        "colorbar": {
            "tickvals": [math.log10(max(t, 1e-12)) for t in ticks],
            "ticktext": [units.seconds(t) for t in ticks],
            "title": {"text": "latency"},
            "thickness": 14,
            "outlinewidth": 0,
        },
    }


def _hover_text(plan: Plan, row: Row) -> str:
    b, held = plan.options.num_microbatches, row["microbatches_fit"]
    provenance = PROVENANCE_PHRASES[row["provenance"]]
    stage = "" if row["stage"] is None else f"<b>this is stage {row['stage']} of the plan</b>"
    peak = row["weight_bytes"] + row["activation_bytes"] + row["workspace_bytes"]
    if not held:
        memory = f"does not fit: needs {units.bytes_(peak)} or more of {units.bytes_(plan.costs.device_memory_bytes)}"
    else:
        memory = "can hold all microbatches" if held >= b else f"can hold {held} microbatches"
    return lines(
        f"<b>{layers_phrase(row['layers'])} on submesh {row['submesh']}</b>",
        stage,
        f"{units.seconds(row['latency_seconds'])} a microbatch, on logical mesh {row['logical_mesh']}",
        f"weights {units.bytes_(row['weight_bytes'])}, activations {units.bytes_(row['activation_bytes'])} a "
        f"microbatch, workspace {units.bytes_(row['workspace_bytes'])}",
        memory,
        f"this choice: {provenance}" if provenance else "",
    )
