"""HTML whose marks are linked with the figures: they carry keys, follow the selection, and select what is clicked."""

from collections.abc import Callable
from typing import Any

import traitlets

from alpa_explore_widgets.elements.page_widget import PageWidget, module_with_helpers


class LinkedView(PageWidget):
    """Marks have `data-key`, a key of alpa_explore.figures.keys; buttons with `data-tab` ask for the tab of that
    title."""

    _esm = module_with_helpers("keys.js", "unpack.js", "ahead.js", "walk.js", "linked_view.js")

    html = traitlets.Unicode().tag(sync=True)
    """What is shown; names in it are escaped."""
    ahead = traitlets.Dict().tag(sync=True)
    """B -> what is shown for it, gzipped: shown when the slider is moved there, before Python answers."""
    waiting = traitlets.Unicode("The figure appears with the first plan.").tag(sync=True)
    """What is said while `html` is empty."""
    selection = traitlets.Unicode("").tag(sync=True)
    """Key of the selection: marks of other things are faded. A click sets it."""
    busy = traitlets.Bool(False).tag(sync=True)
    """True fades the view."""

    def __init__(self, go_to: Callable[[str], None], **traits: Any) -> None:
        super().__init__(**traits)
        self._go_to = go_to
        self.on_msg(self.receive)

    def receive(self, _widget: object, content: dict[str, Any], _buffers: object) -> None:
        """A link to a tab was pressed on the page."""
        if content.get("kind") == "tab":
            self._go_to(str(content.get("title", "")))
