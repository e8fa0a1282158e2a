"""Another model is chosen: nothing on screen changes before Plan is pressed, whatever else is set meanwhile."""

from typing import Any

import pytest
from alpa_explore_widgets.explorer import Explorer
from alpa_explore_widgets.panels.actions import progress_html
from alpa_explore_widgets.session.session import Session

from alpa_explore.plans.plan import Plan
from tests.waiting import LIMIT_SECONDS
from tests.widgets.conftest import plan_and_wait, set_and_wait


@pytest.fixture
def planned(session: Session) -> Plan:
    """The plan on screen."""
    plan_and_wait(session)
    plan = session.store.state.plan
    assert plan is not None
    return plan


def listed(session: Session) -> str:
    """What "Out of date" lists."""
    state = session.store.state
    return progress_html(state, session.sources.model_defaults(state.settings.model))


def test_its_defaults_are_pending_and_the_old_plan_is_not_planned_for_them(
    session: Session, planner: Any, planned: Plan
) -> None:
    state = set_and_wait(session, model="gpt-1.3b")
    assert state.plan is planned
    assert planner.replans == []
    assert not state.replanning
    assert state.out_of_date
    text = listed(session)
    assert "model gpt-tiny → gpt-1.3b" in text
    assert "B 8 → 128 (the model's default)" in text
    assert "The figures show gpt-tiny" in text


@pytest.mark.parametrize("change", [{"num_microbatches": 64}, {"delta": 0.3}, {"schedule": "gpipe"}, {"paper": True}])
def test_what_is_set_for_it_waits_as_well(
    session: Session, planner: Any, planned: Plan, change: dict[str, Any]
) -> None:
    session.set(model="gpt-1.3b")
    set_and_wait(session, **change)
    assert session.store.state.plan is planned
    assert planner.replans == []
    assert all(getattr(session.store.state.settings, name) == value for name, value in change.items())
    if "num_microbatches" in change:
        assert "B 8 → 64<br>" in listed(session)
    plan_and_wait(session)
    assert all(planner.plans[-1].get(name, value) == value for name, value in change.items())
    assert not session.store.state.out_of_date


def test_a_replan_that_is_under_way_is_forgotten(session: Session, planner: Any, planned: Plan) -> None:
    planner.started.acquire()
    planner.replan_gate.clear()
    session.set(num_microbatches=16)
    assert planner.started.acquire(timeout=LIMIT_SECONDS)
    session.set(model="gpt-1.3b")
    planner.replan_gate.set()
    assert session.wait(LIMIT_SECONDS)
    assert session.store.state.plan is planned


def test_back_at_the_model_of_the_plan_everything_is_as_before(session: Session, planner: Any, planned: Plan) -> None:
    set_and_wait(session, num_microbatches=16)
    session.set(model="gpt-1.3b")
    session.set(num_microbatches=64)
    state = set_and_wait(session, model="gpt-tiny")
    assert (state.settings.num_microbatches, state.out_of_date) == (16, False)
    assert planner.replans == [16]


def test_back_at_the_model_of_the_plan_what_replan_answers_is_answered(
    session: Session, planner: Any, planned: Plan
) -> None:
    session.set(model="gpt-1.3b")
    session.set(schedule="gpipe")
    set_and_wait(session, model="gpt-tiny")
    assert planner.replans == [(8, {"schedule": "gpipe"})]
    assert not session.store.state.out_of_date


def test_undo_takes_it_back_and_then_shows_the_previous_plan(session: Session, planned: Plan) -> None:
    session.set(num_layers=6)
    plan_and_wait(session)
    second = session.store.state.plan
    session.set(model="gpt-1.3b")
    session.undo()
    state = session.store.state
    assert (state.plan, state.settings.model, state.settings.num_microbatches) == (second, "gpt-tiny", 8)
    assert not state.out_of_date
    session.undo()
    assert session.store.state.plan is planned


def test_undo_is_offered_for_it_although_there_is_one_plan(explorer: Explorer, planned: Plan) -> None:
    assert "undo" in explorer.toolbar.widget.disabled
    explorer.session.set(model="gpt-1.3b")
    assert "undo" not in explorer.toolbar.widget.disabled


def test_code_and_saved_table_are_those_of_the_plan_on_screen(explorer: Explorer, planned: Plan) -> None:
    explorer.session.set(model="gpt-1.3b")
    assert "gpt-tiny" in explorer.toolbar.widget.code
    saved = explorer._repr_mimebundle_()
    data = saved[0] if isinstance(saved, tuple) else saved
    assert "gpt-1.3b" not in data["text/html"]


def test_the_figures_of_another_device_are_its_own(session: Session, planner: Any, planned: Plan) -> None:
    session.set(memory_bytes=20 * 2.0**30)
    session.set(device="a100")
    assert session.store.state.settings.memory_bytes is None
    assert session.wait(LIMIT_SECONDS)
    assert session.store.state.plan.cluster.device.name == planned.cluster.device.name
    session.set(device="h100", memory_bytes=20 * 2.0**30)
    assert session.store.state.settings.memory_bytes == 20 * 2.0**30
