"""Eq. 3 of Alpa (arXiv 2201.12023, §5.2) as a table: the least Σt of layers k … L in s stages on d devices.

    F(s, k, d; t_max) = min over i and shape of  t_intra(k … i−1, shape, s) + F(s−1, i, d − devices; t_max)
    T = min over s and t_max of  F(s, 0, D; t_max) + (B − 1) · t_max

Only stages with t_intra ≤ t_max are allowed, and those that fit in memory at place s from the end (Eq. 5); F(0, L, 0)
is 0. `stage_table` is the recurrence as the paper has it; the planner's is `inter_op.recurrence`, which gives the same.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import plotly.graph_objects as go

from alpa_explore import units
from alpa_explore.figures.course.states import State, play_figure, slider_figure
from alpa_explore.figures.style import HEAT, HOVER_TEXT, OKABE_ITO, faint, ink
from alpa_explore.numerics.arrays import Floats

_SLIDER_STEPS = 16
"""Candidates for t_max on the slider: more steps cannot be hit."""
Cell = tuple[int, int, int]
"""(s, k, d)."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class StageTable:
    """F for one t_max."""

    t_max: float
    values: Floats
    """F, shape [S + 1, L + 1, D + 1]; inf where there is no partition."""
    steps: Mapping[Cell, tuple[int, int]]
    """For each finite cell with s ≥ 1 the end of its first stage, and the index of that stage's submesh shape."""

    def total(self, num_microbatches: int) -> tuple[float, int]:
        """T with this t_max, and its number of stages; (inf, 0) where no partition uses all devices."""
        sums = self.values[1:, 0, -1]
        best = int(sums.argmin())
        if not math.isfinite(sums[best]):
            return math.inf, 0
        return float(sums[best]) + (num_microbatches - 1) * self.t_max, best + 1

    def way(self, stages: int, devices_of: Sequence[int]) -> list[Cell]:
        """The cells of the best partition into so many stages, from (s, 0, D) on."""
        cell: Cell = (stages, 0, self.values.shape[2] - 1)
        cells = []
        while cell in self.steps:
            cells.append(cell)
            end, shape = self.steps[cell]
            cell = (cell[0] - 1, end, cell[2] - devices_of[shape])
        return cells


def stage_table(latency: Floats, devices_of: Sequence[int], total_devices: int, t_max: float) -> StageTable:
    """F by Eq. 3. `latency` [L, L + 1, shapes, places] as `StageCosts.latency_table` gives it, in seconds."""
    layers, _, _, places = latency.shape
    values = np.full((places + 1, layers + 1, total_devices + 1), np.inf)
    values[0, layers, 0] = 0.0
    steps: dict[Cell, tuple[int, int]] = {}
    for s in range(1, places + 1):
        for k in range(layers - 1, -1, -1):
            for d in range(1, total_devices + 1):
                for i in range(k + 1, layers + 1):
                    for shape, devices in enumerate(devices_of):
                        seconds = latency[k, i, shape, s - 1]
                        if devices > d or not seconds <= t_max:
                            continue
                        total = seconds + values[s - 1, i, d - devices]
                        if total < values[s, k, d]:
                            values[s, k, d] = total
                            steps[s, k, d] = (i, shape)
    return StageTable(t_max=t_max, values=values, steps=steps)


def candidates(latency: Floats) -> list[float]:
    """Every latency that t_max can take, ascending."""
    layers = latency.shape[0]
    values = np.concatenate([latency[k, i].ravel() for k in range(layers) for i in range(k + 1, layers + 1)])
    return sorted({float(v) for v in values if math.isfinite(v)})


