"""Stage costs: the latency of each range of layers on each submesh, what does not fit, and what the plan uses."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import plotly.graph_objects as go

from alpa_explore import units
from alpa_explore.cluster import Submesh
from alpa_explore.figures import tuning
from alpa_explore.figures.decisions.stage_cost_grid import (
    Colors,
    Panel,
    PanelGrid,
    Place,
    choose_panels,
    lay_out,
    place_of,
)
from alpa_explore.figures.keys import key, link
from alpa_explore.figures.style import HOVER_TEXT, faint, ground, ink, layout_of, lines, stage_color, unchecked
from alpa_explore.plans.phrases import logical_mesh_phrase, on_submesh, submesh_phrase
from alpa_explore.plans.plan import Plan
from alpa_explore.plans.report.tables import Row, stage_costs_table, stage_of_layer
from alpa_explore.plans.report.text import PROVENANCE_PHRASES

__all__ = ["stage_costs_figure", "stage_costs_sentence", "stage_costs_table"]

_BELOW = 100
"""Pixels below the grids, for the colour bar."""
_GRID_GAP = 40
"""Pixels between two grids, for the numbers of the layers."""


def stage_costs_figure(plan: Plan, theme: str = "light", *, submeshes: Sequence[int] | None = None) -> go.Figure:
    """A panel a submesh: first layer across, number of layers down, colour = latency of a microbatch at the plan's B.

    `submeshes` are indices into `plan.costs.submeshes`; without it those that the plan uses, and others up to
    `tuning.STAGE_COST_PANELS`.
    """
    rows = stage_costs_table(plan)
    shapes = [_place(plan, m) for m in plan.costs.submeshes]
    asked = None if submeshes is None else [shapes[i] for i in submeshes if 0 <= i < len(shapes)]
    panels = choose_panels(rows, _slowest(plan), asked)
    grids = lay_out(len(plan.layers), panels)
    colors = Colors.of(rows, plan.predicted.t_max_seconds, _slowest(plan))
    traces = _traces(plan, grids[0], _cells(rows, grids[0]), colors, theme)
    for grid in grids[1:]:
        traces += [_below(grids[0], grid, trace) for trace in _traces(plan, grid, _cells(rows, grid), colors, theme)]
        traces.append(_layer_numbers(grids[0]))
    height = sum(grid.height for grid in grids) + _GRID_GAP * (len(grids) - 1)
    layout = layout_of(
        _sentence(plan, rows, panels),
        theme=theme,
        height=round(height) + 190,
        margin={"l": 58, "r": 14, "b": _BELOW},
        annotations=[colors.bar_title(theme, _BELOW)],
        showlegend=False,
        barmode="overlay",
        coloraxis=colors.axis(theme),
        **_axes(grids, height),
    )
    return unchecked(traces, layout)


def _axes(grids: Sequence[PanelGrid], height: float) -> dict[str, Any]:
    """Axes in cells of the first grid, with the numbers of the layers at the panels of all; `height` in pixels.

    One pair of axes for both grids: a second one takes a browser longer than all cells.
    """
    first, last = grids[0], grids[-1]
    plain = {"showgrid": False, "zeroline": False, "tickangle": 0, "tickfont": {"size": 11}}
    across, down = first.axes()
    if last is not first:
        below, beside = last.axes()
        x, y = _scales(first, last)
        across |= {"tickvals": [x(place) for place in below["tickvals"]], "ticktext": below["ticktext"]}
        down = {
            "tickvals": down["tickvals"] + [y(place) for place in beside["tickvals"]],
            "ticktext": down["ticktext"] + beside["ticktext"],
            "range": [height / first.cell_pixels - 0.5, -0.5],
        }
    return {
        "xaxis": plain | across | {"title": {"text": "first layer of the range", "standoff": 6}},
        "yaxis": plain | down | {"title": {"text": "number of layers", "standoff": 6}},
    }


def _scales(first: PanelGrid, grid: PanelGrid) -> tuple[Callable[[float], float], Callable[[float], float]]:
    """From cells of a grid below the first one to cells of the first: across, down."""
    wide, high = first.shape[1] / grid.shape[1], grid.cell_pixels / first.cell_pixels
    top = first.shape[0] + _GRID_GAP / first.cell_pixels - 0.5
    return lambda x: (x + 0.5) * wide - 0.5, lambda y: (y + 0.5) * high + top


def _below(first: PanelGrid, grid: PanelGrid, trace: dict[str, Any]) -> dict[str, Any]:
    """A trace of a grid below the first one, in cells of the first."""
    x, y = _scales(first, grid)
    if trace["type"] == "heatmap":
        return trace | {"x0": x(0), "dx": x(1) - x(0), "y0": y(0), "dy": y(1) - y(0)}
    return trace | {"x": [x(place) for place in trace["x"]], "y": [y(place) for place in trace["y"]]}


def _layer_numbers(grid: PanelGrid) -> dict[str, Any]:
    """The numbers of the layers under a grid that is not the last."""
    across, _ = grid.axes()
    return {
        "type": "scatter",
        "x": across["tickvals"],
        "y": [grid.shape[0] - 0.5 + 9 / grid.cell_pixels] * len(across["tickvals"]),
        "mode": "text",
        "text": across["ticktext"],
        "textfont": {"size": 11},
        "hoverinfo": "skip",
        "name": "layers",
    }


def stage_costs_sentence(plan: Plan) -> str:
    """What the figure shows for this plan."""
    rows = stage_costs_table(plan)
    return _sentence(plan, rows, choose_panels(rows, _slowest(plan), None))


def _sentence(plan: Plan, rows: list[Row], panels: Sequence[Panel]) -> str:
    fitting = sum(bool(row["microbatches_fit"]) for row in rows)
    b = plan.options.num_microbatches
    framed = "the framed one" if len(plan.stages) == 1 else f"the {len(plan.stages)} framed ones"
    blank, crossed = "no pipeline that uses all devices can contain it", "does not fit"
    if plan.costs.screened:
        blank += ", or lower bounds exclude it from the best plan"
        if not plan.costs.screened.keys().isdisjoint(plan.costs.candidates):
            crossed += ", or lower bounds exclude it and choices that use less memory were not looked for"
    if not plan.costs.complete:
        blank = "not priced, because lower bounds exclude it from the best plan; Plan prices all"
    return (
        f"{fitting} of the {len(rows):,} pairs of a range of layers and a submesh fit in memory; the plan uses "
        f"{framed} (latency of one microbatch at B = {b:,}). ✕: {crossed}. Blank: {blank}.{_left_out(rows, panels)}"
    )


def _place(plan: Plan, submesh: Submesh) -> Place:
    devices = plan.cluster.kinds[submesh.kind].device.name if plan.cluster.others else ""
    return (submesh.nodes, submesh.devices_per_node), devices


def _memory(plan: Plan, row: Row) -> int:
    """Of a device where the row is, in bytes."""
    kinds = [kind.device for kind in plan.cluster.kinds]
    return next(kind.memory_bytes for kind in kinds if row.get("device", kind.name) == kind.name)


def _slowest(plan: Plan) -> float:
    """Seconds above which the latency of a range does not matter."""
    return tuning.STAGE_COST_RATIO * plan.predicted.t_max_seconds


def _left_out(rows: list[Row], panels: Sequence[Panel]) -> str:
    """What has no cell, and why."""
    most = {p.place: p.most for p in panels}
    shapes = dict.fromkeys(map(place_of, rows))
    missing = [submesh_phrase(*shape) for shape in shapes if shape not in most]
    few = len(missing) <= 4
    parts = [
        "longer ranges" if any(r["layers"][1] - r["layers"][0] >= most.get(place_of(r), 10**6) for r in rows) else "",
        ", ".join(missing) if few else f"{len(missing)} of the {len(shapes)} submeshes",
    ]
    named = " and ".join(part for part in parts if part)
    why = f"they do not fit, or are slower than {tuning.STAGE_COST_RATIO:g} × t_max"
    if len(panels) >= tuning.STAGE_COST_PANELS:
        why += ", or are larger"
    return f" Left out are {named}: {why}; the table has all." if named else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Cell:
    """A row of the table, and its cell of the grid."""

    row: Row
    y: int
    x: int

    @property
    def fits(self) -> bool:
        return bool(self.row["microbatches_fit"])


def _cells(rows: list[Row], grid: PanelGrid) -> list[_Cell]:
    """The cell of every row of the table that has one."""
    number = {panel.place: i for i, panel in enumerate(grid.panels)}
    cells = []
    for row in rows:
        panel, (first, last) = number.get(place_of(row)), row["layers"]
        if panel is not None and last - first < grid.panels[panel].most:
            y, x = grid.cell(panel, (first, last))
            cells.append(_Cell(row=row, y=y, x=x))
    return cells


def _traces(plan: Plan, grid: PanelGrid, cells: list[_Cell], colors: Colors, theme: str) -> list[dict[str, Any]]:
    frames = [cell for cell in cells if cell.row["stage"] is not None]
    return [_heatmap(plan, grid, cells, colors), _crosses(grid, cells, theme), _headings(grid), *_frames(frames, theme)]


def _heatmap(plan: Plan, grid: PanelGrid, cells: list[_Cell], colors: Colors) -> dict[str, Any]:
    logarithms, written, texts, keys = grid.blank_numbers(), grid.blank_texts(), grid.blank_texts(), grid.blank_texts()
    stages = stage_of_layer(plan)
    for cell in cells:
        row, place = cell.row, (cell.y, cell.x)
        keys[place], click = _reaction(row, stages)
        texts[place] = lines(_hover_text(plan, row), click)
        logarithms[place] = colors.grey
        if cell.fits:
            logarithms[place] = round(math.log10(max(row["latency_seconds"], 1e-12)), 4)
            written[place] = colors.number(row["latency_seconds"], grid.digits)
    letters = {"texttemplate": "%{text}", "text": written, "textfont": {"size": 11}} if grid.lettered else {}
    gap = 2 if grid.lettered else 1
    return {
        "type": "heatmap",
        "z": logarithms,
        "coloraxis": "coloraxis",
        "hovertext": texts,
        "customdata": keys,
        "hoverongaps": False,
        "name": "latencies",
        "hovertemplate": HOVER_TEXT,
        "xgap": gap,
        "ygap": gap,
        **letters,
    }


def _reaction(row: Row, stages: Sequence[int]) -> tuple[str, str]:
    """What a click on a cell selects, and the words for it: the stage itself, or where the plan has these layers."""
    first, last = row["layers"]
    if row["stage"] is not None:
        return key(stage=row["stage"]), f"click: selects stage {row['stage']}"
    if first == last:
        stage = stages[first]
        return link(stage=stage, layer=first), f"not in the plan<br>click: selects layer {first}, in stage {stage}"
    if stages[first] == stages[last]:
        stage = stages[first]
        return link(stage=stage), f"not in the plan<br>click: selects stage {stage}, which has these layers"
    return "", f"not in the plan, where stages {stages[first]} to {stages[last]} have these layers"


def _crosses(grid: PanelGrid, cells: list[_Cell], theme: str) -> dict[str, Any]:
    over = [cell for cell in cells if not cell.fits]
    return {
        "type": "scatter",
        "x": [cell.x for cell in over],
        "y": [cell.y for cell in over],
        "mode": "markers",
        "marker": {
            "symbol": "x-thin",
            "size": 8 if grid.lettered else 5,
            "line": {"width": 1.2, "color": faint(theme)},
        },
        "hoverinfo": "skip",
        "name": "does not fit",
    }


def _headings(grid: PanelGrid) -> dict[str, Any]:
    """The submesh above each panel, and how many layers it can hold where there is room for it."""
    corners = [grid.corner(panel) for panel in range(len(grid.panels))]
    return {
        "type": "scatter",
        "x": [x - 0.5 for _, x in corners],
        # Above the numbers of stages at the corners of the first row.
        "y": [y - 0.5 - 17 / grid.cell_pixels for y, _ in corners],
        "mode": "text",
        "text": [f"<b>{submesh_phrase(*p.place)}</b>" + (", in the plan" if p.used else "") for p in grid.panels],
        "textposition": "middle right",
        "hoverinfo": "skip",
        "cliponaxis": False,
        "name": "submeshes",
    }


def _frames(cells: list[_Cell], theme: str) -> list[dict[str, Any]]:
    """A frame round each cell that the plan uses, and the number of its stage at a corner, beside the cell's own.

    A frame is a line in the stage's colour on a wider one in the background colour.
    """
    if not cells:
        return []
    colors = [stage_color(cell.row["stage"], theme) for cell in cells]
    keys = [key(stage=cell.row["stage"]) for cell in cells]
    box = {
        "type": "bar",
        "x": [cell.x for cell in cells],
        "base": [cell.y - 0.5 for cell in cells],
        "y": [1] * len(cells),
        "width": 1,
        "hoverinfo": "skip",
        "cliponaxis": False,
    }
    clear = "rgba(0,0,0,0)"
    return [
        box | {"marker": {"color": clear, "line": {"color": ground(theme), "width": 6}}, "name": "outlines"},
        box | {"marker": {"color": clear, "line": {"color": colors, "width": 3}}, "name": "frames", "customdata": keys},
        {
            "type": "scatter",
            "x": [cell.x + 0.5 for cell in cells],
            "y": [cell.y - 0.5 for cell in cells],
            "mode": "markers+text",
            "text": [f"<b>{cell.row['stage']}</b>" for cell in cells],
            "textfont": {"size": 10, "color": ink(theme)},
            "marker": {"size": 15, "color": ground(theme), "opacity": 1, "line": {"color": colors, "width": 2}},
            "hoverinfo": "skip",
            "cliponaxis": False,
            "customdata": keys,
            "name": "stages",
        },
    ]


def _hover_text(plan: Plan, row: Row) -> str:
    b, held = plan.options.num_microbatches, row["microbatches_fit"]
    provenance = PROVENANCE_PHRASES[row["provenance"]]
    peak = row["weight_bytes"] + row["activation_bytes"] + row["workspace_bytes"]
    if not held:
        memory = f"does not fit: needs {units.bytes_(peak)} or more of {units.bytes_(_memory(plan, row))}"
    else:
        memory = "can hold all microbatches" if held >= b else f"can hold {held} microbatches"
    return lines(
        f"<b>{on_submesh(row['layers'], row['submesh'], row.get('device', ''))}</b>",
        f"{units.seconds(row['latency_seconds'])} per microbatch, {logical_mesh_phrase(row['logical_mesh'])}",
        f"weights {units.bytes_(row['weight_bytes'])}, activations {units.bytes_(row['activation_bytes'])} a "
        f"microbatch, workspace {units.bytes_(row['workspace_bytes'])}",
        memory,
        f"this choice: {provenance}" if provenance else "",
    )
