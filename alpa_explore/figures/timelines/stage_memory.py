"""What fills a device of one stage over an iteration, stacked by part, below the tasks of the stage."""

from __future__ import annotations

import numpy as np
import plotly.graph_objects as go

from alpa_explore import units
from alpa_explore.figures import tuning
from alpa_explore.figures.style import OKABE_ITO, ground, ink_on, layout_of, mixed, unchecked
from alpa_explore.figures.timelines.chart import TimelineChart
from alpa_explore.figures.timelines.frame import part_labels, time_axis
from alpa_explore.figures.timelines.held import (
    ACTIVATIONS,
    GRADIENTS,
    OPTIMIZER,
    RESERVE,
    RESIDENT,
    WEIGHTS,
    WORKSPACE,
    HeldMemory,
    HeldPart,
    held_memory,
)
from alpa_explore.figures.timelines.memory import draw_limit, sampled_steps
from alpa_explore.figures.timelines.parts import Window, shown_parts
from alpa_explore.figures.timelines.sampling import rounded
from alpa_explore.figures.timelines.tasks import task_color
from alpa_explore.plans.phrases import stage_phrase
from alpa_explore.plans.plan import Plan
from alpa_explore.plans.report.error_bands import bytes_with_band
from alpa_explore.plans.report.tables import Row
from alpa_explore.plans.report.timeline_tables import ACTION_NAMES
from alpa_explore.schedules.task import Action

_LOOKS = {
    WEIGHTS: (OKABE_ITO[0], ""),
    RESIDENT: (OKABE_ITO[0], ""),
    GRADIENTS: (OKABE_ITO[4], "/"),
    OPTIMIZER: (OKABE_ITO[2], "x"),
    RESERVE: (OKABE_ITO[7], "."),
    ACTIVATIONS: (OKABE_ITO[1], ""),
    WORKSPACE: (OKABE_ITO[3], "-"),
}
"""Name of a part -> its colour and hatching."""
_PALER = 0.35
"""Share of the ground in the colour of every second microbatch."""
_HEIGHT, _STRIP = 340, 0.11
"""Pixels of the plot; share of the strip of tasks in it."""
_HEADROOM = 1.12
_LETTER_PIXELS = 7.0


def stage_memory_figure(plan: Plan, stage: int = 0, theme: str = "light", *, window: Window = "parts") -> go.Figure:
    """The memory of a device of a stage over time, with a line at what the device has. OptionError for a stage that the
    plan does not have."""
    held = held_memory(plan, stage)
    scale, unit = units.seconds_axis(held.timeline.makespan_seconds)
    (parts,) = shown_parts([held.timeline], window)
    chart = TimelineChart(plan=plan, timeline=held.timeline, theme=theme, scale=scale, parts=parts, number=0, traces=[])
    most = max(held.limit_bytes, held.peak_bytes)
    byte_scale, byte_unit = units.bytes_axis(most)
    for part in held.parts:
        _area(chart, held, part, byte_scale)
    draw_limit(chart, int(held.limit_bytes), byte_scale, plan.device_of(plan.stages[stage]).name)
    _strip(chart, held)
    layout = layout_of(stage_memory_sentence(plan, stage), theme=theme, height=_HEIGHT)
    margin = layout["margin"] | {"l": 72, "b": 30}
    margin["t"] += 44
    layout |= {
        "height": _HEIGHT + margin["t"] + margin["b"],
        "margin": margin,
        "legend": layout["legend"] | {"traceorder": "normal", "y": 1.06},
        "xaxis": time_axis(chart, unit),
        "yaxis": {
            "domain": [1 - _STRIP, 1],
            "range": [-0.5, 0.5],
            "anchor": "x",
            "tickvals": [0],
            "ticktext": ["tasks"],
            "fixedrange": True,
            "showgrid": False,
            "zeroline": False,
        },
        "yaxis2": {
            "domain": [0, 1 - _STRIP - 0.02],
            "range": [0, _HEADROOM * most / byte_scale],
            "anchor": "x",
            "title": {"text": f"memory of a device ({byte_unit})"},
            "fixedrange": True,
        },
        "annotations": part_labels(chart, _HEIGHT, 0.4 * _HEIGHT, _HEIGHT),
    }
    return unchecked(chart.traces, layout)


def stage_memory_sentence(plan: Plan, stage: int = 0) -> str:
    """How full a device of the stage is at most, and of what."""
    held = held_memory(plan, stage)
    peak = bytes_with_band(plan, held.peak_bytes)
    parts = ", ".join(f"{name} {units.bytes_(size)}" for name, size in held.at_peak().items() if size)
    named = stage_phrase(plan.stages[stage])
    return (
        f"{named[0].upper()}{named[1:]}: a device holds at most {peak} of {units.bytes_(held.limit_bytes)} "
        f"({units.percent(held.peak_bytes / held.limit_bytes)}), under {held.timeline.schedule.name}: {parts}."
    )


