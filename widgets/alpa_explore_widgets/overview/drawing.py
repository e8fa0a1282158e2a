"""A small drawing: as HTML, shapes as SVG that stretches to the size of its place, and texts over it that do not; or as
SVG of one size with texts in it, for where nothing runs.

Places along x are shares of the width, 0 to 1; along y they are pixels from the top, which a high window makes larger.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape
from typing import NamedTuple

HEIGHT = 160
"""Of every drawing, in pixels, at least: four of them, in two rows, fit JupyterLab's default window."""
_UNITS = 10_000
"""Of the SVG along x: whole numbers, which are shorter than fractions."""


class Item(NamedTuple):
    """A line of a list."""

    share: str
    what: str
    color: str | None = None
    """Of its square; '' is that of waits, None is for none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    """One figure of the overview."""

    tab: str
    """Title of the tab that shows the same in depth."""
    line: str
    """What the figure shows, in one line."""
    name: str
    """What the drawing shows, with its numbers."""
    figure: Drawing
    height: float = HEIGHT
    """Pixels."""
    lists: tuple[tuple[str, tuple[Item, ...]], ...] = ()
    """Below the drawing: heading, items."""

    @property
    def drawing(self) -> str:
        """HTML."""
        below = "".join(_list(heading, items) for heading, items in self.lists)
        return self.figure.html(self.name, self.height) + (
            f'<div class="alpa-card-lists">{below}</div>' if below else ""
        )


@dataclass(slots=True, kw_only=True)
class Drawing:
    """Shapes and texts, in the order in which they were added; `html` makes the drawing of them."""

    left: int = 0
    """Pixels left of the shapes, for names of rows."""
    _shapes: list[str] = field(default_factory=list)
    _texts: list[tuple[float, float, str, str, str]] = field(default_factory=list)
    """x, y, text, css, colour; those with css 'row-name' end left of the shapes."""

    def group(self, key: str, hint: str, shapes: Sequence[str]) -> None:
        """Shapes that stand for what `key` names, with a tooltip."""
        self._shapes.append(f'<g data-key="{escape(key)}"><title>{escape(hint)}</title>{"".join(shapes)}</g>')

    def plain(self, *shapes: str) -> None:
        """Shapes that stand for nothing that can be selected."""
        self._shapes += shapes

    def text(self, x: float, y: float, text: str, *, css: str = "", color: str = "") -> None:
        """A text that begins at `x`, with its middle at `y`; `css` 'middle' centres it at `x`, 'end' ends it there."""
        self._texts.append((x, y, text, css or "start", color))

    def row_name(self, y: float, text: str) -> None:
        """The name of a row, left of the shapes."""
        self._texts.append((0.0, y, text, "row-name", ""))

    def html(self, name: str, height: float = HEIGHT) -> str:
        """The drawing; `name` says what it shows."""
        box_size = f"0 0 {_UNITS} {height:.0f}"
        texts = "".join(self._span(height, *text) for text in self._texts)
        return (
            f'<div class="alpa-drawing" style="margin-left:{self.left}px;--alpa-height:{height:.0f}px">'
            f'<svg viewBox="{box_size}" preserveAspectRatio="none" role="img" aria-label="{escape(name)}">'
            f"{''.join(self._shapes)}</svg>{texts}</div>"
        )

    def svg(self, width: float) -> str:
        """The same as part of an SVG, in a place of `width` pixels."""
        across = (width - self.left) / _UNITS
        texts = ""
        for x, y, text, css, color in self._texts:
            left = -6.0 if css == "row-name" else x * across * _UNITS
            ink = f' style="fill:{color}"' if color else ""
            texts += f'<text x="{left:.1f}" y="{y + 4:.0f}" class="{css}"{ink}>{escape(text)}</text>'
        shapes = f'<g transform="scale({across:.6g} 1)">{"".join(self._shapes)}</g>'
        return f'<g transform="translate({self.left})">{shapes}{texts}</g>'

    def _span(self, height: float, x: float, y: float, text: str, css: str, color: str) -> str:
        where = f"width:{self.left - 6}px" if css == "row-name" else f"left:{100 * x:.2f}%"
        ink = f";color:{color}" if color else ""
        return f'<span class="alpa-{css}" style="{where};top:{100 * y / height:.1f}%{ink}">{escape(text)}</span>'


def _list(heading: str, items: Sequence[Item]) -> str:
    lines = []
    for share, what, color in items:
        ground = f'style="background:{color}"' if color else 'class="alpa-idle"'
        swatch = "" if color is None else f"<i {ground}></i>"
        text = f"<b>{escape(share)}</b> {escape(what)}"
        lines.append(f'<li title="{escape(share)} {escape(what)}">{swatch}{text}</li>')
    listed = "".join(lines) or "<li>nothing that is noticeable</li>"
    return f'<div><p title="{escape(heading)}">{escape(heading)}</p><ul>{listed}</ul></div>'


def box(x: float, y: float, width: float, height: float, *, fill: str = "", css: str = "") -> str:
    """A rectangle."""
    attributes = (f' fill="{fill}"' if fill else "") + (f' class="alpa-{css}"' if css else "")
    left, right = _place(x), _place(x + width)
    return f'<rect x="{left}" y="{y:.1f}" width="{max(right - left, 0)}" height="{max(height, 0.0):.1f}"{attributes}/>'


def boxes(spans: Sequence[tuple[float, float]], y: float, height: float, *, fill: str) -> str:
    """Rectangles of one height and colour as one shape; `spans` are (from, to) along x."""
    path = "".join(f"M{_place(a)} {y:.1f}V{y + height:.1f}H{_place(b)}V{y:.1f}z" for a, b in spans)
    return f'<path d="{path}" fill="{fill}"/>'


def bars(spans: Sequence[tuple[float, float, float]], bottom: float, *, fill: str) -> str:
    """Bars that stand on `bottom` as one shape; `spans` are (from, to, height)."""
    path = "".join(f"M{_place(a)} {bottom:.1f}V{bottom - h:.1f}H{_place(b)}V{bottom:.1f}z" for a, b, h in spans)
    return f'<path d="{path}" fill="{fill}"/>'


def line(x: float, top: float, bottom: float) -> str:
    """A dotted vertical line."""
    return f'<path d="M{_place(x)} {top:.1f}V{bottom:.1f}" class="alpa-dotted"/>'


def _place(x: float) -> int:
    return round(_UNITS * x)
