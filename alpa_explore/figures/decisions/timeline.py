"""One iteration as a Gantt chart with the memory below it, for one schedule or several side by side.

A row is a submesh; what it waits is hatched, sends lead from row to row, and the critical path is underlined. A chart
of more than some hundred bars is not drawn bar by bar: it shows how busy each submesh is over time, and `window` looks
closer.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Literal, TypeAlias

import numpy as np
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from alpa_explore import units
from alpa_explore.figures.keys import key
from alpa_explore.figures.style import HEAT, OKABE_ITO, dress, empty, faint, hatching, ink, lines, stage_color
from alpa_explore.numerics.arrays import Floats
from alpa_explore.plans.plan import Plan
from alpa_explore.plans.report.tables import Row
from alpa_explore.plans.report.timeline_tables import ACTION_NAMES, comparison_table, submeshes_table
from alpa_explore.plans.report.timeline_tables import timeline_sentence as one_schedule
from alpa_explore.plans.timeline import plan_timeline
from alpa_explore.schedules.simulator.memory import memory_curve
from alpa_explore.schedules.simulator.timeline import Timeline
from alpa_explore.schedules.task import Action

Window: TypeAlias = "tuple[float, float] | Literal['whole', 'start', 'middle', 'end']"
"""From, to in shares of the longest makespan; or a part that is short enough to be drawn task by task."""
Span: TypeAlias = tuple[float, float]
"""From, to in seconds."""

MOST_BARS = 700
"""Tasks that are drawn one by one; of more their share of time is."""
_BINS = 240
_MOST_CURVES = 8
"""Submeshes with a curve of their own in the memory chart, the fullest ones."""
_LOOKS = {
    Action.FORWARD: (0, ""),
    Action.BACKWARD: (1, "/"),
    Action.BACKWARD_INPUT: (1, "/"),
    Action.BACKWARD_WEIGHT: (2, "."),
    Action.UPDATE: (3, "x"),
}
"""Place of the colour in OKABE_ITO, and hatching."""
_PARTS = (
    ("weights", "weight_bytes"),
    ("gradients", "gradient_bytes"),
    ("optimizer", "optimizer_bytes"),
    ("activations", "activation_bytes"),
    ("workspace", "workspace_bytes"),
)


def timeline_figure(
    plan: Plan,
    schedules: Sequence[str] = ("1f1b",),
    theme: str = "light",
    *,
    window: Window = "whole",
    timelines: Sequence[Timeline] | None = None,
) -> go.Figure:
    """A chart and its memory for each of `schedules`, all on one axis of time. Raises as `plan_timeline` does.

    `timelines` are drawn instead where given.
    """
    drawn = list(timelines) if timelines is not None else [plan_timeline(plan, name) for name in schedules]
    longest = max(t.makespan_seconds for t in drawn)
    view = _view(window, longest, drawn)
    rows = max(t.schedule.num_submeshes for t in drawn)
    chart, memory = max(120, min(26 * rows + 30, 420)), 130
    heights = [chart, memory] * len(drawn)
    gap = 34
    inside = sum(heights) + gap * (len(heights) - 1)
    figure = make_subplots(
        rows=len(heights), cols=1, shared_xaxes="all", row_heights=heights, vertical_spacing=gap / inside
    )
    scale, unit = units.seconds_axis(view[1] - view[0])
    for place, timeline in enumerate(drawn):
        pen = _Pen(figure, timeline, theme, scale, view, row=2 * place + 1, legend=place == 0)
        bars = int(((timeline.end_seconds > view[0]) & (timeline.start_seconds < view[1])).sum())
        if bars <= MOST_BARS:
            pen.tasks()
        else:
            pen.shares()
        pen.memory(plan)
        own = timeline.schedule.num_submeshes
        step = max(1, own // 16)
        axis = {"range": [own - 0.4, -0.6], "tickvals": list(range(0, own, step)), "zeroline": False, "showgrid": False}
        figure.update_yaxes(title=f"submesh<br>{timeline.schedule.name}", row=pen.row, col=1, **axis)
    figure.update_xaxes(range=[view[0] / scale, view[1] / scale], showgrid=False, zeroline=False)
    figure.update_xaxes(title=f"time in the iteration ({unit})", row=len(heights), col=1)
    dress(figure, timeline_sentence(plan, timelines=drawn), theme=theme, height=inside + 150, barmode="overlay")
    return figure.update_layout(margin={"l": 92, "b": 64}, legend={"traceorder": "normal"})


def _view(window: Window, longest: float, timelines: Sequence[Timeline]) -> Span:
    if not isinstance(window, str):
        return window[0] * longest, window[1] * longest
    if window == "whole":
        return 0.0, longest
    width = min(0.25, 0.8 * MOST_BARS / max(len(t.start_seconds) for t in timelines)) * longest
    start = {"start": 0.0, "middle": (longest - width) / 2, "end": longest - width}[window]
    return start, start + width


def timeline_sentence(
    plan: Plan, schedules: Sequence[str] = ("1f1b",), *, timelines: Sequence[Timeline] | None = None
) -> str:
    """What the figure shows for this plan: one schedule in full, or which of several is best."""
    drawn = list(timelines) if timelines is not None else [plan_timeline(plan, name) for name in schedules]
    return one_schedule(plan, drawn[0]) if len(drawn) == 1 else _comparison(plan, drawn)


def timeline_table(
    plan: Plan, schedules: Sequence[str] = ("1f1b",), *, timelines: Sequence[Timeline] | None = None
) -> list[Row]:
    """The same as rows: one a submesh and schedule."""
    drawn = timelines if timelines is not None else [plan_timeline(plan, name) for name in schedules]
    return [{"schedule": t.schedule.name, **row} for t in drawn for row in submeshes_table(plan, t)]


class _Pen:
    """Draws one timeline in rows `row` (tasks) and `row` + 1 (memory) of a figure."""

    def __init__(
        self, figure: go.Figure, timeline: Timeline, theme: str, scale: float, view: Span, *, row: int, legend: bool
    ) -> None:
        self.figure, self.timeline, self.theme = figure, timeline, theme
        self.scale, self.view, self.row, self.legend = scale, view, row, legend

    def add(self, trace: Any, row: int | None = None) -> None:
        self.figure.add_trace(trace, row=self.row if row is None else row, col=1)

    def tasks(self) -> None:
        """Every task as a bar, every wait as a hatched one."""
        timeline, schedule = self.timeline, self.timeline.schedule
        homes = np.array(schedule.submesh_of_stage)[schedule.stages]
        seen = (timeline.end_seconds > self.view[0]) & (timeline.start_seconds < self.view[1])
        seen &= timeline.end_seconds > timeline.start_seconds
        self._waits(homes)
        numbered = int(seen.sum()) <= 200
        for action, (color, pattern) in _LOOKS.items():
            here = np.flatnonzero(seen & (schedule.actions == action))
            if not len(here):
                continue
            tasks = [schedule.task(i) for i in here.tolist()]
            seconds = timeline.end_seconds[here] - timeline.start_seconds[here]
            self.add(
                go.Bar(
                    x=_short(seconds / self.scale),
                    base=_short(timeline.start_seconds[here] / self.scale),
                    y=homes[here].tolist(),
                    orientation="h",
                    width=0.72,
                    name=ACTION_NAMES[action],
                    legendgroup=ACTION_NAMES[action],
                    showlegend=self.legend,
                    insidetextanchor="middle",
                    marker={
                        "color": OKABE_ITO[color],
                        "pattern": hatching("") | {"shape": pattern, "fgopacity": 0.35, "size": 6},
                        "line": {"width": 0.5, "color": ink(self.theme)},
                    },
                    text=[str(t.microbatch) for t in tasks] if numbered and action is not Action.UPDATE else None,
                    textangle=0,
                    constraintext="both",
                    textposition="inside",
                    customdata=[
                        [str(t), units.seconds(s), key(stage=home)]
                        for t, s, home in zip(tasks, seconds.tolist(), homes[here].tolist(), strict=True)
                    ],
                    hovertemplate="%{customdata[0]}: %{customdata[1]}<extra></extra>",
                )
            )
        self._collectives(np.flatnonzero(seen), homes)
        self._sends(np.flatnonzero(seen), homes)
        self._critical(homes)

    def _waits(self, homes: np.ndarray[Any, Any]) -> None:
        timeline = self.timeline
        found: list[tuple[int, float, float]] = []
        for p in range(timeline.schedule.num_submeshes):
            own = timeline.submesh(p)
            ends = np.concatenate([[0.0], timeline.end_seconds[own]])
            starts = np.concatenate([timeline.start_seconds[own], [timeline.makespan_seconds]])
            gaps = np.flatnonzero(starts - ends > 1e-9 * timeline.makespan_seconds)
            found += [(p, float(ends[g]), float(starts[g])) for g in gaps]
        shown = [f for f in found if f[2] > self.view[0] and f[1] < self.view[1]]
        self.add(
            go.Bar(
                x=_short([(b - a) / self.scale for _, a, b in shown]),
                base=_short([a / self.scale for _, a, _ in shown]),
                y=[p for p, _, _ in shown],
                orientation="h",
                width=0.72,
                name="waits",
                legendgroup="waits",
                showlegend=self.legend,
                customdata=[[units.seconds(b - a), key(stage=p)] for p, a, b in shown],
                marker={
                    "color": empty(self.theme),
                    "line": {"width": 0},
                    "pattern": {
                        "shape": "\\",
                        "fgcolor": faint(self.theme),
                        "fgopacity": 0.45,
                        "size": 8,
                        "solidity": 0.15,
                    },
                },
                hovertemplate="submesh %{y} waits %{customdata[0]}<extra></extra>",
            )
        )

    def _collectives(self, seen: np.ndarray[Any, Any], homes: np.ndarray[Any, Any]) -> None:
        timeline, schedule = self.timeline, self.timeline.schedule
        taken = [timeline.times[schedule.stages[i]].collective_seconds(Action(int(schedule.actions[i]))) for i in seen]
        shown = [(int(i), s) for i, s in zip(seen, taken, strict=True) if s > 0]
        if shown:
            self.add(
                go.Bar(
                    x=_short([s / self.scale for _, s in shown]),
                    orientation="h",
                    width=0.2,
                    offset=-0.36,
                    base=_short([(timeline.end_seconds[i] - s) / self.scale for i, s in shown]),
                    y=[int(homes[i]) for i, _ in shown],
                    name="of it collectives",
                    legendgroup="collectives",
                    showlegend=self.legend,
                    marker={"color": OKABE_ITO[5], "line": {"width": 0}},
                    customdata=[units.seconds(s) for _, s in shown],
                    hovertemplate="collectives: %{customdata}<extra></extra>",
                )
            )

    def _sends(self, seen: np.ndarray[Any, Any], homes: np.ndarray[Any, Any]) -> None:
        sending = [int(i) for i in seen if self.timeline.link_of(int(i)) >= 0]
        self._strokes([self._send(i, homes) for i in sending], "send", {"color": faint(self.theme), "width": 1})

    def _critical(self, homes: np.ndarray[Any, Any]) -> None:
        timeline = self.timeline
        strokes = []
        for step in timeline.critical_path():
            i = step.task
            if step.send:
                strokes.append(self._send(i, homes))
            else:
                y = float(homes[i]) + 0.42
                strokes.append(((float(timeline.start_seconds[i]), y), (float(timeline.end_seconds[i]), y)))
        inside = [s for s in strokes if s[1][0] > self.view[0] and s[0][0] < self.view[1]]
        self._strokes(inside, "critical path", {"color": ink(self.theme), "width": 3})

    def _send(self, i: int, homes: np.ndarray[Any, Any]) -> tuple[tuple[float, float], tuple[float, float]]:
        timeline, schedule = self.timeline, self.timeline.schedule
        step = 1 if schedule.actions[i] == Action.FORWARD else -1
        target = schedule.submesh_of_stage[int(schedule.stages[i]) + step]
        return (
            (float(timeline.send_start_seconds[i]), float(homes[i])),
            (float(timeline.send_end_seconds[i]), float(target)),
        )

    def _strokes(
        self, strokes: Sequence[tuple[tuple[float, float], tuple[float, float]]], name: str, line: dict[str, Any]
    ) -> None:
        if not strokes:
            return
        x: list[float | None] = []
        y: list[float | None] = []
        for (x0, y0), (x1, y1) in strokes:
            x += [*_short([x0 / self.scale, x1 / self.scale]), None]
            y += [y0, y1, None]
        self.add(
            go.Scatter(
                x=x, y=y, mode="lines", line=line, name=name, legendgroup=name, showlegend=self.legend, hoverinfo="skip"
            )
        )

    def shares(self) -> None:
        """How busy each submesh is in each of some hundred equal parts of the window."""
        timeline = self.timeline
        edges = np.linspace(*self.view, _BINS + 1)
        busy = np.stack([busy_share(timeline, p, edges) for p in range(timeline.schedule.num_submeshes)])
        self.add(
            go.Heatmap(
                x=_short((edges[:-1] + edges[1:]) / 2 / self.scale),
                y=list(range(len(busy))),
                z=[_short(row) for row in busy],
                zmin=0,
                zmax=1,
                colorscale=HEAT,
                showscale=self.legend,
                colorbar={"title": "busy", "tickformat": ".0%", "len": 0.3, "y": 1, "yanchor": "top", "thickness": 12},
                hovertemplate="submesh %{y}: %{z:.0%} busy<extra></extra>",
                name="busy",
            )
        )

    def memory(self, plan: Plan) -> None:
        """Memory of the fullest submeshes as curves; of the fullest one by what fills it."""
        timeline, capacity = self.timeline, float(plan.cluster.device.memory_bytes)
        curves = [memory_curve(timeline, p) for p in range(timeline.schedule.num_submeshes)]
        order = sorted(range(len(curves)), key=lambda p: -curves[p].peak_bytes)
        full = curves[order[0]]
        y_scale, y_unit = units.bytes_axis(max(capacity, full.peak_bytes))
        row = self.row + 1
        edges = np.linspace(*self.view, _BINS + 1)
        for place, (name, part) in enumerate(_PARTS):
            x, y = largest_between(full.seconds, np.broadcast_to(getattr(full, part), full.seconds.shape), edges)
            self.add(
                go.Scatter(
                    x=_short(x / self.scale),
                    y=_short(y / y_scale),
                    stackgroup=f"memory {row}",
                    mode="lines",
                    line={"width": 0, "shape": "hv", "color": OKABE_ITO[(place + 4) % 8]},
                    name=f"{name} of submesh {order[0]}",
                    showlegend=False,
                    hovertemplate=f"{name}: %{{y:.3g}} {y_unit}<extra></extra>",
                ),
                row,
            )
        for p in order[:_MOST_CURVES]:
            x, y = largest_between(curves[p].seconds, curves[p].total_bytes, edges)
            self.add(
                go.Scatter(
                    x=_short(x / self.scale),
                    y=_short(y / y_scale),
                    mode="lines",
                    name=f"memory of submesh {p}",
                    line={
                        "width": 2,
                        "shape": "hv",
                        "color": stage_color(p, self.theme),
                        "dash": ("solid", "dash", "dot", "dashdot")[p % 4],
                    },
                    showlegend=False,
                    hovertemplate=lines(f"submesh {p}: %{{y:.3g}} {y_unit}") + "<extra></extra>",
                ),
                row,
            )
        self.add(
            go.Scatter(
                x=[self.view[0] / self.scale, self.view[1] / self.scale],
                y=[capacity / y_scale] * 2,
                mode="lines",
                name="memory of a device",
                legendgroup="capacity",
                showlegend=self.legend,
                hoverinfo="skip",
                line={"color": faint(self.theme), "dash": "dash", "width": 2},
            ),
            row,
        )
        self.figure.update_yaxes(title=f"memory ({y_unit})", rangemode="tozero", row=row, col=1)


def busy_share(timeline: Timeline, submesh: int, edges: Floats) -> Floats:
    """Share of each interval between `edges` in which a submesh runs a task."""
    own = timeline.submesh(submesh)
    moments = np.stack([timeline.start_seconds[own], timeline.end_seconds[own]], axis=1).ravel()
    worked = np.cumsum(np.stack([np.zeros(own.stop - own.start), np.diff(moments)[::2]], axis=1).ravel())
    return np.asarray(np.diff(np.interp(edges, moments, worked)) / np.maximum(np.diff(edges), 1e-300))


def largest_between(moments: Floats, values: Floats, edges: Floats) -> tuple[Floats, Floats]:
    """A step curve that goes on from each moment: as it is when it has few steps, else the largest in each interval."""
    keep = np.append(np.diff(moments) > 0, True)  # of several changes at one moment the last
    moments, values = moments[keep], np.asarray(values)[keep]
    if len(moments) <= len(edges):
        before = np.searchsorted(moments, edges[0], side="right") - 1
        inside = slice(max(int(before), 0), int(np.searchsorted(moments, edges[-1], side="right")))
        x = np.append(np.maximum(moments[inside], edges[0]), edges[-1])
        return x, np.append(values[inside], values[inside][-1:])
    at = np.clip(np.searchsorted(moments, edges, side="right") - 1, 0, len(values) - 1)
    largest = [values[a : max(b, a + 1) + 1].max() for a, b in pairwise(at)]
    return edges, np.append(largest, values[at[-1]])


def _short(values: Any) -> list[float]:
    """Five digits are enough on screen, and a page holds many of them."""
    return [float(f"{v:.6g}") for v in np.asarray(values, dtype=np.float64).tolist()]


def _comparison(plan: Plan, timelines: Sequence[Timeline]) -> str:
    rows = comparison_table(plan, timelines)
    fitting = [r for r in rows if r["memory_fraction"] <= 1]
    best = min(fitting or rows, key=lambda r: r["makespan_seconds"])
    which = "fastest that fits" if fitting else "fastest, and none fits"
    told = "; ".join(
        f"{r['schedule']} {units.seconds(r['makespan_seconds'])}, waits {units.percent(r['bubble_fraction'])}, memory "
        f"{units.percent(r['memory_fraction'])}"
        for r in rows
    )
    return f"Of these schedules {best['schedule']} is the {which}: {told}."
