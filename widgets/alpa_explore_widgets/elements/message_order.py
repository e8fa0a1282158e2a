"""Keeps the order of a user's actions: a button press takes effect after the values that were typed before it.

Each widget has a channel of its own, and the front end and the kernel may handle messages on several threads, so a
press can arrive before a value that was typed earlier. Therefore each field counts its edits (`edits`, sent together
with the value), and a press carries the number of edits of all fields up to then. The press takes effect once that many
edits have arrived. An edit whose value is refused counts as well.
"""

from collections.abc import Callable
from threading import RLock
from typing import Any

import ipywidgets as W

from alpa_explore_widgets.elements.fields import Button, Field
from alpa_explore_widgets.elements.page_widget import descendants


class MessageOrder:
    """Holds presses back until the edits before them have arrived; no thread blocks meanwhile."""

    def __init__(self, root: W.Widget) -> None:
        self._root, self._lock = root, RLock()
        self._edits: dict[str, int] = {}
        """Model id of a field -> the number of its edits that have arrived."""
        self._presses: list[tuple[int, Callable[[], None]]] = []
        """(number of edits to wait for, action)."""
        self.register()

    def press(self, edits: int, action: Callable[[], None]) -> None:
        """Call `action` once `edits` edits have arrived: now, or when the last of them does."""
        with self._lock:
            self.register()
            self._presses.append((edits, action))
        self._run_due_presses()

    def register(self) -> None:
        """Observe the fields and buttons that were added since the last call."""
        for widget in descendants(self._root):
            if isinstance(widget, Field) and widget.model_id not in self._edits:
                self._edits[widget.model_id] = widget.edits
                widget.observe(self._edit_arrived, "edits")
            elif isinstance(widget, Button):
                widget.schedule = self.press

    def _edit_arrived(self, change: dict[str, Any]) -> None:
        with self._lock:
            self._edits[change["owner"].model_id] = change["new"]
        self._run_due_presses()

    def _run_due_presses(self) -> None:
        with self._lock:
            arrived = sum(self._edits.values())
            due = [action for edits, action in self._presses if edits <= arrived]
            self._presses = [press for press in self._presses if press[0] > arrived]
        for action in due:
            action()
