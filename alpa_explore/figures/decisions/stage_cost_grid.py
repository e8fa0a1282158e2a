"""Layout of the stage costs figure: the panels of all submeshes are cells of one grid, drawn as one heatmap.

With blank cells between the panels a browser draws one pair of axes and a handful of traces, however many submeshes
there are.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from alpa_explore.figures import tuning
from alpa_explore.numerics.arrays import Floats

_HEADING_PIXELS = 30
"""Between two rows of panels."""
_CELL_PIXELS, _LETTERED_CELL_PIXELS, _LEAST_PANEL_PIXELS = 9, 32, 150
"""Height of a cell, of a cell with text in it, and the least height of a panel."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PanelGrid:
    """A panel for each submesh; in a panel, a cell for each range (first layer down, last layer across)."""

    layers: int
    panels: int

    @property
    def lettered(self) -> bool:
        """Whether the latencies are written into the cells."""
        return self.layers <= tuning.LETTERED_LAYERS

    @property
    def cell_pixels(self) -> float:
        """Height of a cell."""
        return max(_LEAST_PANEL_PIXELS / self.layers, _LETTERED_CELL_PIXELS if self.lettered else _CELL_PIXELS)

    @property
    def columns(self) -> int:
        """Panels beside each other."""
        return min(self.panels, 3 if self.panels in (3, 5, 6) else 4) or 1

    @property
    def rows(self) -> int:
        """Panels below each other."""
        return max(1, math.ceil(self.panels / self.columns))

    @property
    def column_step(self) -> int:
        """Cells from one panel to the next beside it."""
        return self.layers + max(1, self.layers // 8)

    @property
    def heading_cells(self) -> int:
        """Cells above each panel, for its heading."""
        return math.ceil(_HEADING_PIXELS / self.cell_pixels)

    @property
    def row_step(self) -> int:
        """Cells from one panel to the next below it."""
        return self.heading_cells + self.layers

    @property
    def shape(self) -> tuple[int, int]:
        """Cells down and across."""
        return self.rows * self.row_step, (self.columns - 1) * self.column_step + self.layers

    def cell(self, panel: int, layers: tuple[int, int] = (0, 0)) -> tuple[int, int]:
        """Cell of a range of layers in a panel: (down, across)."""
        row, column = divmod(panel, self.columns)
        return row * self.row_step + self.heading_cells + layers[0], column * self.column_step + layers[1]

    def blank_numbers(self) -> Floats:
        """NaN for every cell."""
        return np.full(self.shape, np.nan)

    def blank_texts(self) -> NDArray[np.object_]:
        """An empty text for every cell."""
        return np.full(self.shape, "", dtype=object)

    def ticks(self, starts: Sequence[int]) -> dict[str, Any]:
        """An axis with the numbers of the layers at each of the panels that start at these cells."""
        step = _tick_step(self.layers)
        labels = [(start + layer, str(layer)) for start in starts for layer in range(0, self.layers, step)]
        return {
            "tickmode": "array",
            "tickvals": [place for place, _ in labels],
            "ticktext": [text for _, text in labels],
        }


def _tick_step(layers: int) -> int:
    return 1 if layers <= 10 else 2 if layers <= 20 else 8 if layers <= 80 else 32
