"""All widgets below one.

A page that is loaded while the kernel has widgets asks for all states at once and then creates the widgets one by one,
which may take seconds. It misses what changes in between, such as "Planned in 3 s" in place of "Planning". Therefore
the states are sent once more when such a page shows the explorer (`PageBridge.loads`).
"""

from __future__ import annotations

from collections.abc import Iterator

import ipywidgets as W

_FIXED = ("_esm", "_css", "_anywidget_id", "_model_", "_view_")
"""How the names of traits begin that never change: code, style sheets, and what tells the page which class to make."""


def descendants(widget: W.Widget) -> Iterator[W.Widget]:
    """`widget` and all widgets below it."""
    yield widget
    for child in getattr(widget, "children", ()):
        yield from descendants(child)


def send_states(root: W.Widget) -> None:
    """Send the states of `root`, of all widgets below it and of their layouts to the pages. A state that a page has
    already changes nothing there."""
    for widget in descendants(root):
        for part in (widget.layout, widget):
            part.send_state([name for name in part.keys if not name.startswith(_FIXED)])
