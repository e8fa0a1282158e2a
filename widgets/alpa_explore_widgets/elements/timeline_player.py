"""Plays an iteration on the page: a cursor over the figure of the timeline, and what each submesh does then."""

from __future__ import annotations

import gzip
import json
from typing import Any

import traitlets

from alpa_explore_widgets.elements.page_widget import PageWidget
from alpa_explore_widgets.elements.static_files import module_with_helpers


class TimelinePlayer(PageWidget):
    """Shows a document of `alpa_explore.figures.timelines.playback`; assign with `load`. No frame asks the kernel."""

    _esm = module_with_helpers("unpack.js", "timeline_player.js")

    packed = traitlets.Bytes(b"").tag(sync=True)
    """The document as JSON, gzipped; nothing is shown while it is empty."""

    def load(self, document: dict[str, Any]) -> None:
        """Play `document`; where it is another one, playback stops, and the moment stays if the iteration has it."""
        # mtime=0: an equal document gives equal bytes, hence no change and no message.
        self.packed = gzip.compress(json.dumps(document, ensure_ascii=False).encode(), 3, mtime=0)

    @property
    def document(self) -> dict[str, Any]:
        """The loaded document; empty for none."""
        return dict(json.loads(gzip.decompress(self.packed))) if self.packed else {}
