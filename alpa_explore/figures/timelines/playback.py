"""The tasks of timelines as numbers, so that the page can walk through an iteration without the kernel.

The page moves a cursor over the figure of the same timelines and window, and says what each submesh does at that
moment.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from alpa_explore import units
from alpa_explore.figures.style import stage_color
from alpa_explore.figures.timelines.chart import axis, axis_name
from alpa_explore.figures.timelines.parts import Window, shown_parts
from alpa_explore.figures.timelines.timeline import timelines_of
from alpa_explore.plans.phrases import submesh_phrase
from alpa_explore.plans.plan import Plan
from alpa_explore.plans.report.timeline_tables import ACTION_NAMES, row_word
from alpa_explore.schedules.simulator.timeline import Timeline
from alpa_explore.schedules.task import Action

_TICKS = 10_000_000
"""Ticks of an iteration: a microsecond of ten seconds."""


def playback_document(
    plan: Plan,
    schedules: Sequence[str] = ("1f1b",),
    *,
    window: Window = "parts",
    timelines: Sequence[Timeline] | None = None,
) -> dict[str, Any]:
    """For each timeline that `timeline_figure` draws for the same arguments: its tasks, the parts that are shown, and
    plotly's names of the axes. Times are in the unit of the figure's axis, those of tasks in ticks."""
    drawn = timelines_of(plan, schedules, timelines)
    longest = max(t.makespan_seconds for t in drawn)
    scale, unit = units.seconds_axis(longest)
    parts, tick = shown_parts(drawn, window), longest / _TICKS
    last = len(drawn)
    return {
        "unit": unit,
        "end": longest / scale,
        "tick": tick / scale,
        "overview": {"x": axis_name(axis("x", last)), "y": axis_name(axis("y", 2 * last))},
        "charts": [
            {
                "name": timeline.schedule.name,
                "x": axis_name(axis("x", number)),
                "tasks": axis_name(axis("y", 2 * number)),
                "memory": axis_name(axis("y", 2 * number + 1)),
                "parts": [
                    {"start": part.start / scale, "end": part.end / scale, "at": part.at / scale} for part in own
                ],
                "rows": [_row(plan, timeline, p, tick) for p in range(timeline.schedule.num_submeshes)],
            }
            for number, (timeline, own) in enumerate(zip(drawn, parts, strict=True))
        ],
    }


def _row(plan: Plan, timeline: Timeline, submesh: int, tick: float) -> dict[str, Any]:
    """The tasks of a submesh in order, those that take no time left out; what they are is an index of `kinds`."""
    schedule, tasks = timeline.schedule, timeline.submesh(submesh)
    start, end = timeline.start_seconds[tasks], timeline.end_seconds[tasks]
    kept = end > start
    several = schedule.num_stages > schedule.num_submeshes
    pairs = zip(schedule.actions[tasks][kept].tolist(), schedule.stages[tasks][kept].tolist(), strict=True)
    kinds: dict[str, int] = {}
    numbers = [kinds.setdefault(_kind(action, stage if several else None), len(kinds)) for action, stage in pairs]
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


def _kind(action: int, stage: int | None) -> str:
    """'forward', or 'forward of stage 5' where a submesh runs several stages."""
    name = ACTION_NAMES[Action(action)]
    return name if stage is None else f"{name} of stage {stage}"
