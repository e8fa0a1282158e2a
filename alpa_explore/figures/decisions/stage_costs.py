"""Stage costs: the latency of each range of layers on each submesh, what does not fit, and what the plan uses."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from alpa_explore import units
from alpa_explore.cluster import Submesh
from alpa_explore.figures import tuning
from alpa_explore.figures.decisions.stage_cost_grid import Colors, Panel, PanelGrid, Place, lay_out, panels_of, place_of
from alpa_explore.figures.keys import change_key, key
from alpa_explore.figures.marks import axis, bars, labels, points, words
from alpa_explore.figures.marks import cells as heat_cells
from alpa_explore.figures.style import Drawing, Trace, faint, ground, lines, stage_color, with_theme
from alpa_explore.inter_op.options import PipelineOptions
from alpa_explore.inter_op.stage_table import encoded, schedule_terms, stage_table
from alpa_explore.numerics.arrays import Flags
from alpa_explore.plans.phrases import logical_mesh_phrase, on_submesh, submesh_phrase
from alpa_explore.plans.plan import Plan
from alpa_explore.plans.report.tables import Row, stage_costs_table
from alpa_explore.plans.report.text import PROVENANCE_PHRASES

__all__ = ["stage_costs_figure", "stage_costs_sentence", "stage_costs_table"]

_BELOW = 100
"""Pixels below the grids, for the colour bar."""
_GRID_GAP = 40
"""Pixels between two grids, for the numbers of the layers."""


@with_theme
def stage_costs_figure(plan: Plan, *, submeshes: Sequence[int] | None = None) -> Drawing:
    """A panel a submesh: first layer across, number of layers down, colour = latency of a microbatch at the plan's B.

    `submeshes` are indices into `plan.costs.submeshes`; without it those that the plan uses, and others up to
    `tuning.STAGE_COST_PANELS`.
    """
    rows = stage_costs_table(plan)
    shapes = [_place(plan, m) for m in plan.costs.submeshes]
    asked = None if submeshes is None else [shapes[i] for i in submeshes if 0 <= i < len(shapes)]
    panels = panels_of(rows, _slowest(plan), asked)
    grids = lay_out(len(plan.layers), panels)
    colors = Colors.of(rows, plan.predicted.t_max_seconds, _slowest(plan))
    under = possible_stages(plan)
    traces = list(_traces(plan, rows, grids[0], colors, under))
    for grid in grids[1:]:
        traces += [_below(grids[0], grid, trace) for trace in _traces(plan, rows, grid, colors, under)]
        numbers = grids[0].axes()[0]  # of the layers, under a grid that is not the last
        y = [grids[0].shape[0] - 0.5 + 9 / grids[0].cell_pixels] * len(numbers["tickvals"])
        traces.append(words(numbers["tickvals"], y, numbers["ticktext"], size=11, color=None, name="layers"))
    height = sum(grid.height for grid in grids) + _GRID_GAP * (len(grids) - 1)
    return Drawing(
        traces,
        _sentence(plan, rows, panels),
        height=round(height) + 190,
        margin={"l": 58, "r": 14, "b": _BELOW},
        annotations=[colors.bar_title(_BELOW)],
        showlegend=False,
        barmode="overlay",
        coloraxis=colors.axis(),
        **_axes(grids, height),
    )


def compared(plan: Plan) -> list[PipelineOptions]:
    """The options of pipelines with any stages, under the schedule of the plan, then under the others that were
    compared and can be priced."""
    options = replace(plan.options.pipeline, cuts=(), num_stages=None, stage_submeshes=())
    schedules = [(options.schedule, options.stages_per_submesh)]
    schedules += [(tried.schedule, max(tried.stages_per_submesh, 2)) for tried in plan.schedules]
    found = [replace(options, schedule=name, stages_per_submesh=turns) for name, turns in dict.fromkeys(schedules)]
    b = plan.options.num_microbatches
    return [one for one in found if schedule_terms(plan.costs, one, b).copies == plan.costs.copies]


Schedules: TypeAlias = dict[tuple[tuple[int, int], Place], str]
"""(layers, submesh) of a stage -> a schedule."""


def possible_stages(plan: Plan) -> Schedules:
    """Each stage that a pipeline on all devices can have in memory, with the first of `compared` under which there is
    one."""
    costs, found = plan.costs, Schedules()
    for options in compared(plan):
        for fits in _tables(plan, options):
            for begin, end, mesh in np.argwhere(_in_pipelines(plan, fits)).tolist():
                found.setdefault(((begin, end - 1), _place(plan, costs.submeshes[mesh])), options.schedule)
    return found


def _tables(plan: Plan, options: PipelineOptions) -> Iterator[Flags]:
    """Where the table of the pipeline DP has a latency, [L, L + 1, submeshes, places from the end], for each depth on
    which it depends."""
    costs, cluster, b = plan.costs, plan.cluster, plan.options.num_microbatches
    terms, layers = schedule_terms(costs, options, b), costs.num_layers
    if terms.copies == 1 and not terms.depends_on_depth:
        yield np.isfinite(stage_table(costs, cluster, options, b))
        return
    for depth in terms.depths(layers):
        if layers < depth * terms.least_layers(depth):
            continue
        fits = np.isfinite(stage_table(costs, cluster, replace(options, num_stages=depth), b))
        if terms.copies > 1:  # on equal submeshes
            unequal = [m for m, shape in enumerate(costs.submeshes) if shape.devices * depth != cluster.devices]
            fits[:, :, unequal] = False
        yield fits


def _in_pipelines(plan: Plan, fits: Flags) -> Flags:
    """Which stages [L, L + 1, submeshes] a pipeline of stages that fit can have, if it uses every device once: what is
    before them and what is after them add up."""
    kinds, meshes = [kind.devices for kind in plan.cluster.kinds], plan.costs.submeshes
    sizes, total, outside = encoded([(mesh.kind, mesh.devices) for mesh in meshes], kinds)
    layers, places = len(fits), fits.shape[-1]
    # [layers before, devices before] where the next stage is at a place from the end, and the same of what follows.
    before = np.zeros((places + 1, layers + 1, total + 1), dtype=np.float32)
    after = np.zeros_like(before)
    before[:, 0, 0] = after[0, layers, 0] = 1
    by_place = fits.transpose(3, 2, 0, 1).astype(np.float32)
    for place in range(places):
        for mesh, size in enumerate(sizes):
            after[place + 1, :layers, size:] += by_place[place, mesh] @ after[place, :, : total + 1 - size]
        after[place + 1][:, outside] = 0
        np.minimum(after[place + 1], 1, out=after[place + 1])
    possible = np.zeros(fits.shape[:-1], dtype=bool)
    for place in reversed(range(places)):
        own = before[place + 1, :layers]
        for mesh, size in enumerate(sizes):
            rest = own[:, : total + 1 - size] @ after[place, :, total - size :: -1].T
            possible[:, :, mesh] |= fits[:, :, mesh, place] & (rest > 0)
            before[place, :, size:] += by_place[place, mesh].T @ own[:, : total + 1 - size]
        before[place][:, outside] = 0
        np.minimum(before[place], 1, out=before[place])
    return possible


def _axes(grids: Sequence[PanelGrid], height: float) -> dict[str, Any]:
    """Axes in cells of the first grid, with the numbers of the layers at the panels of all; `height` in pixels.

    One pair of axes for both grids: a second one takes a browser longer than all cells.
    """
    first, last = grids[0], grids[-1]
    plain = {"bare": True, "tickangle": 0, "tickfont": {"size": 11}, "standoff": 6}
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
    titles = ("first layer of the range", "number of layers")
    x_axis, y_axis = (axis(title, **plain) | own for title, own in zip(titles, (across, down), strict=True))
    return {"xaxis": x_axis, "yaxis": y_axis}


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


def stage_costs_sentence(plan: Plan) -> str:
    """What the figure shows for this plan."""
    rows = stage_costs_table(plan)
    return _sentence(plan, rows, panels_of(rows, _slowest(plan), None))


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
        f"{fitting:,} of the {len(rows):,} pairs of a range of layers and a submesh fit in memory; the plan uses "
        f"{framed} (latency of one microbatch at B = {b:,}). ✕: {crossed}. Blank: {blank}.{_left_out(rows, panels)}"
    )


def _place(plan: Plan, submesh: Submesh) -> Place:
    devices = plan.cluster.kinds[submesh.kind].device.name if plan.cluster.others else ""
    return (submesh.nodes, submesh.devices_per_node), devices


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


class _Cell(NamedTuple):
    """A row of the table, and its cell of the grid."""

    row: Row
    y: int
    x: int


def _cells(rows: list[Row], grid: PanelGrid) -> list[_Cell]:
    """The cell of every row of the table that has one."""
    number = {panel.place: i for i, panel in enumerate(grid.panels)}
    return [
        _Cell(row, *grid.cell(panel, row["layers"]))
        for row in rows
        if (panel := number.get(place_of(row))) is not None
        and row["layers"][1] - row["layers"][0] < grid.panels[panel].most
    ]


def _traces(plan: Plan, rows: list[Row], grid: PanelGrid, colors: Colors, under: Schedules) -> Iterator[Trace]:
    """The latencies, what does not fit, the submesh above each panel, and frames round the cells that the plan uses."""
    cells = _cells(rows, grid)
    yield _heatmap(plan, grid, cells, colors, under)
    over = [cell for cell in cells if not cell.row["microbatches_fit"]]
    cross = {"symbol": "x-thin", "size": 8 if grid.lettered else 5, "line": {"width": 1.2, "color": faint}}
    yield points([c.x for c in over], [c.y for c in over], None, name="does not fit", marker=cross)
    corners = [grid.corner(panel) for panel in range(len(grid.panels))]
    # Above the numbers of stages at the corners of the first row.
    x, y = [x - 0.5 for _, x in corners], [y - 0.5 - 17 / grid.cell_pixels for y, _ in corners]
    names = [
        f"<b>{submesh_phrase(*p.place)}</b>"
        + (f", {p.least} layers" if p.single else "")
        + (", in the plan" if p.used else "")
        for p in grid.panels
    ]
    yield words(x, y, names, "middle right", 13, None, cliponaxis=False, name="submeshes")
    framed = [cell for cell in cells if cell.row["stage"] is not None]
    if not framed:
        return
    # A frame is a line in the stage's colour on a wider one in the background colour.
    stages = [cell.row["stage"] for cell in framed]
    colors_of, keys = [stage_color(stage) for stage in stages], [key(stage=stage) for stage in stages]
    place = {"base": [cell.y - 0.5 for cell in framed], "width": 1, "cliponaxis": False}
    for name, edge, own in (("outlines", (ground, 6), None), ("frames", (colors_of, 3), keys)):
        clear = "rgba(0,0,0,0)"
        yield bars([c.x for c in framed], [1] * len(framed), clear, edge=edge, name=name, keys=own, **place)
    # The number of the stage stands at a corner, beside the cell's own.
    x, y = [cell.x + 0.5 for cell in framed], [cell.y - 0.5 for cell in framed]
    looks = labels([f"<b>{stage}</b>" for stage in stages], None, 10) | {"mode": "markers+text", "cliponaxis": False}
    disc = {"size": 15, "color": ground, "opacity": 1, "line": {"color": colors_of, "width": 2}}
    yield points(x, y, None, name="stages", keys=keys, marker=disc, **looks)


def _heatmap(plan: Plan, grid: PanelGrid, cells: list[_Cell], colors: Colors, under: Schedules) -> Trace:
    logarithms = np.full(grid.shape, np.nan)
    written, texts, keys = (np.full(grid.shape, "", dtype=object) for _ in range(3))
    for cell in cells:
        row, place = cell.row, (cell.y, cell.x)
        keys[place], click = _reaction(plan, row, under.get((row["layers"], place_of(row)), ""))
        texts[place] = lines(_hover_text(plan, row), click)
        logarithms[place] = colors.grey
        if row["microbatches_fit"]:
            logarithms[place] = round(math.log10(max(row["latency_seconds"], 1e-12)), 4)
            written[place] = colors.number(row["latency_seconds"], grid.digits)
    letters = {"texttemplate": "%{text}", "text": written, "textfont": {"size": grid.letters}} if grid.lettered else {}
    looks = {"coloraxis": "coloraxis", "name": "latencies", "hover": texts, "keys": keys}
    return heat_cells(None, None, logarithms, gap=2 if grid.lettered else 1, **looks, **letters)


def _reaction(plan: Plan, row: Row, schedule: str) -> tuple[str, str]:
    """The key of a cell, and the words for a click on it: it selects the stage itself, or opens a plan that has it,
    under a `schedule`; '' where there is none."""
    if row["stage"] is not None:
        return key(stage=row["stage"]), f"click: selects stage {row['stage']}"
    if not row["microbatches_fit"]:
        return "", "not in the plan"
    if not schedule:
        return "", "in no pipeline of priced stages that uses all devices, so it opens no plan"
    (first, last), (nodes, devices) = row["layers"], row["submesh"]
    opens = change_key("stage", f"{first}-{last}@{nodes}x{devices}")
    other = "" if schedule == plan.options.pipeline.schedule else f", under {schedule}"
    return opens, f"not in the plan<br>click: opens the best plan with this stage{other}"


def _hover_text(plan: Plan, row: Row) -> str:
    b, held = plan.options.num_microbatches, row["microbatches_fit"]
    provenance = PROVENANCE_PHRASES[row["provenance"]]
    peak = row["weight_bytes"] + row["activation_bytes"] + row["workspace_bytes"]
    memory = "can hold all microbatches" if held >= b else f"can hold {held} microbatches"
    if not held:
        devices = [kind.device for kind in plan.cluster.kinds]
        has = next(kind.memory_bytes for kind in devices if row.get("device", kind.name) == kind.name)
        memory = f"does not fit: needs {units.bytes_(peak)} or more of {units.bytes_(has)}"
    return lines(
        f"<b>{on_submesh(row['layers'], row['submesh'], row.get('device', ''))}</b>",
        f"{units.seconds(row['latency_seconds'])} per microbatch, {logical_mesh_phrase(row['logical_mesh'])}",
        f"weights {units.bytes_(row['weight_bytes'])}, activations {units.bytes_(row['activation_bytes'])} a "
        f"microbatch, workspace {units.bytes_(row['workspace_bytes'])}",
        memory,
        f"this choice: {provenance}" if provenance else "",
    )
