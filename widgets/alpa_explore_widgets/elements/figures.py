"""What the page draws: plotly figures; documents, without the kernel: the graph of a stage (laid out by dagre,
`static/dagre.NOTICE`), the playback of an iteration, and HTML whose marks follow the selection.

plotly's own FigureWidget sends its 5 MB with every figure. Here the page requests the library once, gzipped (1.5 MB).
A change of a figure is one message and one redraw (`Plotly.react`): no trace is added, moved or restyled on its own, so
that figures stay pure functions of the plan. Figures are sent gzipped: hover texts and templates repeat so much that
300 kB of JSON become 20 kB, in less than a millisecond.
"""

import gzip
import threading
from collections.abc import Callable
from functools import cache
from importlib import import_module
from pkgutil import iter_modules
from typing import Any

import traitlets

from alpa_explore.figures.style import CONFIG, Figure
from alpa_explore_widgets.elements.page_widget import STATIC, DocumentWidget, PageFigure, module_with_helpers


class DataflowGraph(DocumentWidget, PageFigure):
    """Shows a document of `alpa_explore.figures.dataflow.document`; assign with `draw`.

    What is open, the zoom, and the place of the keyboard stay in the page; the selection is shared.
    """

    module = module_with_helpers(
        "keys.js",
        "unpack.js",
        "dagre.min.js",
        "dataflow_layout.js",
        "dataflow_tiles.js",
        "walk.js",
        "dataflow_graph.js",
    )

    _css = STATIC / "dataflow_graph.css"

    def draw(self, document: dict[str, Any], label: str) -> None:
        """Show `document`; `label` describes it for screen readers."""
        with self.hold_sync():
            self.label = label
            self.load(document)


class TimelinePlayer(DocumentWidget):
    """Plays an iteration: a cursor over the figure of the timeline, and what each submesh does then.

    Shows a document of `alpa_explore.figures.timelines.playback`; where `load` gives another one, playback stops, and
    the moment stays if the iteration has it. No frame asks the kernel.
    """

    module = module_with_helpers("unpack.js", "timeline_player.js")


class LinkedView(PageFigure):
    """Marks have `data-key`, a key of alpa_explore.figures.keys; buttons with `data-tab` ask for the tab of that
    title."""

    module = module_with_helpers("keys.js", "unpack.js", "ahead.js", "walk.js", "plotly_library.js", "linked_view.js")

    html = traitlets.Unicode().tag(sync=True)
    """What is shown; names in it are escaped."""

    def __init__(self, go_to: Callable[[str], None], **traits: Any) -> None:
        super().__init__(**traits)
        self._go_to = go_to
        self.on_msg(self.receive)

    def receive(self, _widget: object, content: dict[str, Any], _buffers: object) -> None:
        """A link to a tab was pressed on the page, or it asks for plotly ahead."""
        if content.get("kind") == "tab":
            self._go_to(str(content.get("title", "")))
        _answer(self, content)


def _answer(widget: PageFigure, content: dict[str, Any]) -> None:
    """Where the page asks for plotly, once, for all its figures."""
    if content.get("kind") == "request plotly":
        widget.send({"kind": "plotly"}, buffers=[_plotly_js()])
        # The page has its overview by now; the first figure of a tab does not wait for this.
        threading.Thread(target=warm_up, name="alpa-explore warm-up", daemon=True).start()


@cache
def _plotly_js() -> bytes:
    """plotly.js, gzipped. Cached for the process: it takes a fraction of a second and never changes."""
    from plotly.offline import get_plotlyjs

    return gzip.compress(get_plotlyjs().encode(), 5)


def warm_up() -> None:
    """Load what the first figure of a tab needs, which takes seconds: plotly, its templates, the modules of figures,
    and what runs the kernels of schedules."""
    from alpa_explore import figures
    from alpa_explore.figures.style import template
    from alpa_explore.schedules.orders.v_shape import with_weight_halves

    for theme in ("light", "dark"):
        template(theme)
    for room in _ROOMS:
        paths = [f"{folder}/{room}" for folder in figures.__path__]
        for found in iter_modules(paths, f"{figures.__name__}.{room}."):
            import_module(found.name)
    assert with_weight_halves.dispatcher is not None


_ROOMS = ("accuracy", "comparisons", "dataflow", "decisions", "timelines")
"""Of `alpa_explore.figures`: those of the tabs."""


class PlotlyFigure(PageFigure):
    """Shows a figure; assign with `draw`."""

    module = module_with_helpers(
        "keys.js", "unpack.js", "ahead.js", "fade_marks.js", "plotly_library.js", "plotly_figure.js"
    )

    packed = traitlets.Bytes(b"").tag(sync=True)
    """The figure as plotly's JSON, gzipped; nothing is drawn while it is empty."""
    config = traitlets.Dict(CONFIG).tag(sync=True)
    """plotly.js configuration."""
    height = traitlets.Int(480).tag(sync=True)
    """Pixels."""
    brushed = traitlets.List(traitlets.Float()).tag(sync=True)
    """From, to as shares of the axis in `layout.meta.brush`, after it was dragged over; else empty."""

    def __init__(self, **traits: Any) -> None:
        super().__init__(**traits)
        self.on_msg(self.receive)

    def draw(self, figure: Figure, label: str) -> None:
        """Show `figure`; `label` describes it for screen readers."""
        height = figure.layout.height
        with self.hold_sync():
            self.label = label
            if height:
                self.height = int(height)
            self.packed = self.pack(figure)

    @staticmethod
    def pack(figure: Figure) -> bytes:
        """A figure as it is sent."""
        # mtime=0: an equal figure gives equal bytes, hence no change and no message.
        return gzip.compress((figure.to_json(validate=False) or "").encode(), 3, mtime=0)

    @property
    def figure_json(self) -> str:
        """The shown figure as plotly's JSON; '' for none."""
        return gzip.decompress(self.packed).decode() if self.packed else ""

    def receive(self, _widget: object, content: dict[str, Any], _buffers: object) -> None:
        """The page asks for plotly."""
        _answer(self, content)
