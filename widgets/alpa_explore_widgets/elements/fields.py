"""The controls of the explorer: a number (slider and typed), a choice, a text, a button, a row of tabs, and the page's
bridge."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import anywidget
import traitlets

from alpa_explore_widgets.elements.plotly_figure import STATIC


class Field(anywidget.AnyWidget):
    """What a value can be typed into or chosen in."""

    label = traitlets.Unicode().tag(sync=True)
    """Visible and accessible name."""
    hint = traitlets.Unicode().tag(sync=True)
    """Tooltip: what the value means."""
    edits = traitlets.Int(0).tag(sync=True)
    """How often it was changed on the page; comes with each value (see `order`)."""

    def set_state(self, sync_data: dict[str, Any]) -> None:
        """Take a message of the page: the value first. Its count is heard also where the value is refused, so that no
        press waits for a value that will not come."""
        value = {name: given for name, given in sync_data.items() if name != "edits"}
        try:
            super().set_state(value)
        finally:
            if "edits" in sync_data:
                super().set_state({"edits": sync_data["edits"]})


class NumberField(Field):
    """A number on a slider over sensible stops, with a box in which any value in the range can be typed."""

    _esm = STATIC / "number_field.js"

    unit = traitlets.Unicode().tag(sync=True)
    """Shown behind the number; '' for none."""
    value = traitlets.Float(None, allow_none=True).tag(sync=True)
    """None means that the planner chooses (only where `optional`)."""
    stops = traitlets.List(traitlets.Float()).tag(sync=True)
    """Positions of the slider, ascending; fewer than two hide the slider."""
    minimum = traitlets.Float(0.0).tag(sync=True)
    """Least value that can be typed."""
    maximum = traitlets.Float(None, allow_none=True).tag(sync=True)
    """Largest value that can be typed; None for no limit."""
    whole = traitlets.Bool(False).tag(sync=True)
    """Integers only."""
    optional = traitlets.Bool(False).tag(sync=True)
    """An emptied box means None."""
    usual = traitlets.Float(None, allow_none=True).tag(sync=True)
    """What None stands for, where that is known: where the slider then is, and what the empty box shows."""
    note = traitlets.Unicode().tag(sync=True)
    """A line below: what the value comes to."""
    disabled = traitlets.Bool(False).tag(sync=True)
    """True while it cannot be changed."""


class ChoiceField(Field):
    """One of a list of names."""

    _esm = STATIC / "choice_field.js"

    value = traitlets.Unicode().tag(sync=True)
    """The chosen option."""
    choices = traitlets.List(traitlets.List(traitlets.Unicode())).tag(sync=True)
    """[value, text, group]; options of one group stand together, '' stands at the top level."""
    note = traitlets.Unicode().tag(sync=True)
    """A line below."""
    disabled = traitlets.Bool(False).tag(sync=True)
    """True while it cannot be changed."""


class TextField(Field):
    """A line of text."""

    _esm = STATIC / "text_field.js"

    value = traitlets.Unicode().tag(sync=True)
    """What was typed, without spaces at its ends."""
    example = traitlets.Unicode().tag(sync=True)
    """Shown while nothing is typed."""


class Button(anywidget.AnyWidget):
    """A button; a press comes after what was typed before it."""

    _esm = STATIC / "button.js"

    description = traitlets.Unicode().tag(sync=True)
    """Visible and accessible name."""
    hint = traitlets.Unicode().tag(sync=True)
    """Tooltip: what a press does."""
    disabled = traitlets.Bool(False).tag(sync=True)
    """True while it cannot be pressed."""

    def __init__(self, press: Callable[[], None], **traits: Any) -> None:
        super().__init__(**traits)
        self._press = press
        self.take: Callable[[int, Callable[[], None]], None] = lambda _edits, act: act()
        """(values that were typed before, what to do) -> done when they are there."""
        self.on_msg(self._told)

    def click(self) -> None:
        """Press it from Python."""
        self._press()

    def _told(self, _widget: object, content: dict[str, Any], _buffers: object) -> None:
        if content.get("kind") == "press":
            self.take(int(content.get("edits", 0)), self._press)


class TabBar(anywidget.AnyWidget):
    """A row of tabs; what they show is somebody else's matter."""

    _esm = STATIC / "tab_bar.js"

    label = traitlets.Unicode().tag(sync=True)
    """Accessible name of the row."""
    tabs = traitlets.List(traitlets.List(traitlets.Unicode())).tag(sync=True)
    """[title, tooltip] of each."""
    selected = traitlets.Int(0).tag(sync=True)
    """Place of the tab that is shown."""


class Fold(anywidget.AnyWidget):
    """The heading of a group of controls, which it shows and hides."""

    _esm = STATIC / "fold.js"

    label = traitlets.Unicode().tag(sync=True)
    """Visible and accessible name."""
    hint = traitlets.Unicode().tag(sync=True)
    """Tooltip: what the group is about."""
    expanded = traitlets.Bool(True).tag(sync=True)
    """Whether the group is shown."""


class Toolbar(anywidget.AnyWidget):
    """A row of buttons. A press is a message {"kind": name}; what the page must do itself (copy, save a file, read one)
    it does here."""

    _esm = STATIC / "toolbar.js"

    label = traitlets.Unicode().tag(sync=True)
    """Accessible name of the row."""
    buttons = traitlets.List(traitlets.List(traitlets.Unicode())).tag(sync=True)
    """[name, text, tooltip] of each."""
    disabled = traitlets.List(traitlets.Unicode()).tag(sync=True)
    """Names of the buttons that cannot be pressed now."""
    pressed = traitlets.List(traitlets.Unicode()).tag(sync=True)
    """Names of the buttons that stay down: switches that are on."""
    code = traitlets.Unicode().tag(sync=True)
    """What "copy" copies; here beforehand, because a page may copy only while a press is handled."""

    def save(self, name: str, text: str, kind: str) -> None:
        """Let the page save `text` (a file of the MIME type `kind`)."""
        self.send({"kind": "save", "name": name, "type": kind}, buffers=[text.encode()])


class PageBridge(anywidget.AnyWidget):
    """Invisible: reports the page's theme, keeps the page's shortcuts out of the explorer, brings the style sheet."""

    _esm = STATIC / "page_bridge.js"
    _css = STATIC / "explorer.css"

    theme = traitlets.Unicode("light").tag(sync=True)
    """'light' or 'dark', as the page is."""
    label = traitlets.Unicode("Plan explorer").tag(sync=True)
    """Accessible name of the whole explorer."""
    views = traitlets.Int(0)
    """On how many places of the page the explorer is now; 0 before it is shown, and when its output is gone."""
    loading = traitlets.Bool(False)
    """Whether it went with its page, which may be loaded again, and not from it."""
    selection = traitlets.Unicode("").tag(sync=True)
    """Key of what is selected; any element with `data-alpa-key` selects, Escape clears."""

    def __init__(self, **traits: Any) -> None:
        super().__init__(**traits)
        self._places: dict[str, tuple[str, int]] = {}
        """Tab of a browser -> the page that it shows, and on how many places of it the explorer is."""
        self.on_msg(self._told)

    def _told(self, _widget: object, content: dict[str, Any], _buffers: object) -> None:
        kind, tab, page = (str(content.get(name, "")) for name in ("kind", "tab", "page"))
        shown, places = self._places.get(tab, (page, 0))
        if kind == "shown":
            self._places[tab] = (page, places + 1 if page == shown else 1)
        elif kind in ("gone", "left") and page == shown:
            self._places[tab] = (page, max(0, places - 1))
        self.loading = kind == "left"
        self.views = sum(places for _, places in self._places.values())
