"""Where one timeline is drawn: the axes of its tasks and its memory, and the place of a moment on the axis of time."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from alpa_explore import units
from alpa_explore.figures import tuning
from alpa_explore.figures.style import Trace
from alpa_explore.figures.timelines.parts import Part, Window, shown_parts
from alpa_explore.numerics.arrays import Flags, Floats
from alpa_explore.plans.phrases import submesh_phrase
from alpa_explore.plans.plan import Plan
from alpa_explore.plans.report.timeline_tables import row_word
from alpa_explore.plans.timeline import plan_timeline
from alpa_explore.schedules.simulator.timeline import Timeline


@dataclass(frozen=True, slots=True, kw_only=True)
class TimelineChart:
    """One timeline, and where and how it is drawn."""

    plan: Plan
    timeline: Timeline
    scale: float
    """Seconds of one unit of the axis of time."""
    unit: str
    parts: tuple[Part, ...]
    """The parts of the iteration that are shown."""
    number: int
    """Its place among the timelines of the figure, from 0."""
    traces: list[Trace]
    """The traces of the figure, in plotly's form, to which `add` appends."""

    @property
    def axes(self) -> tuple[str, str, str]:
        """plotly's names of the axis of time, of that with a row for each submesh, and of that of bytes."""
        return axis("x", self.number), axis("y", 2 * self.number), axis("y", 2 * self.number + 1)

    @property
    def length(self) -> float:
        """Length of the axis of time in seconds, gaps included."""
        last = self.parts[-1]
        return last.at + last.end - last.start - self.parts[0].at

    @property
    def seconds_per_pixel(self) -> float:
        """On a screen of usual width."""
        return self.length / tuning.TIMELINE_PIXELS

    @property
    def row_names(self) -> list[str]:
        """What each row shows: 'stage 2 · 1×8'; 'submesh 2 · 1×8' where it runs several stages."""
        word = row_word(self.timeline.schedule)
        return [f"{word} {s.index} · {submesh_phrase(s.submesh, s.device)}" for s in self.plan.stages]

    def add(self, trace: Trace, *, memory: bool = False) -> None:
        """Draw a trace in the rows of the tasks, or in the chart of memory; it is listed in the legend only once."""
        x, rows, sizes = self.axes
        shown = {"xaxis": x, "yaxis": sizes if memory else rows}
        self.traces.append(trace | shown | {"showlegend": trace.get("showlegend", True) and self.number == 0})

    def places(self, seconds: Floats, part: Part) -> Floats:
        """Moments within a part as places on the axis, in its unit."""
        return np.asarray((np.clip(seconds, part.start, part.end) + part.shift) / self.scale)

    def spans(self, start: Floats, end: Floats) -> Iterator[tuple[Flags, Floats, Floats]]:
        """For each part: which of the spans of time lie in it, and where those begin and end on the axis."""
        for part in self.parts:
            inside = part.overlaps(start, end)
            yield inside, self.places(start[inside], part), self.places(end[inside], part)


def timelines_of(plan: Plan, schedules: Sequence[str], timelines: Sequence[Timeline] | None = None) -> list[Timeline]:
    """Those given, or those of the plan under these schedules."""
    return list(timelines) if timelines is not None else [plan_timeline(plan, name) for name in schedules]


def charts_of(plan: Plan, timelines: Sequence[Timeline], window: Window) -> list[TimelineChart]:
    """A chart for each, with one unit of time and one list of traces."""
    scale, unit = units.seconds_axis(max(t.makespan_seconds for t in timelines))
    common: dict[str, Any] = {"plan": plan, "scale": scale, "unit": unit, "traces": []}
    shown = zip(timelines, shown_parts(timelines, window), strict=True)
    return [TimelineChart(timeline=t, parts=parts, number=n, **common) for n, (t, parts) in enumerate(shown)]


def axis(letter: str, index: int) -> str:
    """plotly's name of an axis: x, x2, x3, …"""
    return letter if index == 0 else f"{letter}{index + 1}"


def axis_name(letter_and_number: str) -> str:
    """plotly's name of an axis in the layout: x2 -> xaxis2."""
    return f"{letter_and_number[0]}axis{letter_and_number[1:]}"


def busy_share(timeline: Timeline, submesh: int, edges: Floats) -> Floats:
    """Share of each interval between two `edges` (seconds) in which a submesh runs a task."""
    tasks = timeline.submesh(submesh)
    moments = np.stack([timeline.start_seconds[tasks], timeline.end_seconds[tasks]], axis=1).ravel()
    worked = np.cumsum(np.stack([np.zeros(tasks.stop - tasks.start), np.diff(moments)[::2]], axis=1).ravel())
    return np.asarray(np.diff(np.interp(edges, moments, worked)) / np.maximum(np.diff(edges), 1e-300))


def largest_between(moments: Floats, values: Floats, edges: Floats) -> tuple[Floats, Floats]:
    """A step curve (`values[i]` holds from `moments[i]` on) between the first and the last of `edges`.

    Unchanged where it has no more steps there than there are edges, else its maximum in each interval.
    """
    keep = np.append(np.diff(moments) > 0, True)  # of several changes at one moment the last
    moments, values = moments[keep], np.asarray(values)[keep]
    before = max(int(np.searchsorted(moments, edges[0], side="right")) - 1, 0)
    inside = slice(before, int(np.searchsorted(moments, edges[-1], side="right")))
    moments, values = moments[inside], values[inside]
    if len(moments) <= len(edges):
        return np.append(np.maximum(moments, edges[0]), edges[-1]), np.append(values, values[-1:])
    at = np.clip(np.searchsorted(moments, edges, side="right") - 1, 0, len(values) - 1)
    largest = [values[a : max(b, a + 1) + 1].max() for a, b in pairwise(at)]
    return edges, np.append(largest, values[at[-1]])


def rounded(values: Any) -> list[float]:
    """Six significant digits: enough on screen, and a page holds many of them."""
    return [float(f"{v:.6g}") for v in np.asarray(values, dtype=np.float64).tolist()]


def with_gaps(values: Floats) -> list[float | None]:
    """`rounded`, with None for NaN: where a line is interrupted."""
    return [None if v != v else v for v in rounded(values)]
