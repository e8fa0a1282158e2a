"""A grid of plots in one figure, made as plain dicts and put together once.

plotly checks every property of a figure each time that one is changed, which takes several times as long as everything
else that a figure needs. Here nothing is checked; a test makes the same figures with plotly's checks.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from alpa_explore.figures.style import layout_of, unchecked

if TYPE_CHECKING:
    import plotly.graph_objects as go
    from plotly.basedatatypes import BaseTraceType


class Plots:
    """`row_heights` and `column_widths` are relative; `spacing` is between plots, as shares of the figure's (width,
    height); row 1 is at the top. With `shared_x` the plots of a column have one axis, labelled at the bottom."""

    def __init__(
        self,
        row_heights: Sequence[float],
        column_widths: Sequence[float] = (1.0,),
        *,
        spacing: tuple[float, float] = (0.0, 0.0),
        shared_x: bool = False,
        titles: Sequence[str] = (),
    ) -> None:
        self._columns = len(column_widths)
        self._traces: list[dict[str, Any]] = []
        self._layout: dict[str, Any] = {"annotations": []}
        across = _domains(column_widths, spacing[0])
        down = [(1.0 - bottom, 1.0 - top) for top, bottom in _domains(row_heights, spacing[1])]
        for row, y in enumerate(down, 1):
            for column, x in enumerate(across, 1):
                number = self._number(row, column)
                x_axis: dict[str, Any] = {"anchor": f"y{number}", "domain": list(x)}
                if shared_x and row < len(down):
                    x_axis |= {"matches": f"x{self._number(len(down), column)}", "showticklabels": False}
                self._layout[f"xaxis{number}"] = x_axis
                self._layout[f"yaxis{number}"] = {"anchor": f"x{number}", "domain": list(y)}
        for title, (y, x) in zip(titles, [(y, x) for y in down for x in across], strict=False):
            place = {"x": sum(x) / 2, "y": y[1], "xref": "paper", "yref": "paper"}
            anchors = {"xanchor": "center", "yanchor": "bottom", "showarrow": False, "font": {"size": 13}}
            self._layout["annotations"].append({"text": title, **place, **anchors})

    def add_trace(self, trace: BaseTraceType | dict[str, Any], row: int = 1, col: int = 1) -> None:
        """Add a trace to a plot."""
        number = self._number(row, col)
        as_dict = trace if isinstance(trace, dict) else trace.to_plotly_json()
        self._traces.append({**as_dict, "xaxis": f"x{number}", "yaxis": f"y{number}"})

    def add_annotation(self, annotation: dict[str, Any]) -> None:
        """Add a text."""
        self._layout["annotations"].append(annotation)

    def update_xaxes(self, row: int | None = None, col: int | None = None, **settings: Any) -> None:
        """Set properties of the x axes of a row, a column, one plot, or all."""
        self._update("xaxis", row, col, settings)

    def update_yaxes(self, row: int | None = None, col: int | None = None, **settings: Any) -> None:
        """The same for y axes."""
        self._update("yaxis", row, col, settings)

    def dress(self, title: str, *, theme: str, height: int, **layout: Any) -> go.Figure:
        """The figure with `style.layout_of`."""
        return self.figure(layout_of(title, theme=theme, height=height, **layout))

    def figure(self, layout: dict[str, Any]) -> go.Figure:
        """The figure with a layout from `style.layout_of`: to change one in the finished figure takes plotly as long as
        to make it."""
        return unchecked(self._traces, layout | self._layout)

    def _number(self, row: int, column: int) -> str:
        """What follows 'x' in plotly's name of an axis: nothing for the first."""
        number = (row - 1) * self._columns + column
        return str(number) if number > 1 else ""

    def _update(self, axis: str, row: int | None, col: int | None, settings: dict[str, Any]) -> None:
        if isinstance(settings.get("title"), str):
            settings = settings | {"title": {"text": settings["title"]}}
        for name, properties in self._layout.items():
            if not name.startswith(axis):
                continue
            of_row, of_column = divmod(int(name.removeprefix(axis) or 1) - 1, self._columns)
            if row in (None, of_row + 1) and col in (None, of_column + 1):
                properties.update(settings)


def _domains(sizes: Sequence[float], spacing: float) -> list[tuple[float, float]]:
    """(from, to) of each plot along one side."""
    room = 1.0 - spacing * (len(sizes) - 1)
    widths = [room * size / sum(sizes) for size in sizes]
    starts = accumulate((width + spacing for width in widths[:-1]), initial=0.0)
    # Rounding can carry the last end above 1, which plotly refuses.
    return [(start, min(start + width, 1.0)) for start, width in zip(starts, widths, strict=True)]
