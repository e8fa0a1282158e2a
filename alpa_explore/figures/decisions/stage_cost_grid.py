"""Layout of the stage costs figure: which submeshes have a panel, the cells of the panels, and their colours.

The panels are cells of one or two grids, each drawn as one heatmap: with blank cells between the panels a browser draws
few axes and traces, however many submeshes there are. In a panel, the first layer of a range is across and the number
of its layers is down, as far as anything can be of use and one row more: that takes less room than first against last
layer, half of which is always blank, so that the cells can hold their numbers.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

from alpa_explore import units
from alpa_explore.figures import tuning
from alpa_explore.figures.marks import axis, note
from alpa_explore.figures.style import Trace, empty, heat_scale
from alpa_explore.plans.report.tables import Row

Place = tuple[tuple[int, int], str]
"""A submesh – nodes, and devices of each –, and of unlike nodes the name of its devices."""

_WIDTH = 600
"""Of the panels in a JupyterLab window of usual size; in pixels, as all below."""
_NUMBER_WIDTH = 30
"""Two digits and their margins, in a window of half that size too."""
_BAR = 46
"""Pixels from the bottom of the figure to the title of the colour bar."""
_HEADING = 26
"""Between two rows of panels."""
_ROW, _SMALL_ROW, _LEAST_ROW = 26.0, 10.0, 4.0
"""Height of a cell with a number in it, of others, and where there are very many."""
_TALLEST = 330
"""Height of the cells of a grid; if there are more rows they are lower."""
_GREY = 0.09
"""Of the colour bar: what does not fit, at its lower end."""
_STEPS = (1, 2, 4, 8, 16, 32, 64, 128, 256)
"""Between the numbers at an axis."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """A submesh, and the numbers of layers that have a row."""

    place: Place
    least: int
    """Of a range that is known."""
    most: int
    """In the last row."""
    useful: bool
    """Whether a range fits and is not too slow."""
    used: bool
    """By the plan."""

    @property
    def single(self) -> bool:
        """Whether all its ranges have the same number of layers, above one: those of most devices hold the model."""
        return self.least == self.most > 1


@dataclass(frozen=True, slots=True, kw_only=True)
class PanelGrid:
    """Panels beside and below each other, as cells of one heatmap."""

    layers: int
    panels: tuple[Panel, ...]
    columns: int

    @property
    def cell_width(self) -> float:
        """Of a cell in a window of usual size."""
        return _WIDTH / self._across

    @property
    def lettered(self) -> bool:
        """Whether the cells have room for their numbers."""
        return self.cell_width >= _NUMBER_WIDTH and self.cell_pixels >= 0.6 * _ROW

    @property
    def letters(self) -> int:
        """Size of the numbers in the cells, which a low window makes lower still."""
        return 11 if self.cell_pixels >= 0.9 * _ROW else 9

    @property
    def digits(self) -> int:
        """Of the numbers in the cells."""
        return 3 if self.cell_width >= 1.5 * _NUMBER_WIDTH else 2

    @property
    def cell_pixels(self) -> float:
        """Height of a cell."""
        highest = _ROW if self.cell_width >= _NUMBER_WIDTH else _SMALL_ROW
        return max(_LEAST_ROW, min(highest, _TALLEST / sum(self._heights)))

    @property
    def height(self) -> float:
        """In pixels."""
        return self.shape[0] * self.cell_pixels

    @property
    def shape(self) -> tuple[int, int]:
        """Cells down and across."""
        return sum(self._heights) + self._heading * len(self._heights), self._across

    @property
    def _across(self) -> int:
        return (self.columns - 1) * self._column_step + self.layers

    @property
    def _column_step(self) -> int:
        return self.layers + max(1, self.layers // 8)

    @property
    def _heights(self) -> list[int]:
        """Rows of cells in each row of panels."""
        rows = [panel.most - self._above(panel) for panel in self.panels]
        return [max(rows[i : i + self.columns]) for i in range(0, len(rows), self.columns)]

    @property
    def _heading(self) -> int:
        """Cells above a panel, for its heading."""
        return math.ceil(_HEADING / self.cell_pixels)

    def _above(self, panel: Panel) -> int:
        """Layers of the row above the first; panels beside each other share the numbers at the axis, but for one of a
        single row, whose heading says it."""
        return panel.least - 1 if self.columns == 1 or panel.single else 0

    def corner(self, panel: int) -> tuple[int, int]:
        """First cell of a panel: (down, across)."""
        row, column = divmod(panel, self.columns)
        return sum(self._heights[:row]) + (row + 1) * self._heading, column * self._column_step

    def cell(self, panel: int, layers: tuple[int, int]) -> tuple[int, int]:
        """Cell of a range of layers in a panel: (down, across)."""
        down, across = self.corner(panel)
        return down + layers[1] - layers[0] - self._above(self.panels[panel]), across + layers[0]

    def axes(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """The axes across and down, with the numbers of the layers at each panel."""
        down, across = self.shape
        room = 28 / self.cell_width, 20 / self.cell_pixels
        apart, step = (next((s for s in _STEPS if s >= least), _STEPS[-1]) for least in room)
        first, counts = range(0, self.layers, apart), dict[float, str]()
        starts = [self.corner(column)[1] for column in range(min(self.columns, len(self.panels)))]
        for row, rows in enumerate(self._heights):
            panel = row * self.columns
            if self.panels[panel].single and self.columns > 1:
                continue
            top, above = self.corner(panel)[0], self._above(self.panels[panel])
            counts |= {top + i: str(above + i + 1) for i in range(rows) if i % step == 0}
        numbers = {start + layer: str(layer) for start in starts for layer in first}
        return axis(span=(-0.5, across - 0.5), ticks=numbers), axis(span=(down - 0.5, -0.5), ticks=counts)


def panels_of(rows: Sequence[Row], slowest: float, submeshes: Sequence[Place] | None) -> list[Panel]:
    """Those asked for, or those that the plan uses, then the smallest that are useful, up to the limit.

    `slowest`: seconds above which a range is of no use.
    """
    by_shape: dict[Place, list[Row]] = {}
    for row in rows:
        by_shape.setdefault(place_of(row), []).append(row)
    panels = [_panel(shape, of_shape, slowest) for shape, of_shape in by_shape.items()]
    if submeshes is not None:
        return [panel for panel in panels if panel.place in submeshes]
    useful = sorted((p for p in panels if p.useful or p.used), key=lambda p: (not p.used, p.place))
    return useful[: max(tuning.STAGE_COST_PANELS, sum(p.used for p in useful))]


def place_of(row: Row) -> Place:
    """Where a row of the table of stage costs is."""
    return row["submesh"], row.get("device", "")


def _panel(place: Place, rows: Sequence[Row], slowest: float) -> Panel:
    counts = [row["layers"][1] - row["layers"][0] + 1 for row in rows]
    useful = [
        n
        for n, row in zip(counts, rows, strict=True)
        if (row["microbatches_fit"] and row["latency_seconds"] <= slowest) or row["stage"] is not None
    ]
    # One row below those shows where memory, or use, ends.
    end = max(max(useful, default=0) + 1, min(counts))
    return Panel(
        place=place,
        least=min(counts),
        most=max(n for n in counts if n <= end),
        useful=bool(useful),
        used=any(row["stage"] is not None for row in rows),
    )


def lay_out(layers: int, panels: Sequence[Panel]) -> list[PanelGrid]:
    """One grid if all panels have room for numbers; else the submeshes of the plan, and the others smaller."""
    beside = min(len(panels), round(_WIDTH // ((layers + 1) * (_NUMBER_WIDTH + 8))))
    used, others = [p for p in panels if p.used], [p for p in panels if not p.used]
    if beside >= 2 or not used or not others:
        parts = [(panels, max(1, beside))]
    else:
        parts = [(used, 1), (others, 3 if len(others) in (3, 5, 6, 9) else min(4, len(others)))]
    return [PanelGrid(layers=layers, panels=tuple(some), columns=columns) for some, columns in parts if some]


@dataclass(frozen=True, slots=True, kw_only=True)
class Colors:
    """The colours of the latencies, by their logarithm; below them the grey of what does not fit."""

    low: float
    """Seconds."""
    high: float
    t_max: float
    capped: bool
    """Whether there are latencies above `high`."""

    @classmethod
    def of(cls, rows: Sequence[Row], t_max: float, slowest: float) -> Self:
        """For the ranges of layers that fit, up to `slowest` seconds."""
        seconds = [row["latency_seconds"] for row in rows if row["microbatches_fit"]]
        # A little below the fastest, so that rounding cannot give that one the grey.
        low, high = 0.995 * max(min(seconds, default=1e-3), 1e-12), max(seconds, default=1e-3)
        most = max(low * 1.01, min(high, slowest))
        return cls(low=low, high=most, t_max=t_max, capped=high > most)

    @property
    def grey(self) -> float:
        """The value, on the scale of logarithms, of what does not fit."""
        low, high = math.log10(self.low), math.log10(self.high)
        return low - (high - low) * _GREY / (1 - _GREY)

    @property
    def unit(self) -> tuple[float, str]:
        """Divisor and name of the unit of all numbers in the figure."""
        return units.seconds_axis(self.t_max)

    def number(self, seconds: float, digits: int = 3) -> str:
        """In the unit of the figure, which the colour bar names."""
        value = seconds / self.unit[0]
        return f"{value:.{digits}g}" if value < 10**digits - 0.5 else f"{value:.0f}"

    def bar_title(self, below: int) -> Trace:
        """What the colour bar shows, as an annotation, where the figure ends `below` pixels under the grids: plotly
        would draw a title of the bar across it."""
        text, place = f"latency of a microbatch ({self.unit[1]})", {"yanchor": "middle", "yshift": _BAR - below}
        return note(text, 0.5, 0, size=13, refs=("paper", "paper"), **place)

    def axis(self) -> dict[str, Any]:
        """Layout of the colour axis, with t_max of the plan marked."""
        ticks = {m * 10.0**e: "" for e in range(-7, 5) for m in (1, 2, 5) if self.low <= m * 10.0**e <= self.high}
        apart = 0.16 * math.log(self.high / self.low)
        ticks = {t: self.number(t) for t in ticks if all(abs(math.log(t / o)) > apart for o in (self.t_max, self.high))}
        if self.low <= self.t_max <= self.high:
            ticks[self.t_max] = f"<b>{self.number(self.t_max)}</b> t_max"
        if abs(math.log(self.high / self.t_max)) > apart:
            ticks[self.high] = ("≥ " if self.capped else "") + self.number(self.high)
        places = [(self.grey + math.log10(self.low)) / 2, *map(math.log10, ticks)]
        scale = [[_GREY + (1 - _GREY) * place, color] for place, color in heat_scale("")]
        bar = {"orientation": "h", "tickangle": 0, "thickness": 12, "outlinewidth": 0, "xpad": 0, "ypad": 4}
        place = {"yref": "container", "y": 0, "yanchor": "bottom"}
        return {
            "colorscale": lambda theme: [[0, empty(theme)], [_GREY, empty(theme)], *scale],
            "cmin": self.grey,
            "cmax": math.log10(self.high),
            "colorbar": {**bar, **place, "tickvals": places, "ticktext": ["✕", *ticks.values()]},
        }
