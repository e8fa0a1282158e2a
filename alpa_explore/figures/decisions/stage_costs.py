"""Stage costs: how long each run of layers would take on each submesh, which does not fit, and what the plan uses.

The panels of all submeshes are one heatmap, with blank cells between them: a browser draws one pair of axes and a
handful of traces, however many submeshes there are.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import plotly.graph_objects as go
from numpy.typing import NDArray

from alpa_explore import units
from alpa_explore.figures.keys import key
from alpa_explore.figures.style import HEAT, dress, empty, faint, ground, ink, lines, stage_color
from alpa_explore.numerics.arrays import Floats
from alpa_explore.plans.plan import Plan
from alpa_explore.plans.report.tables import Row, stage_costs_table
from alpa_explore.plans.report.text import PROVENANCE_PHRASES, layers_phrase

__all__ = ["stage_costs_figure", "stage_costs_sentence", "stage_costs_table"]

_PANELS, _LARGE_PANELS = 12, 6
"""Submeshes that are drawn unless told which."""
_HEADING_PIXELS = 30
"""Between two rows of panels."""
_LETTERED = 10
"""Up to so many layers each cell has its latency written in it."""
_CELL_PIXELS, _LETTERED_PIXELS, _LEAST_PIXELS = 9, 32, 150
"""Height of a cell, of one with letters, and of a panel at least."""
_Placed: TypeAlias = tuple[Row, int, int]
"""A row of the table and its cell on the wall (down, across)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Wall:
    """Where the panels hang: cell (first layer, last layer) of panel p is one cell of one heatmap."""

    layers: int
    panels: int

    @property
    def lettered(self) -> bool:
        """Whether the latencies are written into the cells."""
        return self.layers <= _LETTERED

    @property
    def cell(self) -> float:
        """Height of a cell in pixels."""
        return max(_LEAST_PIXELS / self.layers, _LETTERED_PIXELS if self.lettered else _CELL_PIXELS)

    @property
    def columns(self) -> int:
        """Panels beside each other."""
        return min(self.panels, 3 if self.panels in (3, 5, 6) else 4) or 1

    @property
    def rows(self) -> int:
        """Panels below each other."""
        return max(1, math.ceil(self.panels / self.columns))

    @property
    def right(self) -> int:
        """Cells from one panel to the next beside it."""
        return self.layers + max(1, self.layers // 8)

    @property
    def heading(self) -> int:
        """Cells above each panel, for its heading."""
        return math.ceil(_HEADING_PIXELS / self.cell)

    @property
    def down(self) -> int:
        """Cells from one panel to the next below it."""
        return self.heading + self.layers

    @property
    def size(self) -> tuple[int, int]:
        """Cells down and across."""
        return self.rows * self.down, (self.columns - 1) * self.right + self.layers

    def place(self, panel: int, layers: tuple[int, int] = (0, 0)) -> tuple[int, int]:
        """Cell of a run of layers: (down, across)."""
        row, column = divmod(panel, self.columns)
        return row * self.down + self.heading + layers[0], column * self.right + layers[1]

    @property
    def numbers(self) -> Floats:
        """A number for every cell, none yet."""
        return np.full(self.size, np.nan)

    @property
    def texts(self) -> NDArray[np.object_]:
        """A text for every cell, none yet."""
        return np.full(self.size, "", dtype=object)

    def ticks(self, begins: Sequence[int]) -> dict[str, Any]:
        """An axis with the numbers of the layers at each of the panels that begin there."""
        step = _tick(self.layers)
        shown = [(begin + layer, str(layer)) for begin in begins for layer in range(0, self.layers, step)]
        return {"tickmode": "array", "tickvals": [at for at, _ in shown], "ticktext": [text for _, text in shown]}


def stage_costs_figure(plan: Plan, theme: str = "light", *, submeshes: Sequence[int] | None = None) -> go.Figure:
    """A heatmap a submesh: first layer down, last layer across, colour = latency of a microbatch at the plan's B.

    `submeshes` are indices into `plan.costs.submeshes`; without it those that the plan uses, and others up to 12 (6 of
    a plan with many layers).
    """
    rows = stage_costs_table(plan)
    pieces = [(m.nodes, m.devices_per_node) for m in plan.costs.submeshes]
    chosen = _panels(plan, pieces) if submeshes is None else [i for i in submeshes if 0 <= i < len(pieces)]
    wall = _Wall(layers=len(plan.layers), panels=len(chosen))
    panel_of = {pieces[index]: panel for panel, index in enumerate(chosen)}
    placed = [(row, *wall.place(panel_of[row["submesh"]], row["layers"])) for row in rows if row["submesh"] in panel_of]
    over, fits = ([p for p in placed if bool(p[0]["microbatches_fit"]) is fit] for fit in (False, True))
    path = [p for p in placed if p[0]["stage"] is not None]
    (down, across), corners = wall.size, [wall.place(panel) for panel in range(wall.panels)]
    headings = go.Scatter(
        x=[x - 0.5 for _, x in corners],
        y=[y - 0.5 - 8 / wall.cell for y, _ in corners],
        mode="text",
        text=[f"<b>{_heading(pieces[i])}</b>" for i in chosen],
        textposition="top right",
        hoverinfo="skip",
        cliponaxis=False,
        name="submeshes",
    )
    figure = go.Figure([_over(plan, wall, over, theme), _fits(plan, wall, fits), headings, *_path(wall, path, theme)])
    fitting = [row["latency_seconds"] for row in rows if row["microbatches_fit"]]
    axis = {"showgrid": False, "zeroline": False}
    dress(
        figure,
        _words(plan, rows),
        theme=theme,
        height=round(wall.cell * down) + 160,
        showlegend=False,
        coloraxis=_scale(fitting),
        xaxis={
            "title": {"text": "last layer"},
            "tickangle": 0,
            "range": [-0.5, across - 0.5],
            **axis,
            **wall.ticks(sorted({x for _, x in corners})),
        },
        yaxis={
            "title": {"text": "first layer"},
            "range": [down - 0.5, -0.5],
            **axis,
            **wall.ticks(sorted({y for y, _ in corners})),
        },
    )
    return figure.update_layout(margin={"r": 96})


def stage_costs_sentence(plan: Plan) -> str:
    """What the figure shows for this plan."""
    return _words(plan, stage_costs_table(plan))


def _words(plan: Plan, rows: list[Row]) -> str:
    fits = sum(bool(row["microbatches_fit"]) for row in rows)
    b = plan.options.num_microbatches
    framed = "the one that is framed" if len(plan.stages) == 1 else f"the {len(plan.stages)} that are framed"
    drawn, pieces = _most_panels(plan), len(plan.costs.submeshes)
    part = f" {drawn} of the {pieces} submeshes are drawn; the table has all." if drawn < pieces else ""
    small = "" if len(plan.layers) <= _LETTERED else " Small and grey: does not fit."
    blank = "no pipeline on all devices can have it"
    if not plan.costs.complete:
        blank = "not priced, because the best plan does not want it; Plan prices all"
    return (
        f"{fits} of the {len(rows)} pairs of a run of layers and a submesh fit in memory; the plan uses {framed} "
        f"(latency of one microbatch at B = {b}).{small} Blank: {blank}.{part}"
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


def _over(plan: Plan, wall: _Wall, rows: list[_Placed], theme: str) -> go.Heatmap:
    """What does not fit: a grey box, crossed out where there is room, else a small one (hundreds of crosses take a
    browser longer than all the rest)."""
    boxes, texts = wall.numbers, wall.texts
    for row, y, x in rows:
        boxes[y, x], texts[y, x] = 1.0, _text(plan, row)
    grey = empty(theme) if wall.lettered else faint(theme)
    looks: dict[str, Any] = {"xgap": wall.cell * 0.8, "ygap": wall.cell * 0.6, "opacity": 0.5}
    if wall.lettered:
        looks = {"xgap": 1, "ygap": 1, "texttemplate": "✕", "textfont": {"color": faint(theme)}}
    return go.Heatmap(
        z=boxes,
        colorscale=[[0, grey], [1, grey]],
        showscale=False,
        hovertext=texts,
        hoverongaps=False,
        hovertemplate="%{hovertext}<extra></extra>",
        name="does not fit",
        **looks,
    )


def _fits(plan: Plan, wall: _Wall, rows: list[_Placed]) -> go.Heatmap:
    # Hover texts are most of what goes to the page: each stands only with the trace that shows its cell.
    seconds, short, texts, keys = wall.numbers, wall.texts, wall.texts, wall.texts
    gap = "<br>" if wall.layers > 4 else " "
    for row, y, x in rows:
        texts[y, x] = _text(plan, row)
        seconds[y, x] = math.log10(max(row["latency_seconds"], 1e-12))
        short[y, x] = units.seconds(row["latency_seconds"]).replace(" ", gap)
        keys[y, x] = "" if row["stage"] is None else key(stage=row["stage"])
    letters = {"texttemplate": "%{text}", "text": short, "textfont": {"size": 11}} if wall.lettered else {}
    return go.Heatmap(
        z=seconds,
        coloraxis="coloraxis",
        hovertext=texts,
        customdata=keys,
        hoverongaps=False,
        name="fits",
        hovertemplate="%{hovertext}<extra></extra>",
        xgap=1,
        ygap=1,
        **letters,
    )


def _path(wall: _Wall, rows: list[_Placed], theme: str) -> list[go.Scatter]:
    """A frame round each cell that the plan uses, a line in the stage's colour on a wider one in the paper's, and the
    stage's number at its corner."""
    h, size, bare = 0.46, 19 if wall.lettered else 15, [0, 0, 0, 0]
    found = []
    wide: dict[str, list[float | None]] = {"x": [], "y": []}
    for row, y, x in rows:
        color = stage_color(row["stage"], theme)
        around = {"x": [x + h, x + h, x - h, x - h, x + h], "y": [y - h, y + h, y + h, y - h, y - h]}
        wide = {axis: [*wide[axis], *around[axis], None] for axis in wide}
        found.append(
            go.Scatter(
                **around,
                mode="lines+markers+text",
                line={"color": color, "width": 4},
                hoverinfo="skip",
                cliponaxis=False,
                text=[f"<b>{row['stage']}</b>"],
                textfont={"size": 11, "color": ink(theme)},
                marker={
                    "size": [size, *bare],
                    "color": ground(theme),
                    "opacity": 1,
                    "line": {"color": color, "width": [2, *bare]},
                },
                name=f"stage {row['stage']}",
                meta=key(stage=row["stage"]),
            )
        )
    below = {"mode": "lines", "line": {"color": ground(theme), "width": 7}, "hoverinfo": "skip", "cliponaxis": False}
    return [go.Scatter(name="frames", **wide, **below), *found]


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
            "tickvals": logs,
            "ticktext": [units.seconds(t) for t in ticks],
            "title": {"text": "latency"},
            "thickness": 14,
            "outlinewidth": 0,
        },
    }


def _text(plan: Plan, row: Row) -> str:
    b, fit = plan.options.num_microbatches, row["microbatches_fit"]
    found = PROVENANCE_PHRASES[row["provenance"]]
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
