"""The marks of all figures – bars, lines, points, words, cells –, axes, notes, and a grid of plots, as plain dicts.

plotly checks every property of a figure each time that one is changed, which takes several times as long as everything
else that a figure needs. Here nothing is checked; a test makes the same figures with plotly's checks. A colour may be a
function of the theme, as `style.ink`: `style.finished` applies the theme when the figure is done.

All marks take `name` (in the legend, unless `listed` is False), `keys` (see `figures.keys`) and `hover`: a text for
each mark, a template for all, or None. `looks` are further properties in plotly's words; their types are plotly's.
"""

import math
from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import Any, NamedTuple

from alpa_explore.figures import tuning
from alpa_explore.figures.style import OKABE_ITO, Drawing, Trace, empty, halo, hatching, ink
from alpa_explore.questions.explain import COMPUTE, OVERHEAD, SEND, SYNC, UNKNOWN, WAIT

MEMORY_PARTS = (
    ("weights, gradients, optimizer state", OKABE_ITO[0], "", "weight_bytes"),
    ("activations held", OKABE_ITO[1], "/", "activations_held_bytes"),
    ("workspace", OKABE_ITO[2], "x", "workspace_bytes"),
)
"""What fills a device: name, colour, hatching, attribute of a stage or of a choice for it."""
_TIME_LOOKS: dict[str, tuple[Any, str]] = {
    COMPUTE: (OKABE_ITO[0], ""),
    UNKNOWN: (OKABE_ITO[0], "."),
    SEND: (OKABE_ITO[3], "\\"),
    SYNC: (OKABE_ITO[2], "-"),
    OVERHEAD: (OKABE_ITO[6], "."),
    WAIT: (empty, ""),
}
"""Part of the time of an iteration -> colour, hatching; collectives take those of `_COLLECTIVE_LOOKS` in turn."""
_COLLECTIVE_LOOKS = ((OKABE_ITO[1], "/"), (OKABE_ITO[5], "x"), (OKABE_ITO[4], "+"), (OKABE_ITO[6], "|"))


def mark(
    kind: str, x: Any, y: Any, *, name: Any = "", hover: Any = None, keys: Any = None, listed: Any = True, **more: Any
) -> Trace:
    """A trace of plotly's `kind`."""
    trace: Trace = {"type": kind, "x": x, "y": y}
    if name:
        trace["name"] = name
    if isinstance(hover, str):
        trace["hovertemplate"] = f"{hover}<extra></extra>"
    elif hover is not None:
        trace |= {"hovertext": hover, "hovertemplate": "%{hovertext}<extra></extra>"}
    else:
        trace["hoverinfo"] = "skip"
    if keys is not None:
        trace["customdata"] = keys
    if not listed:
        trace["showlegend"] = False
    return trace | more


def bars(x: Any, y: Any, color: Any, shape: Any = "", *, edge: Any = None, **looks: Any) -> Trace:
    """Upright bars, hatched by `shape`, with an edge of a colour and a width."""
    marker = {"color": color, **outline(edge)} | ({"pattern": hatching(shape)} if shape else {})
    return mark("bar", x, y, **{"marker": marker, **looks})


def bars_across(x: Any, y: Any, color: Any, shape: Any = "", **looks: Any) -> Trace:
    """Bars from left to right."""
    return bars(x, y, color, shape, orientation="h", **looks)


def line(x: Any, y: Any, color: Any, width: Any = 2, dash: Any = "", *, shape: Any = "", **looks: Any) -> Trace:
    """A line through points; None is a gap."""
    style = {"color": color, "width": width} | ({"dash": dash} if dash else {}) | ({"shape": shape} if shape else {})
    return mark("scatter", x, y, **{"mode": "lines", "line": style, **looks})


def points(
    x: Any, y: Any, color: Any, symbol: Any = "circle", size: Any = 10, *, edge: Any = None, **looks: Any
) -> Trace:
    """Points, each with an edge of a colour and a width."""
    marker = {"symbol": symbol, "size": size, "color": color, **outline(edge)}
    return mark("scatter", x, y, **{"mode": "markers", "marker": marker, **looks})


def words(
    x: Any, y: Any, text: Any, place: Any = "middle center", size: Any = 12, color: Any = ink, **looks: Any
) -> Trace:
    """Words; `place` is plotly's name of the side of the point on which they stand."""
    return mark("scatter", x, y, mode="text", **labels(text, place, size, color), listed=False, **looks)


def labels(
    text: Any, place: Any = "top center", size: Any = 12, color: Any = ink, *, over_lines: bool = False
) -> Trace:
    """The properties of a trace that write a text at each of its marks; `over_lines`: readable across a line."""
    font = {"size": size, "color": color} | ({"shadow": halo} if over_lines else {})
    return {"text": text, "textposition": place, "textfont": font}


