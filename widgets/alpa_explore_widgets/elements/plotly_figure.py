"""A plotly figure in a notebook page that holds one copy of plotly.js, however many figures it shows.

plotly's own FigureWidget sends its 5 MB with every figure. Here the page asks once, gets the library gzipped (1.5 MB),
and a change of the figure is one message and one redraw (`Plotly.react`), whatever changed: no trace is added, moved or
restyled by hand, so figures stay pure functions of the plan. What a figure says again and again (hover texts, the
template) costs nothing on the wire: it goes gzipped, some 300 kB of JSON as 20 kB in under a millisecond.
"""

from __future__ import annotations

import gzip
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anywidget
import traitlets

from alpa_explore.figures.style import CONFIG

if TYPE_CHECKING:
    import plotly.graph_objects as go

STATIC = Path(__file__).parents[1] / "static"


@cache
def _library() -> bytes:
    """plotly.js as the browser asks for it, gzipped."""
    from plotly.offline import get_plotlyjs

    return gzip.compress(get_plotlyjs().encode(), 5)


class PlotlyFigure(anywidget.AnyWidget):
    """Shows a figure; assign with `draw`."""

    _esm = STATIC / "plotly_figure.js"

    packed = traitlets.Bytes(b"").tag(sync=True)
    """The figure as plotly's JSON, gzipped; empty draws nothing."""
    config = traitlets.Dict(CONFIG).tag(sync=True)
    """plotly.js configuration."""
    label = traitlets.Unicode("").tag(sync=True)
    """Accessible name: what the figure shows, in words."""
    height = traitlets.Int(480).tag(sync=True)
    """Pixels."""
    selection = traitlets.Unicode("").tag(sync=True)
    """Key of what is selected (`alpa_explore.figures.keys`): marks of other things are faint. A click sets it."""
    busy = traitlets.Bool(False).tag(sync=True)
    """True greys the figure and says 'computing…'."""

    def __init__(self, **traits: Any) -> None:
        super().__init__(**traits)
        self.on_msg(self._answer)

    def draw(self, figure: go.Figure, label: str) -> None:
        """Show `figure`; `label` says what it shows to those who do not see it."""
        height = figure.layout.height
        with self.hold_sync():
            self.label = label
            if height:
                self.height = int(height)
            # No time of day in it: an equal figure is no change and no message.
            self.packed = gzip.compress((figure.to_json(validate=False) or "").encode(), 3, mtime=0)

    @property
    def figure_json(self) -> str:
        """The figure that is shown as plotly's JSON; '' for none."""
        return gzip.decompress(self.packed).decode() if self.packed else ""

    def _answer(self, _widget: object, content: dict[str, Any], _buffers: object) -> None:
        if content.get("kind") == "plotly please":
            self.send({"kind": "plotly"}, buffers=[_library()])
