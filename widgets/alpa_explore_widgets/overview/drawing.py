"""A small drawing as HTML: shapes as SVG that stretches to the width of its place, and texts over it that do not.

Places along x are shares of the width, 0 to 1; along y they are pixels from the top.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape

HEIGHT = 160
"""Of every drawing, in pixels: four of them, in two rows, fit JupyterLab's default window."""
_UNITS = 10_000
"""Of the SVG along x: whole numbers, which are shorter than fractions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    """One figure of the overview."""

    tab: str
    """Title of the tab that shows the same in depth."""
    line: str
    """What the figure shows, in one line."""
    drawing: str
    """HTML."""


@dataclass(slots=True, kw_only=True)
class Drawing:
    """Shapes and texts, in the order in which they were added; `html` makes the drawing of them."""

    left: int = 0
    """Pixels left of the shapes, for names of rows."""
    _shapes: list[str] = field(default_factory=list)
    _texts: list[str] = field(default_factory=list)

    def group(self, key: str, hint: str, shapes: Sequence[str]) -> None:
        """Shapes that stand for what `key` names, with a tooltip."""
        self._shapes.append(f'<g data-key="{escape(key)}"><title>{escape(hint)}</title>{"".join(shapes)}</g>')

    def plain(self, *shapes: str) -> None:
        """Shapes that stand for nothing that can be selected."""
        self._shapes += shapes

    def text(self, x: float, y: float, text: str, *, css: str = "", color: str = "") -> None:
        """A text that begins at `x`, with its middle at `y`; `css` 'middle' centres it at `x`, 'end' ends it there."""
        ink = f";color:{color}" if color else ""
        self._texts.append(
            f'<span class="alpa-{css or "start"}" style="left:{100 * x:.2f}%;top:{y:.0f}px{ink}">{escape(text)}</span>'
        )

    def row_name(self, y: float, text: str) -> None:
        """The name of a row, left of the shapes."""
        self._texts.append(
            f'<span class="alpa-row-name" style="width:{self.left - 6}px;top:{y:.0f}px">{escape(text)}</span>'
        )

    def html(self, name: str, height: float = HEIGHT) -> str:
        """The drawing; `name` says what it shows."""
        box_size = f"0 0 {_UNITS} {height:.0f}"
        return (
            f'<div class="alpa-drawing" style="margin-left:{self.left}px;height:{height:.0f}px">'
            f'<svg viewBox="{box_size}" preserveAspectRatio="none" role="img" aria-label="{escape(name)}">'
            f"{''.join(self._shapes)}</svg>{''.join(self._texts)}</div>"
        )


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