def inside(text: Any, color: Any = ink, size: Any = 12, anchor: str = "middle", *, whole: bool = False) -> Trace:
    """The properties of bars that write a text inside each; `whole`: never made smaller."""
    found = labels(text, "inside", size, color) | {"insidetextanchor": anchor, "textangle": 0}
    return found | ({"constraintext": "none"} if whole else {})


def cells(x: Any, y: Any, z: Any, *, gap: Any = 0, **looks: Any) -> Trace:
    """A heatmap with `gap` pixels between its cells."""
    return mark("heatmap", x, y, z=z, hoverongaps=False, **({"xgap": gap, "ygap": gap} if gap else {}), **looks)


def outline(edge: Any) -> Trace:
    """The property of a marker that draws an edge; without a colour, one in that of the mark."""
    return {} if edge is None else {"line": {"width": edge[1]} | ({} if edge[0] is None else {"color": edge[0]})}


NOWHERE = ([None], [None])
"""Where a mark stands that is an entry of the legend alone."""


def at(number: int) -> Trace:
    """The axes of the n-th plot: {'xaxis': 'x2', 'yaxis': 'y2'}."""
    return {"xaxis": f"x{number}", "yaxis": f"y{number}"} if number > 1 else {}


def sums(x: Sequence[Any], y: Sequence[Any], texts: Sequence[str], *, above: bool = False) -> Trace:
    """Texts at the right ends of bars, or above them, such as the sums of stacked ones. (Bars themselves would put the
    text of negative values on their names.)"""
    if above:
        return words(list(x), list(y), list(texts), "top center", 11, name="sums")
    spaced = [f"\u00a0{text}" for text in texts]  # a no-break space between the bar and its text
    return words(list(x), list(y), spaced, "middle right", name="sums", cliponaxis=False)


def axis(
    title: Any = None,
    span: Any = None,
    *,
    ticks: Any = None,
    bare: Any = False,
    standoff: Any = None,
    size: Any = None,
    **more: Any,
) -> Trace:
    """An axis from and to `span`, with `ticks` (place -> text); `bare`: without a grid."""
    found: Trace = {}
    if title is not None:
        found["title"] = {"text": title} | ({} if standoff is None else {"standoff": standoff})
        found["title"] |= {} if size is None else {"font": {"size": size}}
    if span is not None:
        found["range"] = list(span)
    if ticks is not None:
        found |= {"tickvals": list(ticks), "ticktext": list(ticks.values())}
    return found | ({"showgrid": False, "zeroline": False} if bare else {}) | more


HIDDEN_AXIS: Trace = {"visible": False, "fixedrange": True}


def note(
    text: str, x: Any, y: Any, *, size: Any = 12, color: Any = ink, refs: Any = ("x", "y"), **anchors: Any
) -> Trace:
    """A text beside the marks; `refs` are plotly's names of what `x` and `y` count in."""
    font = {"size": size, "color": color}
    return {"text": text, "x": x, "y": y, "xref": refs[0], "yref": refs[1], "showarrow": False, "font": font} | anchors


def gaps(*paths: Sequence[tuple[Any, Any]]) -> tuple[list[Any], list[Any]]:
    """x and y of a line along each of some paths, with a gap behind each."""
    x, y = zip(*(point for path in paths for point in (*path, (None, None))), strict=True) if paths else ((), ())
    return list(x), list(y)


def limit_note(memory: str, x: Any, y: Any, refs: tuple[str, str], *, seen: Any = True, **anchors: Any) -> Trace:
    """What stands at the line of the memory of a device; an arrow points to a line that is out of sight."""
    return note(f"{memory}, one device{'' if seen else ' →'}", x, y, refs=refs, **anchors)


def limit_line(x: Any, y: Any, dash: str = "dash", width: Any = 2, **looks: Any) -> Trace:
    """The line at the memory of a device."""
    return line(x, y, ink, width, dash, name="memory of a device", listed=False, **looks)


def legend_below(pixels: float, height: float, **more: Any) -> Trace:
    """A legend so many pixels below a plot of this height."""
    place = {"x": 0, "xanchor": "left", "y": -pixels / height, "yanchor": "top", "traceorder": "normal"}
    return {"orientation": "h", "font": {"size": 12}, **place, **more}


def time_looks(parts: Iterable[str]) -> dict[str, tuple[Any, str]]:
    """Part of the time of an iteration (`explain.time_parts`) -> (colour, hatching), in the order in which they are
    drawn."""
    names = list(dict.fromkeys(parts))
    collectives = iter(_COLLECTIVE_LOOKS * len(names))
    order = [COMPUTE, UNKNOWN, *sorted(name for name in names if name not in _TIME_LOOKS), SEND, SYNC, OVERHEAD, WAIT]
    return {name: _TIME_LOOKS.get(name) or next(collectives) for name in order if name in names}


