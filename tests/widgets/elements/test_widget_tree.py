"""States are sent once more to a page that was loaded while they changed."""

from typing import Any

import ipywidgets as W
import pytest
from alpa_explore_widgets.elements.fields import Button, PageBridge
from alpa_explore_widgets.elements.page_widget import descendants, send_states


def test_every_state_below_is_sent_but_what_never_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    button = Button(lambda: None, description="Plan")
    root = W.VBox([W.HBox([button]), W.HTML("text")])
    sent: dict[str, list[str]] = {}
    monkeypatch.setattr(W.Widget, "send_state", lambda widget, key=None: sent.update({widget.model_id: key}))
    send_states(root)
    widgets = list(descendants(root))
    assert len(widgets) == 4
    assert sent.keys() == {part.model_id for widget in widgets for part in (widget, widget.layout)}
    assert "description" in sent[button.model_id]
    assert "_dom_classes" in sent[button.model_id]
    assert not any(name in sent[button.model_id] for name in ("_esm", "_css", "_model_name", "_view_module"))


def shown(bridge: PageBridge, tab: str, page: str, **content: Any) -> int:
    """How many pages were loaded after this one says that it shows the explorer."""
    bridge.receive(bridge, {"kind": "shown", "tab": tab, "page": page, **content}, [])
    loads: int = bridge.loads
    return loads


def test_a_page_counts_once_and_only_if_it_was_loaded_after_the_explorer_was_made() -> None:
    bridge = PageBridge()
    assert shown(bridge, "a", "1", loaded=False) == 0
    assert shown(bridge, "a", "1", loaded=False) == 0, "a second view"
    assert shown(bridge, "a", "2", loaded=True) == 1, "the page was loaded again"
    assert shown(bridge, "a", "2", loaded=True) == 1
    assert shown(bridge, "b", "3", loaded=True) == 2
    assert bridge.views == 3
