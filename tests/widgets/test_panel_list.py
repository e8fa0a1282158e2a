"""A panel is made when its tab is first selected, and is then a part of the explorer like any other."""

from __future__ import annotations

import ipywidgets as W
import pytest
from alpa_explore_widgets.explorer import Explorer
from alpa_explore_widgets.session import tuning
from alpa_explore_widgets.session.session import Session
from alpa_explore_widgets.tabs.frontier import FrontierPanel
from alpa_explore_widgets.tabs.overview import OverviewPanel
from alpa_explore_widgets.tabs.run import RunPanel

from alpa_explore.plans.plan import Plan


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
    explorer._toggle_teaching()
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


def answer(explorer: Explorer) -> int:
    """As a page does that has nothing to do. Returns the number of the question."""
    assert explorer._idle.wait(10)
    question: int = explorer.bridge.question
    explorer.bridge._receive(None, {"kind": "ready", "question": question}, [])
    assert explorer._idle.wait(10)
    return question


@pytest.fixture
def soon_idle(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuning, "IDLE_SECONDS", 0.001)
    monkeypatch.setattr(tuning, "BETWEEN_TABS_SECONDS", 0.001)


@pytest.mark.usefixtures("soon_idle")
def test_the_other_tabs_are_made_hidden_while_nothing_happens(session: Session, plan: Plan) -> None:
    explorer = Explorer(session)
    assert explorer._idle.wait(10)
    assert explorer.bridge.question == 0, "there is no plan yet"
    session.show_plan(plan)
    for made in range(1, len(explorer.panels)):
        assert len(explorer.panels.made) == made
        answer(explorer)
    assert len(explorer.panels.made) == len(explorer.panels)
    assert answer(explorer) == answer(explorer), "no more is asked"
    shown = [panel.title for panel in explorer.panels.made if panel.widget.layout.display != "none"]
    assert shown == ["Overview"]
    assert all(panel.widget in below(explorer) for panel in explorer.panels.made)
    explorer.go_to_tab("Memory")
    shown = [panel.title for panel in explorer.panels.made if panel.widget.layout.display != "none"]
    assert shown == ["Memory"]


@pytest.mark.usefixtures("soon_idle")
def test_no_tab_is_made_for_a_page_that_does_not_answer_or_answers_late(session: Session, plan: Plan) -> None:
    explorer = Explorer(session)
    session.show_plan(plan)
    assert explorer._idle.wait(10)
    late = explorer.bridge.question
    assert len(explorer.panels.made) == 1, "the page may be loading"
    session.select("stage:0")
    explorer.bridge._receive(None, {"kind": "ready", "question": late}, [])
    assert explorer._idle.wait(10)
    assert len(explorer.panels.made) == 1, "the state has changed since"
    answer(explorer)
    assert len(explorer.panels.made) == 2