def stage_memory_table(plan: Plan, stage: int = 0) -> list[Row]:
    """The parts at the moment when the memory is fullest, and their sum."""
    held = held_memory(plan, stage)
    sizes = held.at_peak()
    rows = [*sizes.items(), ("together", sum(sizes.values())), ("the device has", held.limit_bytes)]
    return [{"part": name, "peak_bytes": size, "memory_fraction": size / held.limit_bytes} for name, size in rows]


def _area(chart: TimelineChart, held: HeldMemory, part: HeldPart, scale: float) -> None:
    """One part, stacked on those before it. All are sampled at the same moments."""
    x, y = sampled_steps(chart, held.seconds, part.bytes)
    color, shape = _LOOKS[part.name]
    if part.slot % 2:
        color = mixed(color, ground(chart.theme), _PALER)
    texts: list[str] | None = None
    if part.microbatches is not None:
        _, numbers = sampled_steps(chart, held.seconds, np.nan_to_num(part.microbatches, nan=-1.0))
        texts = [_microbatch(part, number) for number in numbers.tolist()]
    chart.add(
        {
            "type": "scatter",
            "x": x,
            "y": rounded(np.nan_to_num(y) / scale),
            "stackgroup": "memory",
            "mode": "lines",
            "line": {"width": 0.6 if part.name == ACTIVATIONS else 0, "shape": "hv", "color": ground(chart.theme)},
            "fillcolor": color,
            "fillpattern": {
                "shape": shape,
                "bgcolor": color,
                "fgcolor": ground(chart.theme),
                "size": 7,
                "solidity": 0.12,
            },
            "name": part.name,
            "legendgroup": part.name,
            "showlegend": part.slot == 0,
            **({"text": texts} if texts is not None else {}),
            "hovertemplate": f"{'%{text}' if texts is not None else part.name}: %{{y:.4g}} {_unit(scale)}"
            "<extra></extra>",
        },
        memory=True,
    )


def _unit(scale: float) -> str:
    return units.bytes_axis(scale)[1]


def _microbatch(part: HeldPart, number: float) -> str:
    if number != number or number < 0:
        return part.name
    return f"activations of {number:.0f} microbatches" if part.shared else f"activations of microbatch {number:.0f}"


def _strip(chart: TimelineChart, held: HeldMemory) -> None:
    """The tasks of the submesh in one row, with the numbers of their microbatches where there is room."""
    timeline, tasks = held.timeline, held.timeline.submesh(held.submesh)
    schedule = timeline.schedule
    start, end = timeline.start_seconds[tasks], timeline.end_seconds[tasks]
    shown: list[tuple[int, float, float]] = []
    for inside, left, right in chart.spans(start, end):
        shown += zip(np.flatnonzero(inside).tolist(), left.tolist(), right.tolist(), strict=True)
    if not shown or len(shown) > tuning.TIMELINE_TASKS:
        return
    actions = schedule.actions[tasks].tolist()
    stages, microbatches = schedule.stages[tasks].tolist(), schedule.microbatches[tasks].tolist()
    colors = [task_color(chart, stages[i], Action(actions[i])) for i, *_ in shown]
    texts = [
        ""
        if actions[i] == Action.UPDATE or not _has_room(chart, right - left, microbatches[i])
        else f"{microbatches[i]}"
        for i, left, right in shown
    ]
    names = [
        ACTION_NAMES[Action(actions[i])] + ("" if actions[i] == Action.UPDATE else f" of microbatch {microbatches[i]}")
        for i, *_ in shown
    ]
    chart.add(
        {
            "type": "bar",
            "orientation": "h",
            "base": rounded([left for _, left, _ in shown]),
            "x": rounded([right - left for _, left, right in shown]),
            "y": [0] * len(shown),
            "width": [0.5 if actions[i] == Action.FORWARD else 0.9 for i, *_ in shown],
            "marker": {"color": colors, "line": {"width": 0.5, "color": ground(chart.theme)}},
            "text": texts,
            "textposition": "inside",
            "insidetextanchor": "middle",
            "textangle": 0,
            "textfont": {"size": 10, "color": [ink_on(color) for color in colors]},
            "hovertext": names,
            "hovertemplate": "%{hovertext}<extra></extra>",
            "name": "tasks",
            "showlegend": False,
        }
    )


def _has_room(chart: TimelineChart, width: float, number: int) -> bool:
    return width * chart.scale / chart.seconds_per_pixel >= _LETTER_PIXELS * len(str(number)) + 2
