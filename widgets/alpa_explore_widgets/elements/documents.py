"""What the page draws from a document, without the kernel: the graph of a stage (laid out by dagre,
`static/dagre.NOTICE`), and the playback of an iteration."""

from collections.abc import Callable
from typing import Any

import traitlets

from alpa_explore_widgets.elements.page_widget import STATIC, DocumentWidget, PageFigure, module_with_helpers


class DataflowGraph(DocumentWidget, PageFigure):
    """Shows a document of `alpa_explore.figures.dataflow.document`; assign with `draw`.

    What is open, the zoom, and the place of the keyboard stay in the page; the selection is shared.
    """

    _esm = module_with_helpers(
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

    _esm = module_with_helpers("unpack.js", "timeline_player.js")


class LinkedView(PageFigure):
    """Marks have `data-key`, a key of alpa_explore.figures.keys; buttons with `data-tab` ask for the tab of that
    title."""

    _esm = module_with_helpers("keys.js", "unpack.js", "ahead.js", "walk.js", "linked_view.js")

    html = traitlets.Unicode().tag(sync=True)
    """What is shown; names in it are escaped."""

    def __init__(self, go_to: Callable[[str], None], **traits: Any) -> None:
        super().__init__(**traits)
        self._go_to = go_to
        self.on_msg(self.receive)

    def receive(self, _widget: object, content: dict[str, Any], _buffers: object) -> None:
        """A link to a tab was pressed on the page."""
        if content.get("kind") == "tab":
            self._go_to(str(content.get("title", "")))
