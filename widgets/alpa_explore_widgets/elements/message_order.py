"""The order of what a user does on the page: a value that is typed, then a press.

Each widget has a channel of its own, and front end and kernel may hand their messages to several threads: what was done
first on the page can be heard last here. So a field counts what was typed into it (`edits`, sent along with the value),
and a press says how much had been typed by then in all fields together. It is taken when so much was heard. A value
that is refused was heard as well.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from threading import RLock
from typing import Any

import ipywidgets as W

from alpa_explore_widgets.elements.fields import Button, Field


class Order:
    """Holds presses back until the values before them are there; nothing waits for them."""

    def __init__(self, root: W.Widget) -> None:
        self._root, self._lock = root, RLock()
        self._heard: dict[str, int] = {}
        """Widget -> how often somebody typed into it, as far as its value was taken, or refused."""
        self._presses: list[tuple[int, Callable[[], None]]] = []
        self._watch()

    def press(self, edits: int, act: Callable[[], None]) -> None:
        """Call `act` once `edits` values were heard: now, or from the message that brings the last of them."""
        with self._lock:
            self._watch()
            self._presses.append((edits, act))
        self._go()

    def _watch(self) -> None:
        """Take in the widgets that are new."""
        for widget in _below(self._root):
            if isinstance(widget, Field) and widget.model_id not in self._heard:
                self._heard[widget.model_id] = widget.edits
                widget.observe(self._typed, "edits")
            elif isinstance(widget, Button):
                widget.take = self.press

    def _typed(self, change: dict[str, Any]) -> None:
        with self._lock:
            self._heard[change["owner"].model_id] = change["new"]
        self._go()

    def _go(self) -> None:
        with self._lock:
            heard = sum(self._heard.values())
            due = [act for edits, act in self._presses if edits <= heard]
            self._presses = [press for press in self._presses if press[0] > heard]
        for act in due:
            act()


def _below(widget: W.Widget) -> Iterable[W.Widget]:
    yield widget
    for child in getattr(widget, "children", ()):
        yield from _below(child)
