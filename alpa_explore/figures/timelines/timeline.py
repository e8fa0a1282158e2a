"""One iteration as a Gantt chart with the memory below it, for one schedule or several, one below the other.

By default an iteration of many microbatches is shown in three parts at one scale: the warm-up, some steady
microbatches, and the drain. A strip of the whole iteration at the bottom says where they are. `window` shows another
part; one with more than some hundred tasks shows how busy each submesh is over time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import plotly.graph_objects as go

from alpa_explore import units
from alpa_explore.figures.style import layout_of, unchecked
from alpa_explore.figures.timelines.chart import TimelineChart
from alpa_explore.figures.timelines.frame import Frame
from alpa_explore.figures.timelines.memory import draw_memory
from alpa_explore.figures.timelines.overview import overview_traces
from alpa_explore.figures.timelines.parts import Window, shown_parts
from alpa_explore.figures.timelines.tasks import draw_tasks
from alpa_explore.plans.plan import Plan
from alpa_explore.plans.report.tables import Row
from alpa_explore.plans.report.timeline_tables import comparison_table, submeshes_table
from alpa_explore.plans.report.timeline_tables import timeline_sentence as one_schedule
from alpa_explore.plans.timeline import plan_timeline
from alpa_explore.schedules.simulator.timeline import Timeline

_TOOLS_PIXELS = 20
"""`dress` leaves this much for a legend between title and plot, which has its own margin here."""


def timeline_figure(
    plan: Plan,
    schedules: Sequence[str] = ("1f1b",),
    theme: str = "light",
    *,
    window: Window = "parts",
    brush: bool = False,
    timelines: Sequence[Timeline] | None = None,
) -> go.Figure:
    """A chart and its memory for each of `schedules`. Raises as `plan_timeline` does.

    `timelines`, where given, are drawn instead. `brush` is for a front end in which the overview can be dragged over:
    the overview is then always there and says so, and `layout.meta.brush` names its axis.
    """
    drawn = _timelines(plan, schedules, timelines)
    longest = max(t.makespan_seconds for t in drawn)
    scale, unit = units.seconds_axis(longest)
    traces: list[dict[str, Any]] = []
    charts = [
        TimelineChart(plan=plan, timeline=t, theme=theme, scale=scale, parts=parts, number=number, traces=traces)
        for number, (t, parts) in enumerate(zip(drawn, shown_parts(drawn, window), strict=True))
    ]
    byte_axes = []
    for chart in charts:
        draw_tasks(chart)
        byte_axes.append(draw_memory(chart))
    in_part = sum(part.end - part.start for part in charts[0].parts) < (1 - 1e-9) * longest
    frame = Frame(charts=charts, overview=in_part or brush)
    if frame.overview:
        traces += overview_traces(charts[0], *frame.overview_axes)
    layout = _dressed(frame, timeline_sentence(plan, timelines=drawn), theme)
    return unchecked(traces, layout | frame.layout(unit, byte_axes, brush=brush))


def timeline_sentence(
    plan: Plan, schedules: Sequence[str] = ("1f1b",), *, timelines: Sequence[Timeline] | None = None
) -> str:
    """What the figure shows for this plan: one schedule in full, or which of several is best."""
    drawn = _timelines(plan, schedules, timelines)
    return one_schedule(plan, drawn[0]) if len(drawn) == 1 else _comparison(plan, drawn)


def timeline_table(
    plan: Plan, schedules: Sequence[str] = ("1f1b",), *, timelines: Sequence[Timeline] | None = None
) -> list[Row]:
    """The same as rows: one for each submesh and schedule."""
    drawn = _timelines(plan, schedules, timelines)
    return [{"schedule": t.schedule.name, **row} for t in drawn for row in submeshes_table(plan, t)]


def _timelines(plan: Plan, schedules: Sequence[str], timelines: Sequence[Timeline] | None) -> list[Timeline]:
    return list(timelines) if timelines is not None else [plan_timeline(plan, name) for name in schedules]


def _dressed(frame: Frame, sentence: str, theme: str) -> dict[str, Any]:
    """The layout with its title, its legend, and margins for both; without axes."""
    layout = layout_of(sentence, theme=theme, height=frame.height, barmode="overlay", legend=frame.legend)
    margins = layout["margin"] | frame.margins
    margins["t"] += layout["margin"]["t"] - _TOOLS_PIXELS
    height = frame.height + margins["t"] + margins["b"]
    return layout | {"title": layout["title"] | {"y": 1 - 14 / height}, "margin": margins, "height": height}


def _comparison(plan: Plan, timelines: Sequence[Timeline]) -> str:
    rows = comparison_table(plan, timelines)
    fitting = [r for r in rows if r["memory_fraction"] <= 1]
    best = min(fitting or rows, key=lambda r: r["makespan_seconds"])
    verdict = "is the fastest that fits" if fitting else "is the fastest, but none fits"
    schedules = "; ".join(
        f"{r['schedule']} {units.seconds(r['makespan_seconds'])}, of which sends {units.seconds(r['sends_seconds'])}, "
        f"bubble {units.percent(r['bubble_fraction'])}, memory {units.percent(r['memory_fraction'])}"
        for r in rows
    )
    return f"Of these schedules {best['schedule']} {verdict}: {schedules}."
