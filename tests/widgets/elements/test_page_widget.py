"""What a page sends is taken with the lock that the threads of the planner hold: ipywidgets is made for one thread."""

import anywidget
import pytest
from alpa_explore_widgets.elements.fields import NumberField, PageBridge
from alpa_explore_widgets.elements.figures import PlotlyFigure
from alpa_explore_widgets.elements.page_widget import PageWidget, descendants, share_lock
from alpa_explore_widgets.explorer import Explorer


@pytest.mark.parametrize(
    ("widget", "message"),
    [
        (PlotlyFigure(), {"selection": "stage:1"}),
        (PageBridge(), {"selection": "stage:1", "theme": "dark"}),
        (NumberField(), {"value": 0.25, "edits": 1}),
    ],
    ids=lambda part: type(part).__name__,
)
def test_all_of_a_message_is_taken_within_one_hold_of_the_lock(widget: PageWidget, message: dict[str, object]) -> None:
    seen = []

    class Noted:
        depth = 0

        def __enter__(self) -> None:
            seen.extend([{name: getattr(widget, name) for name in message}] * (self.depth == 0))
            self.depth += 1

        def __exit__(self, *_: object) -> None:
            self.depth -= 1
            seen.extend([{name: getattr(widget, name) for name in message}] * (self.depth == 0))

    share_lock(widget, Noted())
    before = {name: getattr(widget, name) for name in message}
    widget.set_state(message)
    assert seen == [before, message]
    assert before != message


def test_every_widget_of_an_explorer_has_the_lock_of_its_state(explorer: Explorer) -> None:
    list(explorer.panels)  # makes them
    widgets = [widget for widget in descendants(explorer) if isinstance(widget, anywidget.AnyWidget)]
    assert len(widgets) > 50
    lock = explorer.session.store.lock
    assert [widget for widget in widgets if not isinstance(widget, PageWidget) or widget.lock is not lock] == []
