"""What the page draws from a document, without the kernel: the graph of a stage (laid out by dagre,
`static/dagre.NOTICE`), and the playback of an iteration."""

from typing import Any

import traitlets

from alpa_explore_widgets.elements.page_widget import STATIC, DocumentWidget, module_with_helpers


class DataflowGraph(DocumentWidget):
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

    label = traitlets.Unicode("").tag(sync=True)
    """Accessible name: what the graph shows, in words."""
    waiting = traitlets.Unicode("The graph appears with the first plan.").tag(sync=True)
    """What is said in place of a graph that was not sent yet."""
    selection = traitlets.Unicode("").tag(sync=True)
    """Key of the selection (`alpa_explore.figures.keys`); what it does not mean is faded. An operator sets it."""
    busy = traitlets.Bool(False).tag(sync=True)
    """True fades the graph."""

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