class AxisRange(NamedTuple):
    """The ends of an axis."""

    low: float
    high: float

    def title(self, text: str) -> str:
        """The axis title; it says where the axis does not begin at 0."""
        return f"{text}, axis not from 0" if self.low > 0 else text


class Plots:
    """A grid of plots in one figure: `row_heights` and `column_widths` are relative; `spacing` is between plots, as
    shares of the figure's (width, height); row 1 is at the top. With `shared_x` the plots of a column have one axis,
    labelled at the bottom; with `shared_y` those of a row, labelled at the left. With `last_alone` the last row has one
    plot."""

    def __init__(
        self,
        row_heights: Sequence[float] = (1.0,),
        column_widths: Sequence[float] = (1.0,),
        *,
        spacing: tuple[float, float] = (0.0, 0.0),
        shared_x: bool = False,
        shared_y: bool = False,
        last_alone: bool = False,
        titles: Sequence[str] = (),
    ) -> None:
        self._columns = len(column_widths)
        self._traces: list[Trace] = []
        self._axes: dict[str, Trace] = {}
        self._notes: list[Trace] = []
        across = _domains(column_widths, spacing[0])
        down = [(1.0 - bottom, 1.0 - top) for top, bottom in _domains(row_heights, spacing[1])]
        for row, y in enumerate(down, 1):
            for column, x in enumerate(across[:1] if last_alone and row == len(down) else across, 1):
                number = self._number(row, column)
                x_axis: Trace = {"anchor": f"y{number}", "domain": list(x)}
                y_axis: Trace = {"anchor": f"x{number}", "domain": list(y)}
                if shared_x and row < len(down):
                    x_axis |= {"matches": f"x{self._number(len(down), column)}", "showticklabels": False}
                if shared_y and column > 1:
                    y_axis |= {"matches": f"y{self._number(row, 1)}", "showticklabels": False}
                self._axes |= {f"xaxis{number}": x_axis, f"yaxis{number}": y_axis}
        for title, (y, x) in zip(titles, [(y, x) for y in down for x in across], strict=False):
            place = {"xanchor": "center", "yanchor": "bottom", "font": {"size": 13}}
            self._notes.append(note(title, sum(x) / 2, y[1], refs=("paper", "paper")) | place)

    def add(self, *traces: Trace, row: int = 1, col: int = 1) -> None:
        """Draw traces in a plot."""
        number = self._number(row, col)
        self._traces += [{**trace, "xaxis": f"x{number}", "yaxis": f"y{number}"} for trace in traces]

    def note(self, *notes: Trace) -> None:
        """Add texts."""
        self._notes += notes

    def x(self, row: Any = None, col: Any = None, **settings: Any) -> None:
        """Set properties (`axis`) of the x axes of a row, a column, one plot, or all."""
        self._update("xaxis", row, col, axis(**settings))

    def y(self, row: Any = None, col: Any = None, **settings: Any) -> None:
        """The same for y axes."""
        self._update("yaxis", row, col, axis(**settings))

    def limit(self, at: float, memory: str, x: AxisRange, y: AxisRange, dash: str = "dash", **anchors: Any) -> None:
        """The memory of a device as an upright line in the first plot, with its words; where it is beyond the axis,
        only those."""
        if at <= x.high:
            self.add(limit_line([at] * 2, list(y), dash))
        self.note(limit_note(memory, min(at, x.high), 1.0, ("x", "y domain"), seen=at <= x.high, **anchors))

    def figure(self, title: str, *, height: Any, **layout: Any) -> Drawing:
        """The figure; see `style.Drawing`."""
        return Drawing(self._traces, title, height=height, **self._axes, annotations=self._notes, **layout)

    def _number(self, row: int, column: int) -> str:
        """What follows 'x' in plotly's name of an axis: nothing for the first."""
        number = (row - 1) * self._columns + column
        return str(number) if number > 1 else ""

    def _update(self, letter: str, row: int | None, col: int | None, settings: Trace) -> None:
        for name, properties in self._axes.items():
            if name.startswith(letter):
                of_row, of_column = divmod(int(name.removeprefix(letter) or 1) - 1, self._columns)
                if row in (None, of_row + 1) and col in (None, of_column + 1):
                    properties.update(settings)


def _domains(sizes: Sequence[float], spacing: float) -> list[tuple[float, float]]:
    """(from, to) of each plot along one side."""
    room = 1.0 - spacing * (len(sizes) - 1)
    widths = [room * size / sum(sizes) for size in sizes]
    starts = accumulate((width + spacing for width in widths[:-1]), initial=0.0)
    # Rounding can carry the last end above 1, which plotly refuses.
    return [(start, min(start + width, 1.0)) for start, width in zip(starts, widths, strict=True)]


