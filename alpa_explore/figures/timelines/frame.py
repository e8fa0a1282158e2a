"""The axes of a timeline figure: rows, bytes and time, the names of the parts, and what is left out between them.

Places are in pixels from the bottom of the plot: (from, to).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, TypeAlias

from alpa_explore import units
from alpa_explore.figures import tuning
from alpa_explore.figures.marks import axis as plain_axis
from alpa_explore.figures.marks import legend_below, note
from alpa_explore.figures.style import Trace, faint
from alpa_explore.figures.timelines.chart import TimelineChart, axis, axis_name

Pixels: TypeAlias = tuple[float, float]

_TICK_PIXELS = 60
"""The least distance of two labels on an axis of time."""
_LABEL_PIXELS, TICKS_PIXELS = 20, 26
"""Above the rows, for the names of the parts; below an axis of time, for its labels."""
_GAP_PIXELS, _MEMORY_PIXELS = 8, 104
_LEGEND_ROW_PIXELS, _SYMBOL_PIXELS, _LETTER_PIXELS = 19, 38, 6.4
"""Of the legend: height of a row, width of a symbol, mean width of a letter."""
_TICK_MARKS = {"ticks": "outside", "ticklen": 4, "tickcolor": faint, "tickangle": 0}
_NARROW_PIXELS = 340
"""Width of the plot in a window of 900 pixels; the legend has room for the rows that it needs there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """Heights in pixels, from top to bottom: for each timeline its tasks and its memory, then the overview."""

    charts: Sequence[TimelineChart]
    overview: bool

    @property
    def height(self) -> int:
        """Of the plot, without margins."""
        overview = _LABEL_PIXELS + self._strip_pixels if self.overview else 0
        return sum(self._height(chart) for chart in self.charts) + overview

    def layout(self, byte_axes: Sequence[tuple[str, float]], *, brush: bool) -> dict[str, Any]:
        """Axes and annotations of the figure; `byte_axes` are units and ends of the memory."""
        notes: list[Trace] = []
        layout: dict[str, Any] = {"annotations": notes}
        top = self.height
        for chart, (byte_unit, end) in zip(self.charts, byte_axes, strict=True):
            bottom = top - self._height(chart) + TICKS_PIXELS
            rows = (bottom + _MEMORY_PIXELS + _GAP_PIXELS, top - _LABEL_PIXELS)
            domain = self._domain((bottom, bottom + _MEMORY_PIXELS))
            x, tasks, memory = chart.axes
            fixed = {"anchor": x, "domain": domain, "fixedrange": True, "nticks": 5}
            layout[axis_name(x)] = time_axis(chart)
            layout[axis_name(tasks)] = _row_axis(chart, self._domain(rows))
            layout[axis_name(memory)] = plain_axis(f"({byte_unit})", (0, end), **fixed)
            notes += part_labels(chart, rows[1], (rows[0] + rows[1]) / 2, self.height)
            if len(self.charts) > 1:  # the name of the schedule above its rows' names
                name, y = f"<b>{chart.timeline.schedule.name}</b>", (top - _LABEL_PIXELS) / self.height
                place = {"xanchor": "right", "xshift": -6, "yanchor": "bottom"}
                notes.append(note(name, 0, y, refs=("paper", "paper"), **place))
            top -= self._height(chart)
        if self.overview:
            self._lay_out_overview(layout, brush=brush)
        return layout

    @property
    def overview_axes(self) -> tuple[str, str]:
        """plotly's names of the axes of the overview."""
        return axis("x", len(self.charts)), axis("y", 2 * len(self.charts))

    def legend(self) -> tuple[Trace, int]:
        """The legend of what is drawn so far, and its height: above the charts, in a margin of its own, into which its
        rows grow downwards in a narrower window."""
        names = [trace["name"] for trace in self.charts[0].traces if trace.get("showlegend")]
        width = _LETTER_PIXELS * max(map(len, names), default=1)
        pixels = _LEGEND_ROW_PIXELS * -(-len(names) // max(1, int(_NARROW_PIXELS // (width + _SYMBOL_PIXELS)))) + 6
        entries = {"entrywidth": width, "entrywidthmode": "pixels"}
        return legend_below(0, 1, **entries) | {"y": 1 + pixels / self.height}, pixels

    def _height(self, chart: TimelineChart) -> int:
        rows = max(100, min(30 * chart.timeline.schedule.num_submeshes, 360))
        return _LABEL_PIXELS + rows + _GAP_PIXELS + _MEMORY_PIXELS + TICKS_PIXELS

    @property
    def _strip_pixels(self) -> int:
        return max(26, min(5 * self.charts[0].timeline.schedule.num_submeshes, 60))

    def _domain(self, place: Pixels) -> list[float]:
        return [place[0] / self.height, place[1] / self.height]

    def _lay_out_overview(self, layout: dict[str, Any], *, brush: bool) -> None:
        chart = self.charts[0]
        x_axis, y_axis = self.overview_axes
        rows = chart.timeline.schedule.num_submeshes
        end = max(c.timeline.makespan_seconds for c in self.charts) / chart.scale
        suffix = {"ticksuffix": f" {chart.unit}", **_TICK_MARKS}
        layout[axis_name(x_axis)] = plain_axis(span=(0, end), bare=True, anchor=y_axis) | suffix
        hint = "drag to look closer" if brush else "framed: shown above"  # a note would lie on the ticks above it
        name = f"whole iteration<br><span style='font-size:10px'>{hint}</span>"
        ticks, fixed = {(rows - 1) / 2: name}, {"ticklabelstandoff": 6, "fixedrange": True}
        domain = self._domain((0, self._strip_pixels))
        layout[axis_name(y_axis)] = plain_axis(
            span=(rows - 0.5, -0.5), ticks=ticks, bare=True, anchor=x_axis, domain=domain, **fixed
        )
        if brush:
            zoomed = {axis_name(chart.axes[0]): _span(chart) for chart in self.charts}
            layout["meta"] = {"brush": {"axis": axis_name(x_axis), "range": [0, end]}, "zoom": zoomed}


def time_axis(chart: TimelineChart) -> Trace:
    """The axis of time of a chart."""
    return plain_axis(span=_span(chart), bare=True, anchor=chart.axes[2]) | _TICK_MARKS | _ticks(chart)


def _span(chart: TimelineChart) -> tuple[float, float]:
    """The ends of its axis of time."""
    first = chart.parts[0].at
    return first / chart.scale, (first + chart.length) / chart.scale


def _row_axis(chart: TimelineChart, domain: Sequence[float]) -> Trace:
    count = chart.timeline.schedule.num_submeshes
    labelled = range(0, count, -(-count // tuning.TIMELINE_LABELLED_ROWS))
    ticks, span = {p: chart.row_names[p] for p in labelled}, (count - 0.45, -0.55)
    fixed = {"ticklabelstandoff": 6, "fixedrange": True}
    return plain_axis(span=span, ticks=ticks, bare=True, anchor=chart.axes[0], domain=domain, **fixed)


def _ticks(chart: TimelineChart) -> dict[str, Any]:
    """The labels of an axis with gaps, at round moments of each part; plotly labels one without gaps itself."""
    if len(chart.parts) == 1:
        return {"ticksuffix": f" {chart.unit}"}
    least = _TICK_PIXELS * chart.seconds_per_pixel / chart.scale
    power = 10.0 ** math.floor(math.log10(least))
    step = next(power * m for m in (1, 2, 5, 10) if power * m >= least)
    digits = max(0, -math.floor(math.log10(step) + 1e-9))
    values: list[float] = []
    texts: list[str] = []
    for part in chart.parts:
        first, last = (math.ceil(part.start / chart.scale / step), math.floor(part.end / chart.scale / step))
        moments = [(k * step, digits) for k in range(first, last + 1)]
        for moment, shown in moments or [(round((part.start + part.end) / 2 / chart.scale, digits + 1), digits + 1)]:
            at = moment + part.shift / chart.scale
            if not values or at - values[-1] >= 0.8 * least:
                values.append(float(f"{at:.6g}"))
                texts.append(f"{moment:,.{shown}f} {chart.unit}")
    return {"tickvals": values, "ticktext": texts}


def part_labels(chart: TimelineChart, top: float, middle: float, height: float) -> list[Trace]:
    """The name of each part above it at `top`, and in the gaps, around `middle`, the seconds that are left out.

    Both are pixels of a plot of `height`. The middle is beside the tasks: below, a line of memory would cross the text.
    """
    if len(chart.parts) == 1:
        return []
    refs, found = (chart.axes[0], "paper"), []
    for part in chart.parts:
        x = (part.at + (part.end - part.start) / 2) / chart.scale
        found.append(note(part.label, x, top / height, refs=refs, yanchor="bottom"))
    for before, after in pairwise(chart.parts):
        x = (before.at + before.end - before.start + after.at) / 2 / chart.scale
        text, turned = f"… {units.seconds(after.start - before.end)} …", {"yanchor": "middle", "textangle": -90}
        found.append(note(text, x, middle / height, color=faint, refs=refs, **turned))
    return found
