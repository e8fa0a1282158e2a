"""A schedule on equal stages: a Gantt chart, and below it the activations that each device holds.

Times are in units: `forward`, `backward_input` and `backward_weight` are those of a whole device for one microbatch, so
that schedules with one and with two stages a device do the same work. A held microbatch counts 1 for a whole device.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from alpa_explore import units
from alpa_explore.errors import OptionError
from alpa_explore.figures import tuning
from alpa_explore.figures.course.interactive import Control, with_controls
from alpa_explore.figures.marks import axis, bars_across, inside, line
from alpa_explore.figures.style import OKABE_ITO, Drawing, Trace, ground, ink, mixed, stage_color
from alpa_explore.schedules.catalog import build_schedule
from alpa_explore.schedules.simulator.memory import memory_curve
from alpa_explore.schedules.simulator.simulate import simulate
from alpa_explore.schedules.simulator.timeline import Timeline
from alpa_explore.schedules.simulator.times import StageTimes
from alpa_explore.schedules.task import Action

_LOOKS = {
    Action.FORWARD: ("forward", OKABE_ITO[0], ""),
    Action.BACKWARD: ("backward", OKABE_ITO[1], ""),
    Action.BACKWARD_INPUT: ("backward to the input", OKABE_ITO[1], ""),
    Action.BACKWARD_WEIGHT: ("backward to the weights", OKABE_ITO[2], "/"),
}
"""Name, colour, hatching."""
_SHADE = 0.3
"""Share of ink in the colour of the second stage of a device."""
RATIOS = {"1 : 1 : 1": (1.0, 1.0, 1.0), "1 : 1.2 : 0.8": (1.0, 1.2, 0.8), "1 : 0.7 : 1.3": (1.0, 0.7, 1.3)}
"""Forward : backward to the input : backward to the weights, by name."""
_NAMES = ("gpipe", "1f1b", "interleaved-1f1b", "zb-h1", "zb-v", "v-half", "v-min", "dualpipe-v")


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleFacts:
    """A schedule on equal stages, in numbers."""

    timeline: Timeline
    makespan: float
    bubble_fraction: float
    held: float
    """Most microbatches whose activations a device holds, in those of a whole device."""


def schedule_facts(
    name: str, devices: int, microbatches: int, parts: tuple[float, float, float] = (1.0, 1.0, 1.0)
) -> ScheduleFacts:
    """Simulate a schedule of the catalogue on `devices` equal devices without sends; DualPipe is given half of the
    microbatches in each direction. Raises ScheduleError for a size that it does not have."""
    schedule = build_schedule(name, devices, microbatches)
    stages = schedule.num_stages // devices / schedule.copies
    forward, backward_input, backward_weight = (part / stages for part in parts)
    times = StageTimes(
        forward_seconds=forward,
        backward_input_seconds=backward_input,
        backward_weight_seconds=backward_weight,
        activation_bytes=1.0 / stages,
    )
    timeline = simulate(schedule, [times] * schedule.num_stages)
    held = max(float(memory_curve(timeline, place).activation_bytes.max()) for place in range(devices))
    return ScheduleFacts(
        timeline=timeline, makespan=timeline.makespan_seconds, bubble_fraction=timeline.bubble_fraction, held=held
    )


@with_controls(
    "A pipeline schedule and the activations that it holds",
    Control("name", "Schedule", _NAMES, "1f1b"),
    Control("devices", "Devices", (2, 4, 8), 4),
    Control("microbatches", "Microbatches B", (4, 8, 16), 8),
    Control("ratio", "forward : to input : to weights", tuple(RATIOS)[:2], "1 : 1 : 1"),
)
def schedule_figure(name: str, devices: int, microbatches: int, ratio: str = "1 : 1 : 1") -> Drawing:
    """The chart of one schedule. `ratio` is a key of RATIOS."""
    if ratio not in RATIOS:
        raise OptionError(
            "Unknown ratio of the passes", found=repr(ratio), remedy=f"Choose one of {', '.join(map(repr, RATIOS))}."
        )
    facts = schedule_facts(name, devices, microbatches, RATIOS[ratio])
    rows, span = {place: f"device {place}" for place in range(devices)}, (devices - 0.5, -0.5)
    return Drawing(
        [*_task_traces(facts.timeline), *_held_traces(facts.timeline, devices)],
        f"{name}, {devices} devices, B = {microbatches}: {facts.makespan:.4g} units, idle "
        f"{units.percent(facts.bubble_fraction)}; a device holds at most {facts.held:.3g} microbatches",
        height=300 + 24 * devices,
        barmode="overlay",
        meta={"least_width": 640},
        xaxis=axis("time, in forward passes of a microbatch", anchor="y2", rangemode="tozero"),
        yaxis=axis(span=span, ticks=rows, domain=[0.42, 1.0], zeroline=False),
        yaxis2=axis("held", domain=[0.0, 0.32], rangemode="tozero"),
    )


def _task_traces(timeline: Timeline) -> Iterator[Trace]:
    schedule = timeline.schedule
    place_of = np.array(schedule.submesh_of_stage)
    numbered = len(schedule.actions) <= tuning.COURSE_NUMBERED_TASKS
    later = np.array([list(schedule.submesh_of_stage[:s]).count(p) for s, p in enumerate(schedule.submesh_of_stage)])
    hatch = {"fillmode": "overlay", "fgcolor": ground, "fgopacity": 0.4, "size": 8, "solidity": 0.12}
    for action, (label, color, pattern) in _LOOKS.items():
        tasks = np.flatnonzero((schedule.actions == action) & (timeline.end_seconds > timeline.start_seconds))
        if not len(tasks):
            continue
        start, end = timeline.start_seconds[tasks], timeline.end_seconds[tasks]
        stages, microbatches = schedule.stages[tasks], schedule.microbatches[tasks]
        shades = [color, mixed(color, ink, _SHADE)]
        colors = color if pattern else [shades[min(int(later[s]), 1)] for s in stages]
        lengths, bases = np.round(end - start, 4).tolist(), {"base": np.round(start, 4).tolist(), "width": 0.84}
        keys = np.stack([microbatches, stages], axis=1).tolist()
        hover = f"{label} of microbatch %{{customdata[0]}}, stage %{{customdata[1]}}"
        looks = {"edge": (ground, 1), "name": label, "keys": keys, "hover": hover, **bases}
        texts = inside([str(m) for m in microbatches] if numbered else None)
        trace = bars_across(lengths, place_of[stages].tolist(), colors, **looks, **(texts | {"textfont": None}))
        if pattern:
            trace["marker"]["pattern"] = {"shape": pattern, **hatch}
        yield trace


def _held_traces(timeline: Timeline, devices: int) -> Iterator[Trace]:
    for place in range(devices):
        curve = memory_curve(timeline, place)
        x, y = np.round(curve.seconds, 4).tolist(), np.round(curve.activation_bytes, 4).tolist()
        dash, hover = ("solid", "dash", "dot", "dashdot")[place % 4], f"device {place} holds %{{y:.3g}} microbatches"
        looks = {"name": f"held by device {place}", "hover": hover, "listed": False, "yaxis": "y2"}
        yield line(x, y, stage_color(place), 2, dash, shape="hv", **looks)
