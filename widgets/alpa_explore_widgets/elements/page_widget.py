"""The base of the widgets that a page changes."""

from __future__ import annotations

from contextlib import AbstractContextManager
from threading import RLock
from typing import Any

import anywidget
import ipywidgets as W

from alpa_explore_widgets.elements.widget_tree import descendants


class PageWidget(anywidget.AnyWidget):
    """A widget whose values the page sets while other threads set them, too.

    ipywidgets and traitlets note in the widget itself what a message is just changing: a thread that sets another value
    meanwhile may fail (KeyError), or its value may never be sent, as that of a figure that is no longer busy. So a
    message is taken with the lock that those threads hold.
    """

    def __init__(self, **traits: Any) -> None:
        self.lock: AbstractContextManager[object] = RLock()
        """Held while a message changes the widget; `share_lock` replaces it by that of an explorer's state."""
        super().__init__(**traits)

    def set_state(self, sync_data: dict[str, Any]) -> None:
        """Take the values of a message of the page."""
        with self.lock:
            super().set_state(sync_data)


def share_lock(root: W.Widget, lock: AbstractContextManager[object]) -> None:
    """Let `root` and all widgets below it take messages with `lock`."""
    for widget in descendants(root):
        if isinstance(widget, PageWidget):
            widget.lock = lock
