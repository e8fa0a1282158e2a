"""The base of the widgets that a page changes, their JavaScript modules, and all widgets below one."""

import gzip
import json
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from threading import RLock
from typing import Any, ClassVar

import anywidget
import ipywidgets as W
import traitlets

STATIC = Path(__file__).parents[1] / "static"
_FIXED = ("_esm", "shared", "_css", "_anywidget_id", "_model_", "_view_")
"""How the names of traits begin that never change: code, style sheets, and what tells the page which class to make."""


def module_with_helpers(*names: str) -> str:
    """JavaScript files of `static/` as one module, with the text of helpers.js before them.

    A page has each module as one string, so that a module cannot import another file; without indents and lines of
    comment.
    """
    texts = ((STATIC / file).read_text(encoding="utf-8") for file in ("helpers.js", *names))
    lines = (line.strip() for text in texts for line in text.splitlines())
    return "\n".join(line for line in lines if line and not line.startswith("//"))


class PageWidget(anywidget.AnyWidget):
    """A widget with a JavaScript module, and values that the page sets while other threads set them, too.

    anywidget sends the module with each widget, and the page compiles it each time. Here widgets of one class have
    another one in common, whose value is their `module`: it is sent and compiled once a page (`shared_module.js`).

    ipywidgets and traitlets note in the widget itself what a message is just changing: a thread that sets another value
    meanwhile may fail (KeyError), or its value may never be sent, as that of a figure that is no longer busy. So a
    message is taken with the lock that those threads hold.
    """

    module: ClassVar[str]
    """JavaScript of the class."""
    _esm = traitlets.Unicode((STATIC / "shared_module.js").read_text(encoding="utf-8")).tag(sync=True)
    shared = traitlets.Instance(W.Widget).tag(sync=True, **W.widget_serialization)
    """Has the module as its value."""
    _modules: ClassVar[dict[str, W.HTML]] = {}

    def __init__(self, **traits: Any) -> None:
        self.lock: AbstractContextManager[object] = RLock()
        """Held while a message changes the widget; `share_lock` replaces it by that of an explorer's state."""
        shared = self._modules.get(self.module)
        if shared is None or shared.comm is None:  # the first of its class, or all widgets were closed
            shared = self._modules[self.module] = W.HTML(self.module)
        super().__init__(shared=shared, **traits)

    def set_state(self, sync_data: dict[str, Any]) -> None:
        """Take the values of a message of the page."""
        with self.lock:
            super().set_state(sync_data)


class PageFigure(PageWidget):
    """What a tab shows as a figure."""

    label = traitlets.Unicode("").tag(sync=True)
    """Accessible name: what the figure shows, in words."""
    waiting = traitlets.Unicode("The figure appears with the first plan.").tag(sync=True)
    """What is said in place of a figure that was not sent yet."""
    ahead = traitlets.Dict().tag(sync=True)
    """B -> the figure for it, packed: drawn when the slider is moved there, before Python answers."""
    selection = traitlets.Unicode("").tag(sync=True)
    """Key of the selection (`alpa_explore.figures.keys`): marks of other things are faded. A click sets it."""
    busy = traitlets.Bool(False).tag(sync=True)
    """True fades the figure."""


class DocumentWidget(PageWidget):
    """A widget that shows a document, which the page draws without the kernel."""

    packed = traitlets.Bytes(b"").tag(sync=True)
    """The document as JSON, gzipped; nothing is shown while it is empty."""

    def load(self, document: dict[str, Any]) -> None:
        """Show `document`."""
        # mtime=0: an equal document gives equal bytes, hence no change and no message.
        self.packed = gzip.compress(json.dumps(document, ensure_ascii=False).encode(), 3, mtime=0)

    @property
    def document(self) -> dict[str, Any]:
        """The shown document; empty for none."""
        return dict(json.loads(gzip.decompress(self.packed))) if self.packed else {}


def box(css: str, *children: W.Widget, kind: type[W.Box] = W.HBox) -> W.Box:
    """Widgets in a row, or another kind of box, with CSS classes."""
    made = kind(list(children))
    for name in css.split():
        made.add_class(name)
    return made


def set_class(widget: W.Widget, css: str, *, on: bool) -> None:
    """Give a widget a CSS class, or take it away."""
    (widget.add_class if on else widget.remove_class)(css)


def set_shown(widget: W.Widget, *, on: bool) -> None:
    """Show or hide a widget."""
    widget.layout.display = "" if on else "none"


def descendants(widget: W.Widget) -> Iterator[W.Widget]:
    """`widget` and all widgets below it."""
    yield widget
    for child in getattr(widget, "children", ()):
        yield from descendants(child)


def send_states(root: W.Widget) -> None:
    """Send the states of `root`, of all widgets below it and of their layouts to the pages.

    A page that is loaded while the kernel has widgets asks for all states at once and then creates the widgets one by
    one, which may take seconds. It misses what changes in between, such as "Planned in 3 s" in place of "Planning".
    Therefore the states are sent once more when such a page shows the explorer (`PageBridge.loads`).
    """
    for widget in descendants(root):
        for part in (widget.layout, widget):
            part.send_state([name for name in part.keys if not name.startswith(_FIXED)])


def share_lock(root: W.Widget, lock: AbstractContextManager[object]) -> None:
    """Let `root` and all widgets below it take messages with `lock`."""
    for widget in descendants(root):
        if isinstance(widget, PageWidget):
            widget.lock = lock
