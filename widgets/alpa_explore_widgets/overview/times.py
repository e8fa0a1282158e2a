"""When and why: what each submesh does in one iteration, its warm-up, some steady microbatches, and the drain; where
the time goes on each stage and on all devices, and what costs most."""

import numpy as np

from alpa_explore import units
from alpa_explore.figures.keys import key
from alpa_explore.figures.marks import time_looks
from alpa_explore.figures.style import in_theme, mixed, stage_color
from alpa_explore.figures.timelines.parts import Part, shown_parts
from alpa_explore.numerics.arrays import Ints
from alpa_explore.plans.phrases import stage_phrase
from alpa_explore.plans.plan import Plan
from alpa_explore.plans.report.text import pace_setter
from alpa_explore.plans.timeline import plan_timeline
from alpa_explore.questions.explain import COMPUTING, UNKNOWN, WAIT, StageTime, limits, mean_parts, time_parts
from alpa_explore.schedules.simulator.timeline import Timeline
from alpa_explore.schedules.task import Action
from alpa_explore_widgets.overview.drawing import HEIGHT, Card, Drawing, Item, box, boxes

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


_BARS = HEIGHT - 88.0
"""Height of the bars of all stages, in pixels; the rest is for the lists below them."""
_STAGE_ROW, _NAMED_ROW = 24.0, 11.0
"""Height of a row, at most; and from which on it has a name."""
_LISTED, _LISTED_LOW = 4, 3
"""Parts, and limits, that are listed, each in one or two lines: below few bars, and where the bars take all room."""
_NOTICEABLE = 5e-4
"""A share below this is not listed."""


def why_card(plan: Plan) -> Card:
    """Stacked bars of the parts of T for each stage; below them their shares, and T without each limit."""
    times, total = time_parts(plan), plan.predicted.iteration_seconds
    binding = [limit for limit in limits(plan) if limit.name not in (COMPUTING, UNKNOWN) and limit.gain >= _NOTICEABLE]
    text = "nothing but computing limits the plan"
    if binding:
        text = f"{binding[0].name} costs most besides computing: {units.percent(binding[0].gain)} of T"
    drawing = Drawing(left=74)
    looks = time_looks(name for time in times for name, _ in time.parts)
    colors = {name: in_theme(color, "light") for name, (color, _) in looks.items()}
    pitch = min(_STAGE_ROW, _BARS / len(times))
    for row, time in enumerate(times):
        _stage(drawing, time, colors, total, row * pitch, pitch)
    shares = sorted(((s / total, name) for name, s in mean_parts(times).items()), reverse=True)
    parts = tuple(
        Item(units.percent(share), name, "" if name == WAIT else colors[name])
        for share, name in shares
        if share >= _NOTICEABLE
    )
    without = tuple(Item(units.percent(limit.gain), limit.name) for limit in binding)
    listed = _LISTED if len(times) * pitch <= 2 * _STAGE_ROW else _LISTED_LOW
    return Card(
        tab="Why",
        line=text,
        name=f"Parts of the time of each stage: {text}",
        figure=drawing,
        height=max(len(times) * pitch, _STAGE_ROW),
        lists=(("Time of all devices", parts[:listed]), ("T would be shorter without", without[:listed])),
    )


def _stage(drawing: Drawing, time: StageTime, colors: dict[str, str], total: float, top: float, pitch: float) -> None:
    parts, at, shapes = dict(time.parts), 0.0, []
    height = pitch - min(4.0, 0.2 * pitch)
    for name, color in colors.items():
        share = parts.get(name, 0.0) / total
        if share > 0:
            is_wait = name == WAIT
            shapes.append(box(at, top, share, height, fill="" if is_wait else color, css="idle" if is_wait else ""))
            at += share
    listed = "; ".join(f"{name} {units.seconds(seconds)}" for name, seconds in time.parts)
    drawing.group(key(stage=time.stage), f"stage {time.stage}: {listed}", shapes)
    if pitch >= _NAMED_ROW:
        drawing.row_name(top + height / 2, f"stage {time.stage}")
