"""A row of questions, each a button with its answer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import traitlets

from alpa_explore_widgets.elements.page_widget import PageWidget
from alpa_explore_widgets.elements.static_files import module_with_helpers


class AnswerList(PageWidget):
    """A press on an item calls `press` with its text."""

    _esm = module_with_helpers("answer_list.js")

    label = traitlets.Unicode().tag(sync=True)
    """Accessible name of the row."""
    items = traitlets.List(traitlets.List(traitlets.Unicode())).tag(sync=True)
    """[text, answer, tone of the answer ('better', 'worse', 'pending' or ''), tooltip] of each."""

    def __init__(self, press: Callable[[str], None], **traits: Any) -> None:
        super().__init__(**traits)
        self._press = press
        self.on_msg(self.receive)

    def receive(self, _widget: object, content: dict[str, Any], _buffers: object) -> None:
        """An answer was pressed on the page."""
        name = content.get("name")
        if content.get("kind") == "press" and name in [text for text, *_ in self.items]:
            self._press(str(name))
