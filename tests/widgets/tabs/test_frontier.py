"""The Memory tab opens on a stage where there is something to choose."""

from dataclasses import replace

from alpa_explore_widgets.session.state import State
from alpa_explore_widgets.tabs.of_plan import FrontierPanel

from tests.plans.example import example_plan
from tests.widgets.conftest import SETTINGS

EXAMPLE = example_plan()
FULLEST = replace(EXAMPLE.stages[2], workspace_bytes=2.0**34)
PLAN = replace(EXAMPLE, stages=(*EXAMPLE.stages[:2], FULLEST, *EXAMPLE.stages[3:]))


def test_it_opens_on_the_fullest_stage_and_then_follows_the_selection() -> None:
    selected: list[str] = []
    panel = FrontierPanel(selected.append)
    state = State(settings=SETTINGS, plan=PLAN)
    panel.show(state, "light")
    assert panel.stage_of_rows() == 2
    assert selected == [], "nothing was selected by opening the tab"
    panel.show(State(settings=SETTINGS, plan=PLAN, selection="stage:0"), "light")
    assert panel.stage_of_rows() == 0
    panel.show(state, "light")
    assert panel.stage_of_rows() == 0, "clearing the selection keeps the stage"


def test_a_selected_stage_comes_first() -> None:
    panel = FrontierPanel(lambda key: None)
    panel.show(State(settings=SETTINGS, plan=PLAN, selection="stage:1"), "light")
    assert panel.stage_of_rows() == 1


def test_it_shows_the_memory_over_time_and_the_choices_beside_it() -> None:
    panel = FrontierPanel(lambda key: None)
    state = State(settings=SETTINGS, plan=EXAMPLE, selection="stage:1")
    panel.show(state, "light")
    assert panel.finding.value.startswith('<p class="alpa-finding" tabindex="0">Stage 1: ')
    assert "a device holds at most" in panel.finding.value
    assert [row["part"] for row in panel.rows(state)][-1] == "the device has"
    panel.view.value = "choices"
    assert "choices fit in" in panel.finding.value or "a single choice is known" in panel.finding.value
    assert "choice" in panel.rows(state)[0]
