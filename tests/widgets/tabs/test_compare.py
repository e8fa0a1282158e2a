"""The Compare tab: the plan on screen is compared with the right other plan."""

from dataclasses import replace

from alpa_explore_widgets.session.history import Entry, History
from alpa_explore_widgets.session.state import State
from alpa_explore_widgets.tabs.history import ComparePanel

from alpa_explore.baselines.kinds import KINDS
from alpa_explore.figures.keys import aside_key
from alpa_explore.planner.replan import replan
from alpa_explore.plans.report.compare import NoPlan
from tests.plans.example import example_plan
from tests.widgets.conftest import SETTINGS

PLAN = example_plan()
MORE, MOST = replan(PLAN, num_microbatches=64), replan(PLAN, num_microbatches=128)


def state(*plans, **more) -> State:
    history = History(entries=tuple(Entry(settings=SETTINGS, plan=p) for p in plans), position=len(plans) - 1)
    return State(settings=SETTINGS, plan=plans[-1], history=history, **more)


def test_with_a_single_plan_the_tab_lists_what_can_be_planned_beside_it() -> None:
    panel = ComparePanel(lambda: None)
    panel.show(state(PLAN), "light")
    assert "press Pin" in panel.finding.value
    assert (panel.figure.layout.display, panel.other.layout.display, panel.price.layout.display) == ("none", "none", "")
    assert [f'data-alpa-key="{aside_key("baseline", kind)}"' in panel.table.value for kind in KINDS] == [True] * 11
    failed = state(PLAN, no_plans=(NoPlan("zero-1", "needs 24.5 GiB of 16 GiB", PLAN.model.name),))
    panel.show(failed, "light")
    assert "no plan: needs 24.5 GiB of 16 GiB" in panel.table.value
    assert aside_key("baseline", "zero-1") not in panel.table.value
    panel.show(replace(failed, planning=True, aside=True, activity="1 of 1: zero-2: Planning a baseline…"), "light")
    assert "Planning zero-2" in panel.finding.value
    own = replace(PLAN, options=replace(PLAN.options, baseline="zero-3 (dp 8)"))
    panel.show(state(own), "light")
    assert aside_key("baseline", "zero-3") not in panel.table.value, "a baseline is not compared with itself"
    panel.show(state(PLAN), "light", as_table=True)
    assert "Nothing to list" in panel.table.value


def test_a_plan_that_is_made_beside_the_first_one_is_compared_with_it() -> None:
    panel, both = ComparePanel(lambda: None), state(PLAN, MORE)
    panel.show(replace(both, plan=PLAN, history=both.history.at(0)), "light")
    assert "than with the fastest other plan" in panel.finding.value
    assert (panel.figure.layout.display, panel.other.layout.display, panel.price.layout.display) == (None, "", "none")


def test_the_previous_plan_the_pinned_one_and_any_of_the_history_can_be_compared() -> None:
    panel = ComparePanel(lambda: None)
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


def test_a_plan_that_was_made_again_is_not_what_the_tab_opens_with() -> None:
    panel = ComparePanel(lambda: None)
    panel.show(state(PLAN, MORE, replace(MORE)), "light")
    assert "than with an earlier plan" in panel.finding.value
    assert "B 32 → 64" in panel.finding.value
    panel.show(state(PLAN, replace(PLAN)), "light")
    assert "Only this plan is known" in panel.finding.value


def test_a_choice_that_no_longer_exists_falls_back_to_the_default() -> None:
    panel = ComparePanel(lambda: None)
    panel.show(state(PLAN, MORE, MOST), "light")
    panel.other.value = "1"
    panel.show(state(PLAN, MORE), "light")
    assert panel.other.value == ""
    assert "than with the previous plan" in panel.finding.value
