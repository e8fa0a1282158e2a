"""What fills a device of one stage over an iteration, stacked by part, below the tasks of the stage: weights,
gradients, optimizer state, the activations of each microbatch in flight, workspace, and what the software keeps back.

The parts add up to the memory of the schedule's simulator (`schedules.simulator.memory`), whose peak is that of the
plan. A microbatch takes the lowest free slot when its forward pass starts, and leaves it when its backward pass ends.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush

import numpy as np

from alpa_explore import units
from alpa_explore.figures import tuning
from alpa_explore.figures.marks import HIDDEN_AXIS, axis, bars, bars_across, inside, legend_below, line, note
from alpa_explore.figures.style import OKABE_ITO, Drawing, Trace, empty, ground, ink_on, lines, mixed, with_theme
from alpa_explore.figures.timelines.chart import TimelineChart, charts_of, rounded
from alpa_explore.figures.timelines.frame import part_labels, time_axis
from alpa_explore.figures.timelines.memory import draw_limit, sampled_steps
from alpa_explore.figures.timelines.tasks import task_color
from alpa_explore.numerics.arrays import Floats
from alpa_explore.plans.phrases import stage_phrase
from alpa_explore.plans.plan import Plan
from alpa_explore.plans.report.error_bands import bytes_with_band
from alpa_explore.plans.report.tables import Row, stage_named
from alpa_explore.plans.report.timeline_tables import ACTION_NAMES
from alpa_explore.plans.timeline import plan_timeline
from alpa_explore.schedules.simulator.memory import MemoryCurve, memory_curve
from alpa_explore.schedules.simulator.timeline import Timeline
from alpa_explore.schedules.task import Action

WEIGHTS, GRADIENTS, OPTIMIZER = "weights", "gradients", "optimizer state"
RESIDENT = "weights, gradients, optimizer state"
"""All three where a plan file does not divide them."""
ACTIVATIONS, WORKSPACE, RESERVE = "activations", "workspace", "reserve of the software"
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
_AREAS = 1 - _STRIP - 0.02
"""Of the height: the areas over time. Beside them, on the same scale, is a device at its peak."""
_TIME_SHARE, _DEVICE_PIXELS = 0.64, 215.0
"""Of the width: the areas; the device, about."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class HeldPart:
    """A part of the memory: from `HeldMemory.seconds[i]` to `seconds[i + 1]` it takes `bytes[i]`."""

    name: str
    """One of the names above."""
    bytes: Floats
    slot: int = 0
    """Of activations: the place among the microbatches in flight."""
    microbatches: Floats | None = None
    """Of activations: the microbatch, NaN for none, or, where several share the part, their number."""
    shared: bool = False
    """Whether several microbatches share the part."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class HeldMemory:
    """The memory of a device of one stage over an iteration."""

    timeline: Timeline
    submesh: int
    seconds: Floats
    parts: tuple[HeldPart, ...]
    """From what is always there to what comes and goes."""
    limit_bytes: float
    """The memory of a device."""

    @property
    def total_bytes(self) -> Floats:
        """All parts together."""
        return np.asarray(sum(part.bytes for part in self.parts))

    @property
    def peak_bytes(self) -> float:
        """The most at any time."""
        return float(self.total_bytes.max())

    def at_peak(self) -> dict[str, float]:
        """Name of a part -> its bytes when the total is largest, activations of all microbatches together."""
        peak = int(self.total_bytes.argmax())
        found: dict[str, float] = {}
        for part in self.parts:
            found[part.name] = found.get(part.name, 0.0) + float(part.bytes[peak])
        return found


def held_memory(plan: Plan, stage: int = 0, *, timeline: Timeline | None = None) -> HeldMemory:
    """The memory of a device of a stage under a timeline, by default that of the plan's own schedule. OptionError for a
    stage that the plan does not have."""
    shown, timeline = stage_named(plan, stage), timeline or plan_timeline(plan)
    device, curve = plan.device_of(shown), memory_curve(timeline, stage)
    least = min((float(b) for b in curve.workspace_bytes if b), default=0.0)
    reserve = min(device.reserved_bytes, least)  # it is part of the workspace of every task, and stays between tasks
    weights = WEIGHTS if curve.gradient_bytes or curve.optimizer_bytes else RESIDENT
    steady = ((weights, curve.weight_bytes), (GRADIENTS, curve.gradient_bytes), (OPTIMIZER, curve.optimizer_bytes))
    everywhere = np.ones(len(curve.seconds))
    parts = [HeldPart(name=name, bytes=size * everywhere) for name, size in (*steady, (RESERVE, reserve)) if size]
    parts += _activations(timeline, stage, curve)
    parts.append(HeldPart(name=WORKSPACE, bytes=np.maximum(curve.workspace_bytes - reserve, 0.0)))
    return HeldMemory(
        timeline=timeline,
        submesh=stage,
        seconds=curve.seconds,
        parts=tuple(parts),
        limit_bytes=float(device.memory_bytes),
    )


def _activations(timeline: Timeline, submesh: int, curve: MemoryCurve) -> Iterator[HeldPart]:
    """A part for each slot; for a group of slots where there are many."""
    spans = list(_in_slots(timeline, submesh))
    slots = 1 + max((slot for slot, *_ in spans), default=-1)
    group = -(-slots // tuning.MEMORY_SLOTS) if slots else 1
    length = len(curve.seconds)
    for first in range(0, slots, group):
        held, numbers = np.zeros(length), np.full(length, np.nan)
        count = np.zeros(length)
        for slot, start, end, microbatch, size in spans:
            if first <= slot < first + group:
                held[start:end] += size
                count[start:end] += 1
                numbers[start:end] = microbatch
        shared = group > 1
        yield HeldPart(
            name=ACTIVATIONS,
            bytes=held,
            slot=first // group,
            microbatches=np.where(count > 0, count, np.nan) if shared else numbers,
            shared=shared,
        )


def _in_slots(timeline: Timeline, submesh: int) -> Iterator[tuple[int, int, int, int, float]]:
    """(slot, first index, end index, microbatch, bytes) of the activations of each microbatch and stage: indices of the
    arrays of `memory_curve`, which have one entry for the beginning and two for each task."""
    tasks, schedule = timeline.submesh(submesh), timeline.schedule
    columns = (schedule.actions[tasks], schedule.stages[tasks], schedule.microbatches[tasks])
    free: list[int] = []
    taken: dict[tuple[int, int], tuple[int, int]] = {}
    slots = 0
    for place, (action, stage, microbatch) in enumerate(zip(*(c.tolist() for c in columns), strict=True)):
        if action == Action.FORWARD:
            slot = heappop(free) if free else slots
            slots = max(slots, slot + 1)
            taken[stage, microbatch] = (slot, 1 + 2 * place)
        elif action in (Action.BACKWARD, Action.BACKWARD_WEIGHT) and (stage, microbatch) in taken:
            slot, start = taken.pop((stage, microbatch))
            heappush(free, slot)
            yield slot, start, 2 + 2 * place, microbatch, timeline.times[stage].activation_bytes


@with_theme
def stage_memory_figure(plan: Plan, stage: int = 0) -> Drawing:
    """The memory of a device of a stage over time, with a line at what the device has. OptionError for a stage that the
    plan does not have."""
    held = held_memory(plan, stage)
    (chart,) = charts_of(plan, [held.timeline], "parts")
    most = max(held.limit_bytes, held.peak_bytes)
    byte_scale, byte_unit = units.bytes_axis(most)
    for part in held.parts:
        _area(chart, held, part, byte_scale)
    draw_limit(chart, int(held.limit_bytes), byte_scale, plan.device_of(plan.stages[stage]).name)
    _strip(chart, held)
    fixed = {"anchor": "x", "fixedrange": True}
    span = (0, _HEADROOM * most / byte_scale)
    high = _AREAS * _HEIGHT
    chart.traces.append(_device(held, high / (_HEADROOM * most)))
    return Drawing(
        chart.traces,
        stage_memory_sentence(plan, stage),
        height=_HEIGHT,
        above=44,
        barmode="overlay",
        around={"l": 72, "b": 30},
        uniformtext={"mode": "hide", "minsize": 10},
        legend=legend_below(0, 1) | {"yanchor": "bottom", "y": 1.06},
        xaxis=time_axis(chart) | {"domain": [0, _TIME_SHARE]},
        yaxis=axis(span=(-0.5, 0.5), ticks={0: "tasks"}, bare=True, domain=[1 - _STRIP, 1], **fixed),
        yaxis2=axis(f"memory of a device ({byte_unit})", span, domain=[0, _AREAS], **fixed),
        xaxis2=axis(span=(0, _DEVICE_PIXELS), domain=[_TIME_SHARE + 0.03, 1], anchor="y3") | HIDDEN_AXIS,
        yaxis3=axis(span=(0, high), domain=[0, _AREAS], anchor="x2") | HIDDEN_AXIS,
        annotations=[
            *part_labels(chart, _HEIGHT, 0.4 * _HEIGHT, _HEIGHT),
            note("at the peak", 0, high / _HEADROOM, refs=("x2", "y3"), xanchor="left", yanchor="bottom"),
        ],
    )


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
    own, shape = _LOOKS[part.name]
    color = mixed(own, ground, _PALER if part.slot % 2 else 0.0)
    texts, what = {}, part.name
    if part.microbatches is not None:
        _, numbers = sampled_steps(chart, held.seconds, np.nan_to_num(part.microbatches, nan=-1.0))
        texts, what = {"text": [_microbatch(part, number) for number in numbers.tolist()]}, "%{text}"
    pattern = {"shape": shape, "bgcolor": color, "fgcolor": ground, "size": 7, "solidity": 0.12}
    looks: Trace = {"stackgroup": "memory", "fillcolor": color, "fillpattern": pattern, **texts}
    looks |= {"name": part.name, "legendgroup": part.name, "listed": part.slot == 0}
    hover, width = f"{what}: %{{y:.4g}} {units.bytes_axis(scale)[1]}", 0.6 if part.name == ACTIVATIONS else 0
    area = line(x, rounded(np.nan_to_num(y) / scale), ground, width, shape="hv", hover=hover, **looks)
    chart.add(area, memory=True)


def _device(held: HeldMemory, pixels: float) -> Trace:
    """A device at its peak: its parts as areas in proportion, and above them what is free. A byte has so many pixels
    of height; plotly leaves out names for which there is no room."""
    parts = sorted(((name, size) for name, size in held.at_peak().items() if size), key=lambda part: -part[1])
    boxes = rectangles([size for _, size in parts], _DEVICE_PIXELS, held.peak_bytes * pixels)
    if held.limit_bytes > held.peak_bytes:
        parts.append(("free", held.limit_bytes - held.peak_bytes))
        boxes.append((0.0, held.peak_bytes * pixels, _DEVICE_PIXELS, parts[-1][1] * pixels))
    colors = [_LOOKS[name][0] if name in _LOOKS else empty for name, _ in parts]  # named, not hatched
    texts = [f"{name.split(',')[0].removesuffix(' state')}<br>{units.bytes_(size)}" for name, size in parts]
    hover = [
        lines(f"<b>{name}</b>", f"{units.bytes_(size)}, {units.percent(size / held.limit_bytes)} of the device")
        for name, size in parts
    ]
    x, y, width, height = ([box[place] for box in boxes] for place in range(4))
    looks: Trace = {"base": y, "width": width, "edge": (ground, 1), "xaxis": "x2", "yaxis": "y3", "listed": False}
    written = inside(texts, [ink_on(color) for color in colors], 11)
    middles = [left + across / 2 for left, across in zip(x, width, strict=True)]
    return bars(middles, height, colors, name="a device at the peak", hover=hover, **looks, **written)


def rectangles(sizes: Sequence[float], width: float, height: float) -> list[tuple[float, float, float, float]]:
    """(x, y, width, height) of areas that fill a rectangle in proportion to `sizes`, all above 0, the largest first.
    Each in turn takes a part of a strip of what is left, along its shorter side; strips are as wide as makes their
    areas most like squares."""
    found: list[tuple[float, float, float, float]] = []
    x, y, left, at = 0.0, 0.0, sum(sizes), 0
    while at < len(sizes):
        side, best, count = min(width, height), float("inf"), 0
        area = width * height / left if left > 0 else 0.0
        for end in range(at + 1, len(sizes) + 1):
            row = [size * area for size in sizes[at:end]]
            thick = sum(row) / side
            worst = max(max(thick * thick / a, a / (thick * thick)) for a in row)
            if worst > best:
                break
            best, count = worst, end - at
        taken = sum(sizes[at : at + count])
        thick, along = taken * area / side, 0.0
        for size in sizes[at : at + count]:
            part = size / taken * side
            found.append((x, y + along, thick, part) if width >= height else (x + along, y, part, thick))
            along += part
        x, y, width, height = (
            (x + thick, y, width - thick, height) if width >= height else (x, y + thick, width, height - thick)
        )
        left, at = left - taken, at + count
    return found


def _microbatch(part: HeldPart, number: float) -> str:
    if number != number or number < 0:
        return part.name
    return f"activations of {number:.0f} microbatches" if part.shared else f"activations of microbatch {number:.0f}"


def _strip(chart: TimelineChart, held: HeldMemory) -> None:
    """The tasks of the submesh in one row, with the numbers of their microbatches where there is room."""
    timeline, tasks = held.timeline, held.timeline.submesh(held.submesh)
    schedule = timeline.schedule
    shown: list[tuple[int, float, float]] = []
    for within, starts, ends in chart.spans(timeline.start_seconds[tasks], timeline.end_seconds[tasks]):
        shown += zip(np.flatnonzero(within).tolist(), starts.tolist(), ends.tolist(), strict=True)
    if not shown or len(shown) > tuning.TIMELINE_TASKS:
        return
    of_tasks = (schedule.actions[tasks], schedule.stages[tasks], schedule.microbatches[tasks])
    columns = list(zip(*(column.tolist() for column in of_tasks), strict=True))
    colors, texts, names, widths = [], [], [], []
    for i, left, right in shown:
        action, stage, microbatch = Action(columns[i][0]), *columns[i][1:]
        update = action == Action.UPDATE
        pixels = (right - left) * chart.scale / chart.seconds_per_pixel
        fits = not update and pixels >= _LETTER_PIXELS * len(str(microbatch)) + 2
        colors.append(task_color(chart, stage, action))
        texts.append(f"{microbatch}" if fits else "")
        names.append(ACTION_NAMES[action] + ("" if update else f" of microbatch {microbatch}"))
        widths.append(0.5 if action == Action.FORWARD else 0.9)
    lengths, base = rounded([right - left for _, left, right in shown]), rounded([left for _, left, _ in shown])
    looks = {"base": base, "width": widths, "edge": (ground, 0.5), "hover": names, "name": "tasks", "listed": False}
    written = inside(texts, [ink_on(color) for color in colors], 10)
    chart.add(bars_across(lengths, [0] * len(shown), colors, **looks, **written))
