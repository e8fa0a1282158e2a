"""The table of Eq. 3 for a t_max that a slider moves, filled cell by cell by another one, up to T (`stage_table`)."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
import plotly.graph_objects as go

from alpa_explore import units
from alpa_explore.figures import tuning
from alpa_explore.figures.course.interactive import Control, InteractiveFigure
from alpa_explore.figures.course.planning.stage_table import (
    Cell,
    FirstStage,
    StageTable,
    candidates,
    cells_to_fill,
    stage_table,
)
from alpa_explore.figures.course.states import State, state_layout
from alpa_explore.figures.style import HEAT, HOVER_TEXT, OKABE_ITO, empty, faint, hatching, ink
from alpa_explore.numerics.arrays import Floats

_CLEAR = "rgba(0,0,0,0)"
_MARK_PIXELS = 34
"""Of a circle around the number of a cell."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Problem:
    """What the figure is about."""

    latency: Floats
    devices_of: Sequence[int]
    total_devices: int
    num_microbatches: int
    shapes: Sequence[str]
    tables: Sequence[StageTable]
    """Of every candidate for t_max."""
    cells: Mapping[Cell, Sequence[FirstStage]]

    @property
    def totals(self) -> list[float]:
        return [table.total(self.num_microbatches)[0] for table in self.tables]

    def seconds(self, cell: Cell, stage: FirstStage) -> float:
        """Of a first stage of a cell."""
        return float(self.latency[cell[1], stage.end, stage.shape, cell[0] - 1])

    def stage_words(self, cell: Cell, stage: FirstStage) -> str:
        """'layers 0–1 on 1×2'."""
        first, last = cell[1], stage.end - 1
        return f"{f'layers {first}–{last}' if last > first else f'layer {first}'} on {self.shapes[stage.shape]}"


