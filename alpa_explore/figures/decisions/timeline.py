"""One iteration as a Gantt chart with the memory below it, for one schedule or several side by side.

A chart of more than some hundred tasks is not drawn task by task: it shows how busy each submesh is over time, and
`window` zooms in.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypeAlias

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from alpa_explore import units
from alpa_explore.figures import tuning
from alpa_explore.figures.decisions.timeline_chart import Span, TimelineChart
from alpa_explore.figures.decisions.timeline_memory import draw_memory
from alpa_explore.figures.decisions.timeline_tasks import draw_tasks
from alpa_explore.figures.style import dress
from alpa_explore.plans.plan import Plan
from alpa_explore.plans.report.tables import Row
from alpa_explore.plans.report.timeline_tables import comparison_table, submeshes_table
from alpa_explore.plans.report.timeline_tables import timeline_sentence as one_schedule
from alpa_explore.plans.timeline import plan_timeline
from alpa_explore.schedules.simulator.timeline import Timeline

Window: TypeAlias = "tuple[float, float] | Literal['whole', 'start', 'middle', 'end']"
"""From, to as shares of the longest makespan; or a named part, short enough to be drawn task by task."""

_MEMORY_PIXELS, _GAP_PIXELS = 130, 34
"""Height of a memory chart, and between two charts."""


def timeline_figure(
    plan: Plan,
    schedules: Sequence[str] = ("1f1b",),
    theme: str = "light",
    *,
    window: Window = "whole",
    timelines: Sequence[Timeline] | None = None,
) -> go.Figure:
    """A chart and its memory for each of `schedules`, all on one time axis. Raises as `plan_timeline` does.

    `timelines`, where given, are drawn instead.
    """
    drawn = _timelines(plan, schedules, timelines)
    longest = max(t.makespan_seconds for t in drawn)
    view = _view(window, longest, drawn)
    rows = max(t.schedule.num_submeshes for t in drawn)
    heights = [max(120, min(26 * rows + 30, 420)), _MEMORY_PIXELS] * len(drawn)
    total_height = sum(heights) + _GAP_PIXELS * (len(heights) - 1)
    figure = make_subplots(
        rows=len(heights),
        cols=1,
        shared_xaxes="all",
        row_heights=heights,
        vertical_spacing=_GAP_PIXELS / total_height,
    )
    scale, unit = units.seconds_axis(view[1] - view[0])
    for place, timeline in enumerate(drawn):
        chart = TimelineChart(
            figure=figure,
            timeline=timeline,
            theme=theme,
            scale=scale,
            view=view,
            row=2 * place + 1,
            legend=place == 0,
        )
        draw_tasks(chart)
        draw_memory(chart, plan)
        count = timeline.schedule.num_submeshes
        ticks = list(range(0, count, max(1, count // 16)))
        figure.update_yaxes(title=f"submesh<br>{timeline.schedule.name}", row=chart.row, col=1)
        figure.update_yaxes(
            range=[count - 0.4, -0.6], tickvals=ticks, zeroline=False, showgrid=False, row=chart.row, col=1
        )
    figure.update_xaxes(range=[view[0] / scale, view[1] / scale], showgrid=False, zeroline=False)
    figure.update_xaxes(title=f"time in the iteration ({unit})", row=len(heights), col=1)
    sentence = timeline_sentence(plan, timelines=drawn)
    dress(figure, sentence, theme=theme, height=total_height + 150, barmode="overlay")
    return figure.update_layout(margin={"l": 92, "b": 64}, legend={"traceorder": "normal"})


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


def _view(window: Window, longest: float, timelines: Sequence[Timeline]) -> Span:
    """The seconds that `window` means, of an axis that ends at `longest`."""
    if not isinstance(window, str):
        return window[0] * longest, window[1] * longest
    if window == "whole":
        return 0.0, longest
    width = min(0.25, 0.8 * tuning.TIMELINE_TASKS / max(len(t.start_seconds) for t in timelines)) * longest
    start = {"start": 0.0, "middle": (longest - width) / 2, "end": longest - width}[window]
    return start, start + width


def _comparison(plan: Plan, timelines: Sequence[Timeline]) -> str:
    rows = comparison_table(plan, timelines)
    fitting = [r for r in rows if r["memory_fraction"] <= 1]
    best = min(fitting or rows, key=lambda r: r["makespan_seconds"])
    verdict = "is the fastest that fits" if fitting else "is the fastest, but none fits"
    schedules = "; ".join(
        f"{r['schedule']} {units.seconds(r['makespan_seconds'])}, bubble {units.percent(r['bubble_fraction'])}, memory "
        f"{units.percent(r['memory_fraction'])}"
        for r in rows
    )
    return f"Of these schedules {best['schedule']} {verdict}: {schedules}."
