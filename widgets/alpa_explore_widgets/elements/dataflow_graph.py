"""The graph of a stage on the page: laid out by dagre (`static/dagre.NOTICE`) and drawn as SVG, without the kernel."""

from __future__ import annotations

import gzip
import json
from typing import Any

import traitlets

from alpa_explore_widgets.elements.page_widget import PageWidget
from alpa_explore_widgets.elements.static_files import module_with_helpers


class DataflowGraph(PageWidget):
    """Shows a document of `alpa_explore.figures.dataflow.document`; assign with `draw`.

    What is open, the zoom, and the place of the keyboard stay in the page; the selection is shared.
    """

    _esm = module_with_helpers(
        "keys.js", "unpack.js", "dagre.min.js", "dataflow_layout.js", "dataflow_tiles.js", "dataflow_graph.js"
    )

    packed = traitlets.Bytes(b"").tag(sync=True)
    """The document as JSON, gzipped; nothing is drawn while it is empty."""
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
            # mtime=0: an equal document gives equal bytes, hence no change and no message.
            self.packed = gzip.compress(json.dumps(document, ensure_ascii=False).encode(), 3, mtime=0)

    @property
    def document(self) -> dict[str, Any]:
        """The shown document; empty for none."""
        return dict(json.loads(gzip.decompress(self.packed))) if self.packed else {}