def stage_table_player(
    latency: Floats, devices_of: Sequence[int], total_devices: int, num_microbatches: int, shapes: Sequence[str]
) -> InteractiveFigure:
    """Above, T of every candidate for t_max; below F, a panel for each number of stages. One slider moves t_max, the
    other fills the table for it, cell by cell, up to T. `shapes` are the names of the submeshes."""
    layers, _, _, places = latency.shape
    problem = _Problem(
        latency=latency,
        devices_of=devices_of,
        total_devices=total_devices,
        num_microbatches=num_microbatches,
        shapes=shapes,
        tables=[stage_table(latency, devices_of, total_devices, t) for t in candidates(latency)],
        cells=cells_to_fill(layers, places, devices_of, total_devices),
    )
    last = len(problem.cells) + 1
    best = int(np.argmin(problem.totals))
    shown = _shown(problem, best, tuning.COURSE_STATES // (last + 1))

    def draw(t_max: float, step: int, *, theme: str = "light") -> go.Figure:
        number = next(n for n, table in enumerate(problem.tables) if table.t_max == t_max)
        return _figure(problem, number, step, number == best, theme)

    return InteractiveFigure(
        draw=draw,
        label="The table of the dynamic program of Eq. 3 for one t_max, filled cell by cell",
        controls=(
            Control(
                name="t_max",
                label="t_max",
                values=tuple(problem.tables[n].t_max for n in shown),
                texts=tuple(units.seconds(problem.tables[n].t_max) for n in shown),
                start=problem.tables[best].t_max,
            ),
            Control(
                name="step",
                label="Cells filled",
                values=tuple(range(last + 1)),
                texts=(*map(str, range(last)), "all: T"),
                start=last,
                plays=True,
            ),
        ),
    )


def _shown(problem: _Problem, best: int, most: int) -> list[int]:
    """The candidates on the slider: the least of those that give one table, from the last with which there is no
    partition; at most `most`."""
    tables = [[table.values[cell] for cell in problem.cells] for table in problem.tables]
    changes = [n for n in range(1, len(tables)) if tables[n] != tables[n - 1]]
    first = next(n for n, total in enumerate(problem.totals) if math.isfinite(total))
    after = [n for n in changes if n >= first]
    step = max(1, math.ceil(len(after) / (most - 2)))
    return sorted({max([n for n in changes if n < first], default=0), *after[::step], best})


def _figure(problem: _Problem, number: int, step: int, best: bool, theme: str) -> go.Figure:
    """One state: the first `step` cells are filled; one step after the last cell, T is read."""
    table, cells = problem.tables[number], list(problem.cells)
    totals = problem.totals
    scale, unit = units.seconds_axis(max(t for t in totals if math.isfinite(t)))
    done = step > len(cells)
    now = cells[step - 1] if 0 < step <= len(cells) else None
    total, stages = table.total(problem.num_microbatches)
    sentence = (
        _result_words(problem, table, best)
        if done
        else f"t_max {units.seconds(table.t_max)}: {_words(problem, table, now)}."
        if now
        else f"t_max {units.seconds(table.t_max)}: all cells are empty. F(0, {table.values.shape[1] - 1}, 0) = 0: no "
        "layers are left, no stages and no devices."
    )
    way = table.way(stages, problem.devices_of) if done and stages else []
    traces = [_curve(problem, totals, scale, unit, theme), *_now(table, total, best, done, totals, scale, theme)]
    for panel in range(problem.latency.shape[3]):
        traces += _panel(problem, table, cells[:step], panel, theme)
        traces += [_frames(now, way, panel), _circles(problem, table, now, panel)]
    finite = [t.t_max for t, value in zip(problem.tables, totals, strict=True) if math.isfinite(value)]
    low = 1e3 * min(0.9 * finite[0], 0.98 * table.t_max)
    layout = state_layout(
        State(label="", sentence=sentence, traces=()),
        theme=theme,
        height=640,
        showlegend=False,
        meta={"least_width": tuning.LABELLED_PIXELS},
        barmode="overlay",
        xaxis={"anchor": "y", "title": {"text": "t_max (ms)", "standoff": 4}, "range": [low, 1.04e3 * finite[-1]]},
        yaxis={
            "domain": [0.68, 1.0],
            "title": {"text": f"T ({unit})"},
            "range": [0.8 * min(totals) / scale, 2.0 * min(totals) / scale],
        },
        **_panel_axes(problem),
    )
    return go.Figure(data=traces, layout=layout)


def _result_words(problem: _Problem, table: StageTable, best: bool) -> str:
    total, stages = table.total(problem.num_microbatches)
    first = f"t_max {units.seconds(table.t_max)}"
    if not stages:
        return f"{first}: no partition on {problem.total_devices} devices keeps every stage under it."
    others = problem.num_microbatches - 1
    return (
        f"{first}: Σt {units.seconds(total - others * table.t_max)} + {others} × {units.seconds(table.t_max)} = "
        f"{units.seconds(total)} in {stages} stage{'s' * (stages > 1)}{', the least of all' if best else ''}."
    )


def _words(problem: _Problem, table: StageTable, cell: Cell) -> str:
    """'F(2, 0, 4) = 548 ms: layers 0–1 on 1×2, 275 ms, + F(1, 2, 2), 273 ms; …', or why the cell is infinite."""
    tried, name = problem.cells[cell], f"F{cell}"
    limits = Counter(_limit(problem, table, cell, stage) for stage in tried)
    allowed = limits.pop("", 0)
    refused = ", ".join(f"{count} {'is' if count == 1 else 'are'} {limit}" for limit, count in limits.items())
    if allowed:
        end, shape = table.steps[cell]
        stage = next(stage for stage in tried if (stage.end, stage.shape) == (end, shape))
        rest = float(table.values[stage.rest])
        among = f"; the least of {allowed} sums" if allowed > 1 else ""
        return (
            f"{name} = {units.seconds(float(table.values[cell]))}: {problem.stage_words(cell, stage)}, "
            f"{units.seconds(problem.seconds(cell, stage))}, + F{stage.rest} = {units.seconds(rest) if rest else '0'}"
            f"{among}{f' ({refused})' if refused else ''}"
        )
    if len(tried) > 1:
        return f"{name} = ∞: of {len(tried)} first stages, {refused}"
    (stage,) = tried
    took = problem.seconds(cell, stage)
    if not math.isfinite(took):
        why = "does not fit in memory"
    elif took > table.t_max:
        why = f"takes {units.seconds(took)}, more than t_max"
    else:
        why = f"is followed by F{stage.rest} = ∞"
    return f"{name} = ∞: the only first stage ({problem.stage_words(cell, stage)}) {why}"


def _limit(problem: _Problem, table: StageTable, cell: Cell, stage: FirstStage) -> str:
    """Why a first stage is refused; '' if it is allowed."""
    seconds = problem.seconds(cell, stage)
    if not math.isfinite(seconds):
        return "too large for the memory"
    if seconds > table.t_max:
        return "slower than t_max"
    return "" if math.isfinite(table.values[stage.rest]) else "followed by ∞"


def _curve(problem: _Problem, totals: Sequence[float], scale: float, unit: str, theme: str) -> dict[str, Any]:
    pairs = [(table.t_max, total) for table, total in zip(problem.tables, totals, strict=True) if math.isfinite(total)]
    return {
        "type": "scatter",
        "x": [round(1e3 * t, 3) for t, _ in pairs],
        "y": [round(total / scale, 4) for _, total in pairs],
        "mode": "markers+lines",
        "line": {"color": faint(theme), "width": 1},
        "marker": {"color": ink(theme), "size": 6},
        "hovertemplate": f"t_max %{{x:.4g}} ms: T = %{{y:.4g}} {unit}<extra></extra>",
    }


def _now(
    table: StageTable, total: float, best: bool, done: bool, totals: Sequence[float], scale: float, theme: str
) -> list[dict[str, Any]]:
    """Where t_max stands, and T once the table is full."""
    at, found = round(1e3 * table.t_max, 3), done and math.isfinite(total)
    line = {
        "type": "scatter",
        "x": [at, at],
        "y": [0.0, 3 * min(totals) / scale],
        "mode": "lines",
        "line": {"color": OKABE_ITO[5], "width": 2, "dash": "dash"},
        "hoverinfo": "skip",
    }
    star = {
        "type": "scatter",
        "x": [at] if found else [],
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
    return [line, star]


def _axis(kind: str, panel: int) -> str:
    """The name of an axis of a panel: x2, y2 for the first."""
    return f"{kind}{panel + 2}"


def _panel_axes(problem: _Problem) -> dict[str, Any]:
    layers, _, _, places = problem.latency.shape
    gap = 0.03
    size = (1 - gap * (places - 1)) / places
    axes: dict[str, Any] = {}
    for panel in range(places):
        left = panel * (size + gap)
        axes[f"xaxis{panel + 2}"] = {
            "domain": [left, left + size],
            "anchor": _axis("y", panel),
            "dtick": 1,
            "range": [0.5, problem.total_devices + 0.5],
            "title": {"text": f"d<br><b>s = {panel + 1}</b>", "standoff": 2},
            "showgrid": False,
            "zeroline": False,
        }
        axes[f"yaxis{panel + 2}"] = {
            "domain": [0.0, 0.52],
            "anchor": _axis("x", panel),
            "dtick": 1,
            "range": [layers - 0.5, -0.5],
            "title": {"text": "k, first layer" if panel == 0 else ""},
            "showticklabels": panel == 0,
            "showgrid": False,
            "zeroline": False,
        }
    return axes


def _panel(
    problem: _Problem, table: StageTable, filled: Sequence[Cell], panel: int, theme: str
) -> list[dict[str, Any]]:
    """The cells of one number of stages: those with a number, those that are never needed (grey), and those that are
    empty or infinite (hatched)."""
    layers, most = table.values.shape[1] - 1, problem.total_devices
    z: list[list[float | None]] = [[None] * most for _ in range(layers)]
    numbers, words = [[""] * most for _ in range(layers)], [[""] * most for _ in range(layers)]
    unneeded, left = [], []
    for k, d in product(range(layers), range(1, most + 1)):
        cell = (panel + 1, k, d)
        if cell not in problem.cells:
            unneeded.append((k, d, "", ""))
        elif cell not in filled:
            left.append((k, d, "", f"F{cell} is not filled yet"))
        elif cell not in table.steps:
            left.append((k, d, "∞", _words(problem, table, cell)))
        else:
            z[k][d - 1] = round(1e3 * float(table.values[cell]), 4)
            numbers[k][d - 1] = _milliseconds(float(table.values[cell]))
            words[k][d - 1] = _words(problem, table, cell)
    axes = {"xaxis": _axis("x", panel), "yaxis": _axis("y", panel)}
    heat = {
        "type": "heatmap",
        "x": list(range(1, most + 1)),
        "y": list(range(layers)),
        "z": z,
        "zmin": 0,
        "zmax": 1e3 * max(float(t.values[cell]) for t in problem.tables for cell in problem.cells if cell in t.steps),
        "xgap": 2,
        "ygap": 2,
        "colorscale": HEAT,
        "showscale": False,
        "text": numbers,
        "texttemplate": "%{text}",
        "textfont": {"size": 12},
        "hovertext": words,
        "hovertemplate": HOVER_TEXT,
        "hoverongaps": False,
    }
    grey = _boxes(unneeded, {"color": empty(theme)}) | {
        "hovertemplate": "not needed: no partition of all layers on all devices comes here<extra></extra>"
    }
    marker = {
        "color": [faint(theme) if text else _CLEAR for *_, text, _ in left],
        "line": {"width": 1, "color": faint(theme)},
        "pattern": hatching("/") | {"shape": ["/" if text else "" for *_, text, _ in left], "solidity": 0.2},
    }
    open_cells = _boxes(left, marker) | {
        "text": [f"<b>{text}</b>" if text else "" for *_, text, _ in left],
        "textposition": "inside",
        "insidetextanchor": "middle",
        "textangle": 0,
        "constraintext": "none",
        "insidetextfont": {"size": 18, "color": ink(theme)},
        "hovertext": [text for *_, text in left],
        "hovertemplate": HOVER_TEXT,
    }
    return [trace | axes for trace in (heat, grey, open_cells)]


def _boxes(cells: Sequence[tuple[int, int, str, str]], marker: dict[str, Any]) -> dict[str, Any]:
    """A box in the place of each (k, d, …)."""
    return {
        "type": "bar",
        "x": [d for _, d, *_ in cells],
        "base": [k - 0.46 for k, *_ in cells],
        "y": [0.92] * len(cells),
        "width": 0.92,
        "marker": marker,
    }


def _milliseconds(seconds: float) -> str:
    """In three digits, without an exponent."""
    return units.number(1e3 * seconds)


def _frames(now: Cell | None, way: Sequence[Cell], panel: int) -> dict[str, Any]:
    """Thick edges around the cell that is filled, or around those of the best partition."""
    framed = [(k, d, "", "") for s, k, d in ([now] if now is not None else way) if s == panel + 1]
    look = {"color": _CLEAR, "line": {"width": 4, "color": OKABE_ITO[5]}}
    return _boxes(framed, look) | {"hoverinfo": "skip", "xaxis": _axis("x", panel), "yaxis": _axis("y", panel)}


def _circles(problem: _Problem, table: StageTable, now: Cell | None, panel: int) -> dict[str, Any]:
    """Circles around the cells that are read, a thick one where the least sum comes from."""
    circles: dict[Cell, int] = {}
    if now is not None and now[0] == panel + 2:
        for stage in problem.cells[now]:
            if problem.seconds(now, stage) <= table.t_max:
                least = table.steps.get(now) == (stage.end, stage.shape)
                circles[stage.rest] = max(circles.get(stage.rest, 0), 5 if least else 2)
    return {
        "type": "scatter",
        "x": [d for _, _, d in circles],
        "y": [k for _, k, _ in circles],
        "mode": "markers",
        "marker": {
            "symbol": "circle-open",
            "size": _MARK_PIXELS,
            "color": OKABE_ITO[5],
            "line": {"width": list(circles.values())},
        },
        "hoverinfo": "skip",
        "xaxis": _axis("x", panel),
        "yaxis": _axis("y", panel),
    }
