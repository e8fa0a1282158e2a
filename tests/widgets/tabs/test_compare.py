"""The Compare tab: the plan on screen is compared with the right other plan."""

from dataclasses import replace

from alpa_explore_widgets.session.history import Entry, History
from alpa_explore_widgets.session.state import State
from alpa_explore_widgets.tabs.history import ComparePanel

from alpa_explore.planner.replan import replan
from tests.plans.example import example_plan
from tests.widgets.conftest import SETTINGS

PLAN = example_plan()
MORE, MOST = replan(PLAN, num_microbatches=64), replan(PLAN, num_microbatches=128)


def state(*plans, **more) -> State:
    history = History(entries=tuple(Entry(settings=SETTINGS, plan=p) for p in plans), position=len(plans) - 1)
    return State(settings=SETTINGS, plan=plans[-1], history=history, **more)


def test_with_a_single_plan_the_tab_says_how_to_get_another() -> None:
    panel = ComparePanel()
    panel.show(state(PLAN), "light")
    assert "press Pin" in panel.finding.value
    panel.show(state(PLAN), "light", as_table=True)
    assert "Nothing to list" in panel.table.value


def test_the_previous_plan_the_pinned_one_and_any_of_the_history_can_be_compared() -> None:
    panel = ComparePanel()
    panel.show(state(PLAN, MORE, MOST), "light")
    assert "than with the previous plan" in panel.finding.value
    assert "B 64 → 128" in panel.finding.value
    pinned = state(PLAN, MORE, MOST, pinned=PLAN)
    panel.show(pinned, "light")
    assert "than with the pinned plan" in panel.finding.value
    assert "B 32 → 128" in panel.finding.value
    assert [value for value, *_ in panel.other.choices] == ["", "1", "0"]
    panel.other.value = "1"
    assert "than with plan 2" in panel.finding.value
    panel.show(replace(pinned, plan=PLAN, history=pinned.history.at(0)), "light")
    assert "B 64 → 32" in panel.finding.value


def test_a_choice_that_no_longer_exists_falls_back_to_the_default() -> None:
    panel = ComparePanel()
    panel.show(state(PLAN, MORE, MOST), "light")
    panel.other.value = "1"
    panel.show(state(PLAN, MORE), "light")
    assert panel.other.value == ""
    assert "than with the previous plan" in panel.finding.value