def stage_table_figure(
    latency: Floats,
    devices_of: Sequence[int],
    total_devices: int,
    num_microbatches: int,
    shapes: Sequence[str],
    theme: str = "light",
) -> go.Figure:
    """Above, T of every candidate for t_max; below F, a panel for each number of stages, the way of the optimum framed.
    A slider moves t_max. `shapes` are the names of the submeshes."""
    tables = [stage_table(latency, devices_of, total_devices, t) for t in candidates(latency)]
    totals = [table.total(num_microbatches)[0] for table in tables]
    best = int(np.argmin(totals))
    shown = _shown(totals, best)
    scale, unit = units.seconds_axis(max(t for t in totals if math.isfinite(t)))
    states = []
    for number in shown:
        table = tables[number]
        total, stages = table.total(num_microbatches)
        way = table.way(stages, devices_of)
        first = f"t_max {units.seconds(table.t_max)}"
        if stages:
            waiting = (num_microbatches - 1) * table.t_max
            sentence = (
                f"{first}: Σt {units.seconds(total - waiting)} + {num_microbatches - 1} × "
                f"{units.seconds(table.t_max)} = {units.seconds(total)} in {stages} stage{'s' * (stages > 1)}"
                f"{', the least of all' if number == best else ''}."
            )
        else:
            sentence = f"{first}: no partition on {total_devices} devices keeps every stage under it."
        traces = [_curve(tables, totals, scale, unit, theme), _now(table, total, number == best, scale, theme)]
        traces += _panels(table, devices_of, shapes, way, theme)
        states.append(State(label=units.seconds(table.t_max), sentence=sentence, traces=traces))
    finite = [t for t, total in zip(candidates(latency), totals, strict=True) if math.isfinite(total)]
    return slider_figure(
        states,
        "t_max =",
        start=shown.index(best),
        theme=theme,
        height=660,
        showlegend=False,
        xaxis={
            "anchor": "y",
            "title": {"text": "t_max (ms)"},
            "range": [0.9e3 * finite[0], 1e3 * min(1.05 * finite[-1], 2.2 * tables[best].t_max)],
        },
        yaxis={
            "domain": [0.66, 1.0],
            "title": {"text": f"T ({unit})"},
            "range": [0.8 * totals[best] / scale, 2.0 * totals[best] / scale],
        },
        **_panel_axes(latency.shape[3], latency.shape[0], total_devices, 0.5),
    )


def fill_figure(
    latency: Floats,
    devices_of: Sequence[int],
    total_devices: int,
    t_max: float,
    shapes: Sequence[str],
    theme: str = "light",
) -> go.Figure:
    """The table for one t_max filled cell by cell, in the order of the recurrence: a square marks the cell that is
    computed, a circle the cell that it is computed from."""
    table = stage_table(latency, devices_of, total_devices, t_max)
    states = [
        State(
            label="0",
            sentence=f"t_max {units.seconds(t_max)}: F(0, {latency.shape[0]}, 0) = 0, all other cells are empty.",
            traces=[*_panels(table, devices_of, shapes, [], theme, filled=0), *_moving(table, None, devices_of, theme)],
        )
    ]
    for number, cell in enumerate(table.steps, start=1):
        traces = [
            *_panels(table, devices_of, shapes, [], theme, filled=number),
            *_moving(table, cell, devices_of, theme),
        ]
        words = _words(table, cell, devices_of, shapes)
        states.append(State(label=str(number), sentence=words, traces=traces))
    return play_figure(
        states,
        "cells filled:",
        milliseconds=900,
        theme=theme,
        height=420,
        showlegend=False,
        **_panel_axes(latency.shape[3], latency.shape[0], total_devices, 1.0),
    )


def _shown(totals: Sequence[float], best: int) -> list[int]:
    """The candidates on the slider: two that are too small, the optimum, and others up to twice its T."""
    feasible = [n for n, total in enumerate(totals) if math.isfinite(total)]
    near = [n for n in feasible if totals[n] <= 2.5 * totals[best]]
    step = max(1, math.ceil(len(near) / (_SLIDER_STEPS - 2)))
    return sorted({*range(max(0, feasible[0] - 2), feasible[0]), *near[::step], best})


def _curve(
    tables: Sequence[StageTable], totals: Sequence[float], scale: float, unit: str, theme: str
) -> dict[str, Any]:
    pairs = [(table.t_max, total) for table, total in zip(tables, totals, strict=True) if math.isfinite(total)]
    return {
        "type": "scatter",
        "x": [1e3 * t for t, _ in pairs],
        "y": [total / scale for _, total in pairs],
        "mode": "markers+lines",
        "line": {"color": faint(theme), "width": 1},
        "marker": {"color": ink(theme), "size": 6},
        "hovertemplate": f"t_max %{{x:.4g}} ms: T = %{{y:.4g}} {unit}<extra></extra>",
    }


def _now(table: StageTable, total: float, best: bool, scale: float, theme: str) -> dict[str, Any]:
    found = math.isfinite(total)
    return {
        "type": "scatter",
        "x": [1e3 * table.t_max] if found else [],
        "y": [total / scale] if found else [],
        "mode": "markers",
        "marker": {
            "symbol": "star" if best else "diamond",
            "size": 17,
            "color": OKABE_ITO[0 if best else 5],
            "line": {"width": 1, "color": ink(theme)},
        },
        "hoverinfo": "skip",
    }


def _axis(kind: str, panel: int) -> str:
    """The name of an axis of a panel: x2, y2 for the first."""
    return f"{kind}{panel + 2}"


