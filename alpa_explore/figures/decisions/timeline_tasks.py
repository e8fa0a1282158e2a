"""The tasks of one timeline as a Gantt chart, or, where they are too many, how busy each submesh is over time.

A row of the chart is a submesh. Idle time is hatched, sends lead from row to row, and the critical path is underlined.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import plotly.graph_objects as go

from alpa_explore import units
from alpa_explore.figures import tuning
from alpa_explore.figures.decisions.timeline_chart import TimelineChart
from alpa_explore.figures.decisions.timeline_sampling import busy_share, rounded
from alpa_explore.figures.keys import key
from alpa_explore.figures.style import HEAT, OKABE_ITO, empty, faint, hatching, ink
from alpa_explore.numerics.arrays import Ints
from alpa_explore.plans.report.timeline_tables import ACTION_NAMES
from alpa_explore.schedules.task import Action

Point: TypeAlias = tuple[float, float]
"""Seconds, row of the chart."""
Segment: TypeAlias = tuple[Point, Point]

_LOOKS = {
    Action.FORWARD: (0, ""),
    Action.BACKWARD: (1, "/"),
    Action.BACKWARD_INPUT: (1, "/"),
    Action.BACKWARD_WEIGHT: (2, "."),
    Action.UPDATE: (3, "x"),
}
"""Place of the colour in OKABE_ITO, and hatching."""
_BAR_WIDTH = 0.72


def draw_tasks(chart: TimelineChart) -> None:
    """Tasks as bars where the view has few enough of them, else the busy share of each submesh over time."""
    timeline = chart.timeline
    in_view = (timeline.end_seconds > chart.view[0]) & (timeline.start_seconds < chart.view[1])
    if int(in_view.sum()) > tuning.TIMELINE_TASKS:
        _busy_shares(chart)
        return
    schedule = timeline.schedule
    submesh_of_task = np.array(schedule.submesh_of_stage)[schedule.stages]
    visible = in_view & (timeline.end_seconds > timeline.start_seconds)
    _idle_bars(chart)
    numbered = int(visible.sum()) <= tuning.TIMELINE_NUMBERED_TASKS
    for action in _LOOKS:
        tasks = np.flatnonzero(visible & (schedule.actions == action))
        if len(tasks):
            _action_bars(chart, action, tasks, submesh_of_task[tasks], numbered=numbered)
    _collective_bars(chart, np.flatnonzero(visible), submesh_of_task)
    _sends(chart, np.flatnonzero(visible), submesh_of_task)
    _critical_path(chart, submesh_of_task)


def _action_bars(chart: TimelineChart, action: Action, tasks: Ints, submeshes: Ints, *, numbered: bool) -> None:
    """The tasks of one action; `submeshes` is the row of each, `numbered` writes their microbatches on them."""
    timeline = chart.timeline
    color, pattern = _LOOKS[action]
    named = [timeline.schedule.task(i) for i in tasks.tolist()]
    seconds = timeline.end_seconds[tasks] - timeline.start_seconds[tasks]
    chart.add(
        go.Bar(
            x=rounded(seconds / chart.scale),
            base=rounded(timeline.start_seconds[tasks] / chart.scale),
            y=submeshes.tolist(),
            orientation="h",
            width=_BAR_WIDTH,
            name=ACTION_NAMES[action],
            legendgroup=ACTION_NAMES[action],
            showlegend=chart.legend,
            insidetextanchor="middle",
            marker={
                "color": OKABE_ITO[color],
                "pattern": hatching("") | {"shape": pattern, "fgopacity": 0.35, "size": 6},
                "line": {"width": 0.5, "color": ink(chart.theme)},
            },
            text=[str(t.microbatch) for t in named] if numbered and action is not Action.UPDATE else None,
            textangle=0,
            constraintext="both",
            textposition="inside",
            customdata=[
                [str(t), units.seconds(s), key(stage=submesh)]
                for t, s, submesh in zip(named, seconds.tolist(), submeshes.tolist(), strict=True)
            ],
            hovertemplate="%{customdata[0]}: %{customdata[1]}<extra></extra>",
        )
    )


def _idle_bars(chart: TimelineChart) -> None:
    """Every gap between two tasks of a submesh, before its first and after its last."""
    timeline = chart.timeline
    gaps: list[tuple[int, float, float]] = []
    for p in range(timeline.schedule.num_submeshes):
        tasks = timeline.submesh(p)
        ends = np.concatenate([[0.0], timeline.end_seconds[tasks]])
        starts = np.concatenate([timeline.start_seconds[tasks], [timeline.makespan_seconds]])
        longer = np.flatnonzero(starts - ends > 1e-9 * timeline.makespan_seconds)
        gaps += [(p, float(ends[g]), float(starts[g])) for g in longer]
    visible = [(p, start, end) for p, start, end in gaps if end > chart.view[0] and start < chart.view[1]]
    hatched = {"shape": "\\", "fgcolor": faint(chart.theme), "fgopacity": 0.45, "size": 8, "solidity": 0.15}
    chart.add(
        go.Bar(
            x=rounded([(end - start) / chart.scale for _, start, end in visible]),
            base=rounded([start / chart.scale for _, start, _ in visible]),
            y=[p for p, _, _ in visible],
            orientation="h",
            width=_BAR_WIDTH,
            name="idle",
            legendgroup="idle",
            showlegend=chart.legend,
            customdata=[[units.seconds(end - start), key(stage=p)] for p, start, end in visible],
            marker={"color": empty(chart.theme), "line": {"width": 0}, "pattern": hatched},
            hovertemplate="submesh %{y} is idle for %{customdata[0]}<extra></extra>",
        )
    )


def _collective_bars(chart: TimelineChart, visible: Ints, submesh_of_task: Ints) -> None:
    """The seconds of a task that its collectives take, as a thin bar at its end."""
    timeline, schedule = chart.timeline, chart.timeline.schedule
    seconds = [timeline.times[schedule.stages[i]].collective_seconds(Action(int(schedule.actions[i]))) for i in visible]
    drawn = [(int(i), s) for i, s in zip(visible, seconds, strict=True) if s > 0]
    if not drawn:
        return
    chart.add(
        go.Bar(
            x=rounded([s / chart.scale for _, s in drawn]),
            orientation="h",
            width=0.2,
            offset=-0.36,
            base=rounded([(timeline.end_seconds[i] - s) / chart.scale for i, s in drawn]),
            y=[int(submesh_of_task[i]) for i, _ in drawn],
            name="collectives (part of a task)",
            legendgroup="collectives",
            showlegend=chart.legend,
            marker={"color": OKABE_ITO[5], "line": {"width": 0}},
            customdata=[units.seconds(s) for _, s in drawn],
            hovertemplate="collectives: %{customdata}<extra></extra>",
        )
    )


def _sends(chart: TimelineChart, visible: Ints, submesh_of_task: Ints) -> None:
    sending = [int(i) for i in visible if chart.timeline.link_of(int(i)) >= 0]
    segments = [_send_segment(chart, i, submesh_of_task) for i in sending]
    _segments(chart, segments, "send", {"color": faint(chart.theme), "width": 1})


def _critical_path(chart: TimelineChart, submesh_of_task: Ints) -> None:
    timeline = chart.timeline
    segments: list[Segment] = []
    for step in timeline.critical_path():
        i = step.task
        if step.send:
            segments.append(_send_segment(chart, i, submesh_of_task))
        else:
            y = float(submesh_of_task[i]) + 0.42
            segments.append(((float(timeline.start_seconds[i]), y), (float(timeline.end_seconds[i]), y)))
    visible = [s for s in segments if s[1][0] > chart.view[0] and s[0][0] < chart.view[1]]
    _segments(chart, visible, "critical path", {"color": ink(chart.theme), "width": 3})


def _send_segment(chart: TimelineChart, i: int, submesh_of_task: Ints) -> Segment:
    """From the row of the sending task `i` to the row of the stage that receives."""
    timeline, schedule = chart.timeline, chart.timeline.schedule
    step = 1 if schedule.actions[i] == Action.FORWARD else -1
    target = schedule.submesh_of_stage[int(schedule.stages[i]) + step]
    return (
        (float(timeline.send_start_seconds[i]), float(submesh_of_task[i])),
        (float(timeline.send_end_seconds[i]), float(target)),
    )


def _segments(chart: TimelineChart, segments: Sequence[Segment], name: str, line: dict[str, Any]) -> None:
    """Line segments as one trace."""
    if not segments:
        return
    x: list[float | None] = []
    y: list[float | None] = []
    for (x0, y0), (x1, y1) in segments:
        x += [*rounded([x0 / chart.scale, x1 / chart.scale]), None]
        y += [y0, y1, None]
    chart.add(
        go.Scatter(
            x=x, y=y, mode="lines", line=line, name=name, legendgroup=name, showlegend=chart.legend, hoverinfo="skip"
        )
    )


def _busy_shares(chart: TimelineChart) -> None:
    """How busy each submesh is in each of some hundred equal intervals of the view."""
    timeline = chart.timeline
    edges = np.linspace(*chart.view, tuning.TIMELINE_INTERVALS + 1)
    busy = np.stack([busy_share(timeline, p, edges) for p in range(timeline.schedule.num_submeshes)])
    chart.add(
        go.Heatmap(
            x=rounded((edges[:-1] + edges[1:]) / 2 / chart.scale),
            y=list(range(len(busy))),
            z=[rounded(row) for row in busy],
            zmin=0,
            zmax=1,
            colorscale=HEAT,
            showscale=chart.legend,
            colorbar={"title": "busy", "tickformat": ".0%", "len": 0.3, "y": 1, "yanchor": "top", "thickness": 12},
            hovertemplate="submesh %{y}: %{z:.0%} busy<extra></extra>",
            name="busy",
        )
    )
