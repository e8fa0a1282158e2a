"""The table of Eq. 3 for a t_max that a slider moves, filled cell by cell by another one, up to T (`stage_table`)."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np

from alpa_explore import units
from alpa_explore.figures import tuning
from alpa_explore.figures.course.interactive import Control, InteractiveFigure, steady, with_controls
from alpa_explore.figures.marks import axis, bars, cells, inside, line, points
from alpa_explore.figures.style import OKABE_ITO, Drawing, Trace, empty, faint, hatching, heat_scale, ink
from alpa_explore.numerics.arrays import Floats

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


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstStage:
    """One of the stages over which a cell takes the least."""

    end: int
    shape: int
    """Index of its submesh."""
    rest: Cell
    """The cell that is read for the stages after it."""


def cells_to_fill(
    layers: int, places: int, devices_of: Sequence[int], total_devices: int
) -> dict[Cell, list[FirstStage]]:
    """The cells through which a partition of all layers on all devices can go, in the order in which they are filled,
    and the first stages that each tries. Other cells are never needed."""
    possible: dict[Cell, list[FirstStage]] = {(0, layers, 0): []}
    for s, k, d in product(range(1, places + 1), reversed(range(layers)), range(1, total_devices + 1)):
        tried = [
            FirstStage(end=i, shape=shape, rest=(s - 1, i, d - devices))
            for i in range(k + 1, layers + 1)
            for shape, devices in enumerate(devices_of)
            if (s - 1, i, d - devices) in possible
        ]
        if tried:
            possible[s, k, d] = tried
    needed = {(s, 0, total_devices) for s in range(1, places + 1)}
    for cell in reversed(possible):  # more stages come later: a cell stands behind all that it reads
        if cell in needed:
            needed.update(stage.rest for stage in possible[cell])
    return {cell: tried for cell, tried in possible.items() if cell in needed and cell[0]}


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
    last, best = len(problem.cells) + 1, int(np.argmin(problem.totals))
    shown = [problem.tables[n].t_max for n in _shown(problem, best, tuning.COURSE_STATES // (last + 1))]

    texts, steps = tuple(units.seconds(t) for t in shown), (*map(str, range(last)), "all: T")
    slider = Control("t_max", "t_max", tuple(shown), problem.tables[best].t_max, texts)
    filled = Control("step", "Cells filled", tuple(range(last + 1)), last, steps, plays=True)

    @with_controls("The table of the dynamic program of Eq. 3 for one t_max, filled cell by cell", slider, filled)
    def player(t_max: float, step: int) -> Drawing:
        number = next(n for n, table in enumerate(problem.tables) if table.t_max == t_max)
        return _figure(problem, number, step, number == best)

    return player


def _shown(problem: _Problem, best: int, most: int) -> list[int]:
    """The candidates on the slider: the least of those that give one table, from the last with which there is no
    partition; at most `most`."""
    tables = [[table.values[cell] for cell in problem.cells] for table in problem.tables]
    changes = [n for n in range(1, len(tables)) if tables[n] != tables[n - 1]]
    first = next(n for n, total in enumerate(problem.totals) if math.isfinite(total))
    after = [n for n in changes if n >= first]
    step = max(1, math.ceil(len(after) / (most - 2)))
    return sorted({max([n for n in changes if n < first], default=0), *after[::step], best})


def _figure(problem: _Problem, number: int, step: int, best: bool) -> Drawing:
    """One state: the first `step` cells are filled; one step after the last cell, T is read."""
    table, order, totals = problem.tables[number], list(problem.cells), problem.totals
    scale, unit = units.seconds_axis(max(t for t in totals if math.isfinite(t)))
    done = step > len(order)
    now = order[step - 1] if 0 < step <= len(order) else None
    total, stages = table.total(problem.num_microbatches)
    words = (
        f"{_words(problem, table, now)}."
        if now
        else f"all cells are empty. F(0, {table.values.shape[1] - 1}, 0) = 0: no layers are left, no stages and no "
        "devices."
    )
    if done and not stages:
        words = f"no partition on {problem.total_devices} devices keeps every stage under it."
    elif done:
        others = problem.num_microbatches - 1
        words = (
            f"Σt {units.seconds(total - others * table.t_max)} + {others} × {units.seconds(table.t_max)} = "
            f"{units.seconds(total)} in {stages} stage{'s' * (stages > 1)}{', the least of all' if best else ''}."
        )
    known = [(t.t_max, value) for t, value in zip(problem.tables, totals, strict=True) if math.isfinite(value)]
    x, y = [round(1e3 * t, 3) for t, _ in known], [round(value / scale, 4) for _, value in known]
    about = f"t_max %{{x:.4g}} ms: T = %{{y:.4g}} {unit}"
    curve = {"mode": "markers+lines", "marker": {"color": ink, "size": 6}, "hover": about}
    at, found = round(1e3 * table.t_max, 3), done and math.isfinite(total)
    star = ([at], [total / scale]) if found else ([], [])
    look = (OKABE_ITO[0], "star") if best else (OKABE_ITO[5], "diamond")
    traces = [
        line(x, y, faint, 1, **curve),
        line([at, at], [0.0, 3 * min(totals) / scale], OKABE_ITO[5], 2, "dash"),
        points(*star, *look, 17, edge=(ink, 1)),
    ]
    way = table.way(stages, problem.devices_of) if done and stages else []
    framed = [now] if now is not None else way
    for panel in range(problem.latency.shape[3]):
        of_panel = [
            *_panel(problem, table, order[:step], panel),
            # Thick edges around the cell that is filled, or around those of the best partition.
            _boxes([(k, d) for s, k, d in framed if s == panel + 1], _CLEAR, (OKABE_ITO[5], 4)),
            _circles(problem, table, now, panel),
        ]
        traces += [trace | {"xaxis": f"x{panel + 2}", "yaxis": f"y{panel + 2}"} for trace in of_panel]
    low = 1e3 * min(0.9 * known[0][0], 0.98 * table.t_max)
    sentence = f"t_max {units.seconds(table.t_max)}: {words}"
    return steady(
        traces,
        sentence,
        height=640,
        showlegend=False,
        meta={"least_width": tuning.LABELLED_PIXELS},
        barmode="overlay",
        xaxis=axis("t_max (ms)", (low, 1.04e3 * known[-1][0]), standoff=4, anchor="y"),
        yaxis=axis(f"T ({unit})", (0.8 * min(totals) / scale, 2.0 * min(totals) / scale), domain=[0.68, 1.0]),
        **_panel_axes(problem),
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


def _panel_axes(problem: _Problem) -> dict[str, Any]:
    layers, _, _, places = problem.latency.shape
    gap = 0.03
    size = (1 - gap * (places - 1)) / places
    axes: dict[str, Any] = {}
    plain = {"dtick": 1, "bare": True}
    for panel in range(places):
        left, number = panel * (size + gap), panel + 2
        across, down = (0.5, problem.total_devices + 0.5), (layers - 0.5, -0.5)
        place, title = {"domain": [left, left + size], "anchor": f"y{number}"}, f"d<br><b>s = {panel + 1}</b>"
        axes[f"xaxis{number}"] = axis(title, across, standoff=2, **place, **plain)
        named = {"domain": [0.0, 0.52], "anchor": f"x{number}", "showticklabels": panel == 0}
        axes[f"yaxis{number}"] = axis("k, first layer" if panel == 0 else "", down, **named, **plain)
    return axes


def _panel(problem: _Problem, table: StageTable, filled: Sequence[Cell], panel: int) -> list[Trace]:
    """The cells of one number of stages: those with a number, those that are never needed (grey), and those that are
    empty or infinite (hatched)."""
    layers, most = table.values.shape[1] - 1, problem.total_devices
    z: list[list[float | None]] = [[None] * most for _ in range(layers)]
    numbers, words = [[""] * most for _ in range(layers)], [[""] * most for _ in range(layers)]
    unneeded, left = [], []
    for k, d in product(range(layers), range(1, most + 1)):
        cell = (panel + 1, k, d)
        if cell not in problem.cells:
            unneeded.append((k, d))
        elif cell not in filled:
            left.append((k, d, "", f"F{cell} is not filled yet"))
        elif cell not in table.steps:
            left.append((k, d, "∞", _words(problem, table, cell)))
        else:
            z[k][d - 1] = round(1e3 * float(table.values[cell]), 4)
            numbers[k][d - 1] = units.number(1e3 * float(table.values[cell]))
            words[k][d - 1] = _words(problem, table, cell)
    largest = max(float(t.values[cell]) for t in problem.tables for cell in problem.cells if cell in t.steps)
    colors = {"zmin": 0, "zmax": 1e3 * largest, "colorscale": heat_scale, "showscale": False}
    looks = {"text": numbers, "texttemplate": "%{text}", "textfont": {"size": 12}, "hover": words, **colors}
    heat = cells(list(range(1, most + 1)), list(range(layers)), z, gap=2, **looks)
    nowhere = "not needed: no partition of all layers on all devices comes here"
    shapes = ["/" if text else "" for *_, text, _ in left]
    written = inside([f"<b>{text}</b>" if text else "" for *_, text, _ in left], ink, 18, whole=True)
    grounds = [faint if text else _CLEAR for *_, text, _ in left]
    open_cells = _boxes(left, grounds, (faint, 1), hover=[text for *_, text in left], **written)
    open_cells["marker"]["pattern"] = hatching("/") | {"shape": shapes, "solidity": 0.2}
    return [heat, _boxes(unneeded, empty, None, hover=nowhere), open_cells]


def _boxes(places: Sequence[tuple[Any, ...]], color: Any, edge: Any, **looks: Any) -> Trace:
    """A box in the place of each (k, d, …)."""
    base = [k - 0.46 for k, *_ in places]
    return bars([d for _, d, *_ in places], [0.92] * len(places), color, edge=edge, base=base, width=0.92, **looks)


def _circles(problem: _Problem, table: StageTable, now: Cell | None, panel: int) -> Trace:
    """Circles around the cells that are read, a thick one where the least sum comes from."""
    circles: dict[Cell, int] = {}
    if now is not None and now[0] == panel + 2:
        for stage in problem.cells[now]:
            if problem.seconds(now, stage) <= table.t_max:
                least = table.steps.get(now) == (stage.end, stage.shape)
                circles[stage.rest] = max(circles.get(stage.rest, 0), 5 if least else 2)
    x, y, widths = [d for *_, d in circles], [k for _, k, _ in circles], list(circles.values())
    return points(x, y, OKABE_ITO[5], "circle-open", _MARK_PIXELS, edge=(None, widths))