def _panel_axes(places: int, layers: int, total_devices: int, top: float) -> dict[str, Any]:
    gap = 0.03
    size = (1 - gap * (places - 1)) / places
    axes: dict[str, Any] = {}
    for panel in range(places):
        left = panel * (size + gap)
        axes[f"xaxis{panel + 2}"] = {
            "domain": [left, left + size],
            "anchor": _axis("y", panel),
            "dtick": 1,
            "range": [0.5, total_devices + 0.5],
            "title": {"text": f"d<br><b>s = {panel + 1}</b>", "standoff": 2},
            "showgrid": False,
        }
        axes[f"yaxis{panel + 2}"] = {
            "domain": [0.0, top],
            "anchor": _axis("x", panel),
            "dtick": 1,
            "range": [layers - 0.5, -0.5],
            "title": {"text": "k, first layer" if panel == 0 else ""},
            "showticklabels": panel == 0,
            "showgrid": False,
        }
    return axes


def _words(table: StageTable, cell: Cell, devices_of: Sequence[int], shapes: Sequence[str]) -> str:
    """'F(2, 0, 8) = 380 ms: layers 0–1 on 1×4 (190 ms) + F(1, 2, 4)'."""
    (s, k, d), (end, shape) = cell, table.steps[cell]
    rest = d - devices_of[shape]
    value = float(table.values[cell])
    latency = value - float(table.values[s - 1, end, rest])
    layers = f"layer {k}" if end == k + 1 else f"layers {k}–{end - 1}"
    return (
        f"F({s}, {k}, {d}) = {units.seconds(value)}: {layers} on {shapes[shape]}, {units.seconds(latency)}, + "
        f"F({s - 1}, {end}, {rest}) = {units.seconds(float(table.values[s - 1, end, rest]))}"
    )


def _panels(
    table: StageTable,
    devices_of: Sequence[int],
    shapes: Sequence[str],
    way: Sequence[Cell],
    theme: str,
    filled: int | None = None,
) -> list[dict[str, Any]]:
    """A heatmap for each s, of the first `filled` cells (all by default), and the frames of the way."""
    places, layers, most = table.values.shape[0] - 1, table.values.shape[1] - 1, table.values.shape[2] - 1
    cells = list(table.steps)[:filled]
    largest = max((float(table.values[cell]) for cell in table.steps), default=1.0)
    traces: list[dict[str, Any]] = []
    for panel in range(places):
        z: list[list[float | None]] = [[None] * most for _ in range(layers)]
        numbers = [[""] * most for _ in range(layers)]
        words = [[f"F({panel + 1}, {k}, {d + 1}): no partition" for d in range(most)] for k in range(layers)]
        for cell in cells:
            s, k, d = cell
            if s == panel + 1:
                z[k][d - 1] = round(1e3 * float(table.values[cell]), 4)
                numbers[k][d - 1] = _milliseconds(float(table.values[cell]))
                words[k][d - 1] = _words(table, cell, devices_of, shapes)
        traces.append(
            {
                "type": "heatmap",
                "x": list(range(1, most + 1)),
                "y": list(range(layers)),
                "z": z,
                "zmin": 0,
                "zmax": 1e3 * largest,
                "xgap": 2,
                "ygap": 2,
                "colorscale": HEAT,
                "showscale": False,
                "text": numbers,
                "texttemplate": "%{text}",
                "textfont": {"size": 11},
                "hovertext": words,
                "hovertemplate": HOVER_TEXT,
                "xaxis": _axis("x", panel),
                "yaxis": _axis("y", panel),
            }
        )
    for panel in range(places if filled is None else 0):
        here = [(k, d) for s, k, d in way if s == panel + 1]
        traces.append(_frame(here, panel, "square-open", OKABE_ITO[5]))
    return traces


def _milliseconds(seconds: float) -> str:
    """In three digits, without an exponent."""
    value = 1e3 * seconds
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _moving(table: StageTable, cell: Cell | None, devices_of: Sequence[int], theme: str) -> list[dict[str, Any]]:
    """For each panel the frame of the cell that is computed, and of the one it is computed from."""
    places = table.values.shape[0] - 1
    source: Cell | None = None
    if cell is not None:
        end, shape = table.steps[cell]
        source = (cell[0] - 1, end, cell[2] - devices_of[shape])
    traces = []
    for panel in range(places):
        now = [(cell[1], cell[2])] if cell is not None and cell[0] == panel + 1 else []
        before = [(source[1], source[2])] if source is not None and source[0] == panel + 1 else []
        traces.append(_frame(now, panel, "square-open", OKABE_ITO[5]))
        traces.append(_frame(before, panel, "circle-open", ink(theme)))
    return traces


def _frame(cells: Sequence[tuple[int, int]], panel: int, symbol: str, color: str) -> dict[str, Any]:
    return {
        "type": "scatter",
        "x": [d for _, d in cells],
        "y": [k for k, _ in cells],
        "mode": "markers",
        "marker": {"symbol": symbol, "size": 26, "color": color, "line": {"width": 3}},
        "hoverinfo": "skip",
        "xaxis": _axis("x", panel),
        "yaxis": _axis("y", panel),
    }
