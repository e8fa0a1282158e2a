"""Where points and their labels go: axis ranges that fit the points, and labels that do not cover one another."""

from collections.abc import Sequence
from typing import NamedTuple

from alpa_explore.figures import tuning

_POSITIONS = ("top center", "bottom center", "middle right", "middle left", "top right", "bottom right", "top left")
"""Plotly's names of the places beside a point, the preferred ones first."""
_RADIUS = 7.0
"""Of a mark, in pixels."""
_FEW, _MUCH, _BEYOND = 3, 2.5, 1.35
"""Values that an axis may cut off, how many times the others these must be, and how far it goes beyond the others."""
_LINE = 2.0
"""Pixels beside a line that a label keeps free."""


class AxisRange(NamedTuple):
    """The ends of an axis."""

    low: float
    high: float

    def title(self, text: str) -> str:
        """The axis title; it says where the axis does not begin at 0."""
        return f"{text}, axis not from 0" if self.low > 0 else text


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
