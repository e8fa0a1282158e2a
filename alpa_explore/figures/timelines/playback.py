"""The tasks of timelines as numbers, so that the page can walk through an iteration without the kernel.

The page moves a cursor over the figure of the same timelines and window, and says what each submesh does at that
moment.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from alpa_explore.figures.style import stage_color
from alpa_explore.figures.timelines.chart import axis_name, charts_of, timelines_of
from alpa_explore.figures.timelines.frame import Frame
from alpa_explore.figures.timelines.parts import Window
from alpa_explore.plans.phrases import submesh_phrase
from alpa_explore.plans.plan import Plan
from alpa_explore.plans.report.timeline_tables import ACTION_NAMES, row_word
from alpa_explore.schedules.simulator.timeline import Timeline
from alpa_explore.schedules.task import Action

_TICKS = 10_000_000
"""Ticks of an iteration: a microsecond of ten seconds."""


def playback_document(plan: Plan, schedules: Sequence[str] = ("1f1b",), *, window: Window = "parts") -> dict[str, Any]:
    """For each timeline that `timeline_figure` draws for the same arguments: its tasks, the parts that are shown, and
    plotly's names of the axes. Times are in the unit of the figure's axis, those of tasks in ticks."""
    charts = charts_of(plan, timelines_of(plan, schedules), window)
    longest, scale = max(chart.timeline.makespan_seconds for chart in charts), charts[0].scale
    tick, (x, y) = longest / _TICKS, Frame(charts=charts, overview=True).overview_axes
    return {
        "unit": charts[0].unit,
        "end": longest / scale,
        "tick": tick / scale,
        "overview": {"x": axis_name(x), "y": axis_name(y)},
        "charts": [
            {
                "name": chart.timeline.schedule.name,
                "x": axis_name(chart.axes[0]),
                "tasks": axis_name(chart.axes[1]),
                "memory": axis_name(chart.axes[2]),
                "parts": [
                    {name: getattr(part, name) / scale for name in ("start", "end", "at")} for part in chart.parts
                ],
                "rows": [_row(plan, chart.timeline, p, tick) for p in range(chart.timeline.schedule.num_submeshes)],
            }
            for chart in charts
        ],
    }


def _row(plan: Plan, timeline: Timeline, submesh: int, tick: float) -> dict[str, Any]:
    """The tasks of a submesh in order, those that take no time left out; what they are is an index of `kinds`:
    'forward', or 'forward of stage 5' where a submesh runs several stages."""
    schedule, tasks = timeline.schedule, timeline.submesh(submesh)
    start, end = timeline.start_seconds[tasks], timeline.end_seconds[tasks]
    kept = end > start
    several = schedule.num_stages > schedule.num_submeshes
    pairs = zip(schedule.actions[tasks][kept].tolist(), schedule.stages[tasks][kept].tolist(), strict=True)
    kinds: dict[str, int] = {}
    names = (ACTION_NAMES[Action(action)] + (f" of stage {stage}" if several else "") for action, stage in pairs)
    numbers = [kinds.setdefault(name, len(kinds)) for name in names]
    stage = plan.stages[submesh]
    return {
        "name": f"{row_word(schedule)} {submesh}",
        "place": submesh_phrase(stage.submesh, stage.device),
        "color": stage_color(submesh),
        "start": np.rint(start[kept] / tick).astype(np.int64).tolist(),
        "end": np.rint(end[kept] / tick).astype(np.int64).tolist(),
        "kinds": list(kinds),
        "kind": numbers,
        "microbatch": np.where(
            schedule.actions[tasks][kept] == Action.UPDATE, -1, schedule.microbatches[tasks][kept]
        ).tolist(),
    }