_POSITIONS = ("top center", "bottom center", "middle right", "middle left", "top right", "bottom right", "top left")
"""Plotly's names of the places beside a point, the preferred ones first."""
_RADIUS = 7.0
"""Of a mark, in pixels."""
_FEW, _MUCH, _BEYOND = 3, 2.5, 1.35
"""Values that an axis may cut off, how many times the others these must be, and how far it goes beyond the others."""
_LINE = 2.0
"""Pixels beside a line that a label keeps free."""


def fitted(values: Sequence[float], limit: float | None = None, *, zero: float = tuning.AXIS_FROM_ZERO) -> AxisRange:
    """A range from 0, or, where all values lie so close together that this would hide their differences (the least is
    at least `zero` of the largest), around the values. A `limit` is kept in sight where that costs at most half of the
    axis."""
    least, most = min(values), max(values)
    spread = (most - least) or 0.1 * (most or 1.0)
    with_limit = max(most, limit or 0.0)
    if least < zero * most or not least:
        high = with_limit if with_limit <= 2 * most else most
        return AxisRange(0.0, 1.12 * high)
    high = with_limit if with_limit - most <= spread else most
    return AxisRange(max(0.0, least - 0.3 * spread), high + 0.3 * spread)


def end_of_most(values: Sequence[float], room: float = 1.0) -> float:
    """The end of an axis from 0 that shows nearly all values, `room` times the largest: the few that are so much larger
    that all others would be flat are cut off, as those of the loss."""
    descending = sorted(values, reverse=True) or [0.0]
    usual = descending[min(max(_FEW, len(values) // 50), len(descending) - 1)]
    return room * (descending[0] if descending[0] <= _MUCH * usual or not usual else _BEYOND * usual)


def label_positions(
    points: Sequence[tuple[float, float]],
    texts: Sequence[str],
    x: AxisRange,
    y: AxisRange,
    *,
    pixels: tuple[float, float] = (560.0, 320.0),
    radii: Sequence[float] | None = None,
    upright: Sequence[float] = (),
) -> list[str]:
    """For each point the place of its label, in plotly's words, so that labels cover neither points nor one another as
    far as possible. `pixels` is about the size of the panel; '' is no label. `radii` are those of the marks in pixels,
    at least the usual one; `upright` are the x of vertical lines, which labels do not cross either."""
    at = [
        ((px - x.low) / (x.high - x.low) * pixels[0], (py - y.low) / (y.high - y.low) * pixels[1]) for px, py in points
    ]
    reach = [max(_RADIUS, radius) for radius in radii or [0.0] * len(at)]
    taken = [(px - r, py - r, px + r, py + r) for (px, py), r in zip(at, reach, strict=True)]
    for line in upright:
        px = (line - x.low) / (x.high - x.low) * pixels[0]
        taken.append((px - _LINE, 0.0, px + _LINE, pixels[1]))
    chosen = []
    for (px, py), text, radius in zip(at, texts, reach, strict=True):
        boxes = {position: _box(px, py, radius + 1.0, text, position) for position in _POSITIONS}
        overlaps = {
            position: sum(_overlap(box, other) for other in taken) + 4 * _outside(box, pixels)
            for position, box in boxes.items()
        }
        best = min(_POSITIONS, key=lambda position: overlaps[position])
        if text:
            taken.append(boxes[best])
        chosen.append(best)
    return chosen


_Box = tuple[float, float, float, float]


def _box(px: float, py: float, away: float, text: str, position: str) -> _Box:
    """About the pixels that a label covers that is so far from its point: left, bottom, right, top."""
    width, height = 6.6 * len(text), 15.0
    vertical, horizontal = position.split(" ")
    left = px + {"center": -width / 2, "right": away, "left": -away - width}[horizontal]
    bottom = py + {"top": away, "middle": -height / 2, "bottom": -away - height}[vertical]
    return left, bottom, left + width, bottom + height


def _overlap(a: _Box, b: _Box) -> float:
    width, height = min(a[2], b[2]) - max(a[0], b[0]), min(a[3], b[3]) - max(a[1], b[1])
    return max(0.0, width) * max(0.0, height)


def _outside(box: _Box, pixels: tuple[float, float]) -> float:
    whole = (box[2] - box[0]) * (box[3] - box[1])
    return whole - _overlap(box, (0.0, 0.0, *pixels))


def on_circle(number: int, count: int) -> tuple[float, float]:
    """The place of one of `count` nodes on a circle, from the top on, clockwise."""
    angle = math.pi / 2 - 2 * math.pi * number / count
    return math.cos(angle), math.sin(angle)
