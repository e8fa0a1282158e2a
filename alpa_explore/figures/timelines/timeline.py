"""One iteration as a Gantt chart with the memory below it, for one schedule or several, one below the other.

By default an iteration of many microbatches is shown in three parts at one scale: the warm-up, some steady
microbatches, and the drain. A strip of the whole iteration at the bottom says where they are. `window` shows another
part; one with more than some hundred tasks shows how busy each submesh is over time.
"""

from collections.abc import Sequence

import numpy as np

from alpa_explore import units
from alpa_explore.figures.marks import bars_across, line
from alpa_explore.figures.style import Drawing, Trace, faint, ground, ink, mixed, with_theme
from alpa_explore.figures.timelines.chart import TimelineChart, charts_of, rounded, timelines_of, with_gaps
from alpa_explore.figures.timelines.frame import TICKS_PIXELS, Frame
from alpa_explore.figures.timelines.memory import draw_memory
from alpa_explore.figures.timelines.parts import Window
from alpa_explore.figures.timelines.tasks import draw_tasks
from alpa_explore.plans.plan import Plan
from alpa_explore.plans.report.tables import Row
from alpa_explore.plans.report.timeline_tables import comparison_table, submeshes_table
from alpa_explore.plans.report.timeline_tables import timeline_sentence as one_schedule
from alpa_explore.schedules.simulator.timeline import Timeline

_TOOLS_PIXELS = 20
"""`dress` leaves this much for a legend between title and plot, which has its own margin here."""


@with_theme
def timeline_figure(
    plan: Plan,
    schedules: Sequence[str] = ("1f1b",),
    *,
    window: Window = "parts",
    brush: bool = False,
    timelines: Sequence[Timeline] | None = None,
) -> Drawing:
    """A chart and its memory for each of `schedules`. Raises as `plan_timeline` does.

    `timelines`, where given, are drawn instead. `brush` is for a front end in which the overview can be dragged over:
    the overview is then always there and says so, `layout.meta.brush` names its axis, and `zoom` those that the wheel
    zooms.
    """
    drawn = timelines_of(plan, schedules, timelines)
    longest, charts, byte_axes = max(t.makespan_seconds for t in drawn), charts_of(plan, drawn, window), []
    for chart in charts:
        draw_tasks(chart)
        byte_axes.append(draw_memory(chart))
    in_part = sum(part.end - part.start for part in charts[0].parts) < (1 - 1e-9) * longest
    frame = Frame(charts=charts, overview=in_part or brush)
    legend, pixels = frame.legend()
    overview = _overview(charts[0], *frame.overview_axes) if frame.overview else []
    return Drawing(
        [*charts[0].traces, *overview],
        timeline_sentence(plan, timelines=drawn),
        height=frame.height,
        above=pixels - _TOOLS_PIXELS,
        around={"l": 108, "b": TICKS_PIXELS if frame.overview else 4},
        barmode="overlay",
        legend=legend,
        **frame.layout(byte_axes, brush=brush),
    )


def timeline_sentence(
    plan: Plan, schedules: Sequence[str] = ("1f1b",), *, timelines: Sequence[Timeline] | None = None
) -> str:
    """What the figure shows for this plan: one schedule in full, or which of several is best."""
    drawn = timelines_of(plan, schedules, timelines)
    return one_schedule(plan, drawn[0]) if len(drawn) == 1 else _comparison(plan, drawn)


def timeline_table(plan: Plan, schedules: Sequence[str] = ("1f1b",)) -> list[Row]:
    """The same as rows: one for each submesh and schedule."""
    drawn = timelines_of(plan, schedules)
    return [{"schedule": t.schedule.name, **row} for t in drawn for row in submeshes_table(plan, t)]


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


def _overview(chart: TimelineChart, x_axis: str, y_axis: str) -> list[Trace]:
    """The strip for the timeline of `chart`: a bar from the first to the last task of each submesh, and the frames."""
    timeline = chart.timeline
    rows = timeline.schedule.num_submeshes
    first, last = timeline.schedule.starts[:-1], timeline.schedule.starts[1:] - 1
    start, end = timeline.start_seconds[first], timeline.end_seconds[last]
    axes = {"xaxis": x_axis, "yaxis": y_axis, "listed": False}
    x: list[float] = []
    y: list[float] = []
    for part in chart.parts:
        left, right = part.start / chart.scale, part.end / chart.scale
        x += [left, right, right, left, left, np.nan]
        y += [-0.5, -0.5, rows - 0.5, rows - 0.5, -0.5, np.nan]
    whole = sum(part.end - part.start for part in chart.parts) >= timeline.makespan_seconds
    keys = [units.percent(float(1 - idle)) for idle in timeline.bubble_fractions]
    hover = "%{text}: busy for %{customdata} of the iteration"
    looks = {"name": "overview", "text": chart.row_names, "textposition": "none", "keys": keys, "hover": hover}
    fill = {"fill": "none" if whole else "toself", "fillcolor": "rgba(230,159,0,0.5)", "name": "shown above"}
    lengths, bases = rounded((end - start) / chart.scale), {"base": rounded(start / chart.scale), "width": 1}
    color = mixed(faint, ground, 0.5)
    return [
        bars_across(lengths, list(range(rows)), color, edge=(None, 0), **bases, **looks, **axes),
        line(with_gaps(np.array(x)), with_gaps(np.array(y)), ink, **fill, **axes),
    ]
