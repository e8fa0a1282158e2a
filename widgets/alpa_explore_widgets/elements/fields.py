"""The controls of the explorer: number, choice and text fields, buttons, tabs, and the bridge to the page."""

import tomllib
from collections.abc import Callable, Iterable, Mapping
from importlib.resources import files
from typing import Any

import traitlets

from alpa_explore.templates import joined
from alpa_explore_widgets.elements.page_widget import STATIC, PageWidget, module_with_helpers

_SORT_TABLE = files("alpa_explore.figures") / "sort_table.js"
"""That of the written pages."""

CONTROLS: Mapping[str, Mapping[str, Mapping[str, Any]]] = joined(
    tomllib.loads((files("alpa_explore_widgets") / "controls.toml").read_text(encoding="utf-8"))
)
"""Part of the explorer -> control -> its `label` (of a button: its `text`), its `hint`, and an `example`."""


class Field(PageWidget):
    """Base of the fields into which a value is typed or in which one is chosen."""

    label = traitlets.Unicode().tag(sync=True)
    """Visible and accessible name."""
    hint = traitlets.Unicode().tag(sync=True)
    """Tooltip: what the value means."""
    setting = traitlets.Unicode().tag(sync=True)
    """Name of the setting of the explorer (`session.settings`); '' for a field of a tab."""
    edits = traitlets.Int(0).tag(sync=True)
    """How often the value was edited on the page; sent together with each value (see `message_order`)."""
    problem = traitlets.Unicode().tag(sync=True)
    """Why the planner cannot take the value, shown in the field instead of its note; '' if it can. What the page
    refuses itself (out of range, not a number) never arrives here."""

    def set_state(self, sync_data: dict[str, Any]) -> None:
        """Take a message of the page, the value before its count. The count is taken even if the value is refused, so
        that no press waits for a value that never arrives."""
        values = {name: value for name, value in sync_data.items() if name != "edits"}
        with self.lock:
            try:
                super().set_state(values)
            finally:
                if "edits" in sync_data:
                    super().set_state({"edits": sync_data["edits"]})


class NumberField(Field):
    """A number: a slider with a few stops, and a box in which any value in the range can be typed."""

    module = module_with_helpers("field.js", "number_field.js")

    unit = traitlets.Unicode().tag(sync=True)
    """Shown after the number; '' for none."""
    value = traitlets.Float(None, allow_none=True).tag(sync=True)
    """None stands for the default (only where `optional`)."""
    stops = traitlets.List(traitlets.Float()).tag(sync=True)
    """Positions of the slider, ascending; with fewer than two there is no slider."""
    minimum = traitlets.Float(0.0).tag(sync=True)
    """Least value that can be typed."""
    maximum = traitlets.Float(None, allow_none=True).tag(sync=True)
    """Largest value that can be typed; None for no limit."""
    whole = traitlets.Bool(False).tag(sync=True)
    """Integers only."""
    optional = traitlets.Bool(False).tag(sync=True)
    """An empty box means None."""
    default = traitlets.Float(None, allow_none=True).tag(sync=True)
    """The value that None stands for: the slider's position and the text of the empty box. None if the planner chooses
    it."""
    empty = traitlets.Unicode("auto").tag(sync=True)
    """What an empty box means where there is no default."""
    note = traitlets.Unicode().tag(sync=True)
    """A line below: what follows from the value."""
    disabled = traitlets.Bool(False).tag(sync=True)
    """True while it cannot be changed."""


class ChoiceField(Field):
    """One of a list of options."""

    module = module_with_helpers("field.js", "choice_field.js")

    value = traitlets.Unicode().tag(sync=True)
    """The chosen option."""
    choices = traitlets.List(traitlets.List(traitlets.Unicode())).tag(sync=True)
    """[value, text, group]; options of one group are listed together, those of the group '' at the top level."""
    note = traitlets.Unicode().tag(sync=True)
    """A line below."""
    disabled = traitlets.Bool(False).tag(sync=True)
    """True while it cannot be changed."""


class TextField(Field):
    """A line of text."""

    module = module_with_helpers("field.js", "text_field.js")

    value = traitlets.Unicode().tag(sync=True)
    """The text, without spaces at its ends."""
    example = traitlets.Unicode().tag(sync=True)
    """Shown while the field is empty."""


class Button(PageWidget):
    """A button; a press takes effect after the values that were typed before it."""

    module = module_with_helpers("button.js")

    description = traitlets.Unicode().tag(sync=True)
    """Visible and accessible name."""
    hint = traitlets.Unicode().tag(sync=True)
    """Tooltip: what a press does."""
    disabled = traitlets.Bool(False).tag(sync=True)
    """True while it cannot be pressed."""

    def __init__(self, press: Callable[[], None], **traits: Any) -> None:
        super().__init__(**traits)
        self._press = press
        self.schedule: Callable[[int, Callable[[], None]], None] = lambda _edits, action: action()
        """(number of edits before the press, action) -> runs the action after them; `MessageOrder` sets this."""
        self.on_msg(self.receive)

    def click(self) -> None:
        """Press it from Python."""
        self._press()

    def receive(self, _widget: object, content: dict[str, Any], _buffers: object) -> None:
        """The button was pressed on the page."""
        if content.get("kind") == "press":
            self.schedule(int(content.get("edits", 0)), self._press)


def plain_button(text: str, hint: str, press: Callable[[], None], **traits: Any) -> Button:
    """A button among other things, without a ground of its own."""
    button = Button(press, description=text, hint=hint, **traits)
    button.add_class("alpa-plain")
    return button


def choice_field(label: str, hint: str, texts: Mapping[str, str], value: str = "", *, group: str = "") -> ChoiceField:
    """A field for one of some values, each with its text: the first one, unless another `value` is given."""
    return ChoiceField(label=label, hint=hint, choices=options(texts, group), value=value or next(iter(texts)))


