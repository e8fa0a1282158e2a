"""A panel is made when its tab is first selected, and is then a part of the explorer like any other."""

import ipywidgets as W
from alpa_explore_widgets.explorer import Explorer
from alpa_explore_widgets.session.session import Session
from alpa_explore_widgets.tabs.of_plan import FrontierPanel, OverviewPanel
from alpa_explore_widgets.tabs.run import RunPanel


def below(widget: W.Widget) -> set[W.Widget]:
    return {widget}.union(*(below(child) for child in getattr(widget, "children", ())))


def test_the_explorer_begins_with_the_panel_of_the_first_tab_alone(session: Session) -> None:
    explorer = Explorer(session)
    assert [type(panel) for panel in explorer.panels.made] == [OverviewPanel]
    before = below(explorer)
    explorer.go_to_tab("Memory")
    overview, memory = explorer.panels.made
    assert isinstance(memory, FrontierPanel)
    assert below(explorer) - before == below(memory.widget)
    assert (overview.widget.layout.display, memory.widget.layout.display) == ("none", "")
    assert memory.lock is session.store.lock
    explorer.go_to_tab("Overview")
    explorer.go_to_tab("Memory")
    assert explorer.panels.made == [overview, memory]


def test_lessons_and_texts_of_tabs_make_no_panel(session: Session) -> None:
    explorer = Explorer(session)
    titles = [title for title, *_ in explorer.tabs.tabs]
    explorer.toggle_teaching()
    assert sorted(title for title, *_ in explorer.tabs.tabs) == sorted(titles)
    assert [type(panel) for panel in explorer.panels.made] == [OverviewPanel]
    assert explorer.panels[explorer.tabs.selected].title == "Overview"


def test_a_press_in_a_new_panel_waits_for_the_edits_before_it(session: Session) -> None:
    explorer = Explorer(session)
    explorer.go_to_tab("Run")
    run = explorer.panels.made[-1]
    assert isinstance(run, RunPanel)
    buttons = [widget for widget in below(run.widget) if hasattr(widget, "schedule")]
    assert buttons
    assert all(button.schedule == explorer.order.press for button in buttons)
