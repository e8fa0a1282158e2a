"""The timeline: what each submesh does in one iteration: its warm-up, some steady microbatches, and the drain."""

import numpy as np

from alpa_explore import units
from alpa_explore.figures.keys import key
from alpa_explore.figures.style import mixed, stage_color
from alpa_explore.figures.timelines.parts import Part, shown_parts
from alpa_explore.numerics.arrays import Ints
from alpa_explore.plans.phrases import stage_phrase
from alpa_explore.plans.plan import Plan
from alpa_explore.plans.report.text import pace_setter
from alpa_explore.plans.timeline import plan_timeline
from alpa_explore.schedules.simulator.timeline import Timeline
from alpa_explore.schedules.task import Action
from alpa_explore_widgets.overview.drawing import HEIGHT, Card, Drawing, box, boxes

_HEAD = 16.0
"""Room for the names of the parts."""
_ROW, _NAMED_ROW = 66.0, 11.0
"""Height of a row, at most; and from which on it has a name."""
_LETTER = 0.035
"""Width of a letter as a share of the drawing, in a window of usual size."""
_PALE = 0.55
"""Share of white in the colour of a forward pass."""
_MANY_TASKS = 4000
"""Of more tasks only the start of the iteration is drawn: a page of them would take long to paint."""


def timeline_card(plan: Plan) -> Card:
    """A row for each submesh: forward passes are low and pale, backward passes high."""
    timeline = plan_timeline(plan)
    count, slow = timeline.schedule.num_submeshes, pace_setter(plan)
    text = (
        f"bubble {units.percent(plan.predicted.bubble_fraction)}, {timeline.schedule.name}; "
        f"stage {slow.index} sets the pace: {units.seconds(slow.latency_seconds)} per microbatch"
    )
    (parts,) = shown_parts([timeline], "parts")
    if len(parts) == 1 and len(timeline.start_seconds) > _MANY_TASKS:
        (parts,) = shown_parts([timeline], "start")
    length = parts[-1].at + parts[-1].end - parts[-1].start - parts[0].at
    pitch = min(_ROW, (HEIGHT - _HEAD) / count)
    drawing = Drawing(left=74)
    places = [(part.at - parts[0].at) / length for part in parts]
    for part, place, following in zip(parts, places, (*places[1:], 2.0), strict=True):
        name = part.label or "one iteration"
        if following - place > _LETTER * len(name):  # else it would run into the next one
            drawing.text(place, _HEAD / 2, name)
    for row in range(count):
        top, height = _HEAD + row * pitch, pitch - min(4.0, 0.2 * pitch)
        color = stage_color(row)
        grounds = [
            box((p.at - parts[0].at) / length, top, (p.end - p.start) / length, height, css="idle") for p in parts
        ]
        forward, backward, update = (_spans(timeline, row, actions, parts, length) for actions in _ACTIONS)
        low = height / 2
        shapes = [
            *grounds,
            boxes(forward, top + (height - low) / 2, low, fill=str(mixed(color, "#ffffff", _PALE))),
            boxes(backward, top, height, fill=color),
            boxes(update, top + height / 4, height / 2, fill="#888888"),
        ]
        stage = plan.stages[row]
        idle = units.percent(float(timeline.bubble_fractions[row]))
        hint = f"{stage_phrase(stage)}, {units.seconds(stage.latency_seconds)} per microbatch, idle for {idle}"
        drawing.group(key(stage=row), hint, shapes)
        if pitch >= _NAMED_ROW:
            drawing.row_name(top + height / 2, f"stage {row}")
    return Card(tab="Timeline", line=text, name=f"Tasks over time: {text}", figure=drawing)


_ACTIONS = ((Action.FORWARD,), (Action.BACKWARD, Action.BACKWARD_INPUT, Action.BACKWARD_WEIGHT), (Action.UPDATE,))


def _spans(
    timeline: Timeline, submesh: int, actions: tuple[Action, ...], parts: tuple[Part, ...], length: float
) -> list[tuple[float, float]]:
    """Where the tasks of a submesh are on the axis, in shares of its length."""
    tasks = timeline.submesh(submesh)
    chosen: Ints = np.flatnonzero(np.isin(timeline.schedule.actions[tasks], actions)) + tasks.start
    start, end = timeline.start_seconds[chosen], timeline.end_seconds[chosen]
    spans: list[tuple[float, float]] = []
    for part in parts:
        inside = part.overlaps(start, end) & (end > start)
        left = (np.maximum(start[inside], part.start) + part.shift - parts[0].at) / length
        right = (np.minimum(end[inside], part.end) + part.shift - parts[0].at) / length
        # A gap that shows where one task ends and the next begins, unless tasks are as narrow as it.
        right = np.maximum(right - 0.0012, left + 0.4 * (right - left))
        spans += zip(left.tolist(), right.tolist(), strict=True)
    return spans