def options(texts: Mapping[str, str] | Iterable[str], group: str = "") -> list[list[str]]:
    """The choices of a field: values and their texts, or values that are their own texts."""
    pairs = texts.items() if isinstance(texts, Mapping) else ((text, text) for text in texts)
    return [[value, text, group] for value, text in pairs]


def whole_field(label: str, hint: str, most: int, value: int | None = None, *, empty: str = "") -> NumberField:
    """A field for a number from 1; with a meaning of `empty` it may be empty."""
    limits = {"minimum": 1, "maximum": most, "whole": True, "optional": bool(empty), "empty": empty or "auto"}
    return NumberField(label=label, hint=hint, value=value, **limits)


class TabBar(PageWidget):
    """A line of tabs; bringing the contents of the selected tab up to date is left to the owner."""

    module = module_with_helpers("tab_bar.js")

    label = traitlets.Unicode().tag(sync=True)
    """Accessible name."""
    tabs = traitlets.List(traitlets.List(traitlets.Unicode())).tag(sync=True)
    """[title, tooltip, panel] of each. The contents have the class 'alpa-panel-' + panel."""
    selected = traitlets.Int(0).tag(sync=True)
    """Index of the selected tab. The page shows its contents at once."""
    drawn = traitlets.Unicode().tag(sync=True)
    """Title of the tab whose contents are up to date; those of another one that is selected are faded until then."""


class Fold(PageWidget):
    """The heading of a group of controls; it shows and hides the group."""

    module = module_with_helpers("fold.js")

    label = traitlets.Unicode().tag(sync=True)
    """Visible and accessible name."""
    hint = traitlets.Unicode().tag(sync=True)
    """Tooltip: what the group is about."""
    expanded = traitlets.Bool(True).tag(sync=True)
    """Whether the group is shown."""


class Toolbar(PageWidget):
    """A row of buttons and a menu. A press sends the message {"kind": name}; the page itself copies text, saves files
    and reads them."""

    module = module_with_helpers("toolbar.js")

    label = traitlets.Unicode().tag(sync=True)
    """Accessible name of the row."""
    buttons = traitlets.List(traitlets.List(traitlets.Unicode())).tag(sync=True)
    """[name, text, tooltip] of each."""
    menu_label = traitlets.Unicode().tag(sync=True)
    """Text of the button that opens the menu."""
    menu = traitlets.List(traitlets.List(traitlets.Unicode())).tag(sync=True)
    """[name, text, tooltip] of each item of the menu."""
    disabled = traitlets.List(traitlets.Unicode()).tag(sync=True)
    """Names of the buttons and items that cannot be pressed now."""
    pressed = traitlets.List(traitlets.Unicode()).tag(sync=True)
    """Names of the switches that are on."""
    code = traitlets.Unicode().tag(sync=True)
    """The text that "copy" copies; sent beforehand, because a page may use the clipboard only while it handles a
    press."""

    def save(self, name: str, text: str, mime_type: str) -> None:
        """Make the browser save `text` as a file."""
        self.send({"kind": "save", "name": name, "type": mime_type}, buffers=[text.encode()])


class PageBridge(PageWidget):
    """Reports the page's theme, keeps its keyboard shortcuts out of the explorer, brings the style sheet, synchronises
    the selection, and counts the views of the explorer. It is visible only when the kernel is gone: it says so, and the
    rest of the explorer is inert."""

    module = module_with_helpers(
        *("kernel_watch.js", "walk.js", "marks.js", "strip.js", str(_SORT_TABLE), "page_bridge.js")
    )
    _css = STATIC / "explorer.css"

    address = traitlets.Unicode().tag(sync=True)
    """The id of this widget, by which the page finds it in its kernel."""
    begun = traitlets.Bool(False).tag(sync=True)
    """False only in the message that creates the widget, so that a page knows whether it was loaded afterwards."""
    loads = traitlets.Int(0)
    """Number of pages that were loaded after the explorer was made, and show it."""
    theme = traitlets.Unicode("light").tag(sync=True)
    """'light' or 'dark', as the page is."""
    label = traitlets.Unicode("Plan explorer").tag(sync=True)
    """Accessible name of the whole explorer."""
    views = traitlets.Int(0)
    """Number of views of the explorer on all pages; 0 before it is shown, and after its output was removed."""
    reloading = traitlets.Bool(False)
    """Whether the last view was lost with its whole page, which may be loaded again."""
    selection = traitlets.Unicode("").tag(sync=True)
    """Key of the selection; a click on any element with `data-alpa-key` selects, Escape clears."""

    def __init__(self, **traits: Any) -> None:
        super().__init__(**traits)
        self.address, self.begun = self.model_id or "", True
        self._views_of_tab: dict[str, tuple[str, int]] = {}
        """Browser tab -> (the page that it shows, the number of views on that page)."""
        self.on_msg(self.receive)

    def receive(self, _widget: object, content: dict[str, Any], _buffers: object) -> None:
        """A page says that it shows a tab, no longer shows it, or was left."""
        kind, tab, page = (str(content.get(name, "")) for name in ("kind", "tab", "page"))
        current_page, views = self._views_of_tab.get(tab, (page, 0))
        if kind == "shown":
            new_page = tab not in self._views_of_tab or page != current_page
            self._views_of_tab[tab] = (page, views + 1 if page == current_page else 1)
            self.loads += new_page and content.get("loaded") is True
        elif kind in ("gone", "left") and page == current_page:
            self._views_of_tab[tab] = (page, max(0, views - 1))
        self.reloading = kind == "left"
        self.views = sum(views for _, views in self._views_of_tab.values())
