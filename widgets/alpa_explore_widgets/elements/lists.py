"""A table with pins, which is sorted on the page."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import traitlets

from alpa_explore_widgets.elements.page_widget import PageWidget, module_with_helpers


class SortableTable(PageWidget):
    """A table that is sorted by a click on a heading, with rows that can be pinned to its top and chosen by a click.

    Sorting is done on the page; a pin calls `pin(key, on)`. A row that is chosen becomes the selection.
    """

    _esm = module_with_helpers("sortable_table.js")

    label = traitlets.Unicode().tag(sync=True)
    """Accessible name."""
    columns = traitlets.List(traitlets.List(traitlets.Unicode())).tag(sync=True)
    """[heading, 'number' or 'text', tooltip] of each."""
    rows = traitlets.List(traitlets.Dict()).tag(sync=True)
    """Of each row: `key`; `cells`, its texts; `values`, numbers or texts by which it is sorted; `bold`, indices of the
    cells that differ from the current row; `pinned`; `current`."""
    sorted_by = traitlets.List(traitlets.Int()).tag(sync=True)
    """[index of the column, 1 for ascending or −1]; empty for the order of `rows`."""

    def __init__(self, pin: Callable[[str, bool], None], **traits: Any) -> None:
        super().__init__(**traits)
        self._pin = pin
        self.on_msg(self.receive)

    def receive(self, _widget: object, content: dict[str, Any], _buffers: object) -> None:
        """A row was pinned on the page, or is no longer."""
        if content.get("kind") == "pin":
            self._pin(str(content.get("key", "")), bool(content.get("on")))
