from collections.abc import Callable
from typing import Any

import pytest
from alpa_explore_widgets.panels.actions import progress_html
from alpa_explore_widgets.session.session import Session

from alpa_explore.errors import AlpaExploreError
from alpa_explore.execution.progress import Progress
from tests.waiting import LIMIT_SECONDS
from tests.widgets.conftest import plan_and_wait, set_and_wait


def hold(planner: Any) -> None:
    """Block the next replan until its gate is opened."""
    planner.started.acquire()
    planner.replan_gate.clear()


def test_a_plan_arrives_with_the_settings_that_it_answers(session: Session, planner: Any) -> None:
    state = plan_and_wait(session)
    assert state.plan is not None
    assert not state.planning
    assert not state.out_of_date
    assert state.settings.num_layers == 4, "the planner's own choice of layers is shown"
    assert planner.plans == [{"cluster": "1x4:v100", "num_microbatches": 8, "delta": 0.5, "num_layers": None}]
    assert "12 sharding problems, 3 distinct, 1 read from the cache" in state.activity


def test_another_b_is_answered_from_known_costs_without_the_planner(session: Session, planner: Any) -> None:
    plan_and_wait(session)
    state = set_and_wait(session, num_microbatches=32)
    assert state.plan.options.num_microbatches == 32
    assert not state.out_of_date
    assert (len(planner.plans), planner.replans) == (1, [32])


def test_another_delta_is_answered_from_known_costs_and_the_plan_says_that_it_is_incomplete(
    session: Session, planner: Any
) -> None:
    plan_and_wait(session)
    state = set_and_wait(session, delta=0.3)
    assert state.plan.options.delta == 0.3
    assert state.plan_settings.delta == 0.3
    assert not state.out_of_date
    assert "Plan prices all" in progress_html(state)
    assert (len(planner.plans), planner.replans) == (1, [(8, {"delta": 0.3})])


def test_a_replan_that_is_no_longer_needed_is_dropped(session: Session, planner: Any) -> None:
    plan_and_wait(session)
    before = session.store.state.plan
    hold(planner)
    session.set(delta=0.3)
    assert planner.started.acquire(timeout=LIMIT_SECONDS)
    session.show_entry(0)
    planner.replan_gate.set()
    assert session.wait(LIMIT_SECONDS)
    state = session.store.state
    assert state.plan is before
    assert state.settings.delta == 0.5
    assert not state.replanning
    assert not state.out_of_date


@pytest.mark.parametrize(
    "leave", [lambda s: s.show_entry(0), lambda s: s.cancel(), lambda s: s.show_plan(s.store.state.plan)]
)
def test_a_replan_that_never_started_does_not_stay_under_way(
    session: Session, monkeypatch: pytest.MonkeyPatch, leave: Callable[[Session], None]
) -> None:
    plan_and_wait(session)
    monkeypatch.setattr(session.planning.replans, "submit", lambda _settings: None)  # its thread has not started yet
    session.set(delta=0.3)
    assert session.store.state.replanning
    leave(session)
    assert not session.store.state.replanning


def test_an_infeasible_delta_keeps_the_last_plan_and_marks_it_as_out_of_date(
    session: Session, planner: Any, user_error: AlpaExploreError
) -> None:
    plan_and_wait(session)
    planner.error = user_error
    state = set_and_wait(session, delta=0.3)
    assert state.fault is not None
    assert not state.replanning
    assert state.out_of_date
    assert "δ 0.5 → 0.3" in progress_html(state)


def test_a_long_replan_shows_its_progress_and_can_be_cancelled(session: Session, planner: Any) -> None:
    plan_and_wait(session)
    hold(planner)
    session.set(delta=0.3)
    assert planner.started.acquire(timeout=LIMIT_SECONDS)
    planner.report_replan(Progress(pass_name="sharding", done=4, total=4, elapsed_seconds=1.0))
    assert "4 of 4" in progress_html(session.store.state)
    session.cancel()
    planner.replan_gate.set()
    assert session.wait(LIMIT_SECONDS)
    state = session.store.state
    assert (state.progress, state.activity, state.fault, state.replanning) == (None, "", None, False)
    assert state.out_of_date


def test_a_delta_that_a_newer_one_replaces_is_no_fault(session: Session, planner: Any) -> None:
    plan_and_wait(session)
    hold(planner)
    session.set(delta=0.3)
    assert planner.started.acquire(timeout=LIMIT_SECONDS)
    session.set(delta=0.4)
    planner.replan_gate.set()
    assert session.wait(LIMIT_SECONDS)
    state = session.store.state
    assert state.fault is None
    assert state.plan.options.delta == 0.4
    assert not state.replanning


def test_while_one_b_is_evaluated_only_the_newest_of_the_others_waits(session: Session, planner: Any) -> None:
    plan_and_wait(session)
    hold(planner)
    session.set(num_microbatches=9)
    assert planner.started.acquire(timeout=LIMIT_SECONDS)
    assert session.store.state.replanning
    for count in (10, 11, 12):
        session.set(num_microbatches=count)
    planner.replan_gate.set()
    assert session.wait(LIMIT_SECONDS)
    state = session.store.state
    assert state.plan is not None
    assert planner.replans == [9, 12]
    assert state.plan.options.num_microbatches == 12
    assert not state.replanning


@pytest.mark.parametrize("change", [{"num_layers": 6}, {"device": "h100"}, {"precision": "float32"}])
def test_any_other_setting_waits_for_the_plan_button(session: Session, planner: Any, change: dict[str, Any]) -> None:
    plan_and_wait(session)
    before = session.store.state.plan
    set_and_wait(session, **change)
    assert session.store.state.plan is before
    assert session.store.state.out_of_date
    plan_and_wait(session)
    assert not session.store.state.out_of_date
    assert len(planner.plans) == 2


def test_cancel_keeps_the_last_plan_and_says_what_is_kept(session: Session, planner: Any) -> None:
    plan_and_wait(session)
    before = session.store.state.plan
    planner.started.acquire()
    planner.gate.clear()
    session.set(num_layers=6)
    session.plan()
    assert planner.started.acquire(timeout=LIMIT_SECONDS)
    assert session.store.state.planning
    session.cancel()
    assert session.store.state.cancelling
    assert session.wait(LIMIT_SECONDS)
    state = session.store.state
    assert state.plan is before
    assert (state.planning, state.cancelling, state.fault) == (False, False, None)
    assert "Cancelled" in state.activity
    assert "kept" in state.activity


def test_a_second_press_of_plan_cancels_the_first(session: Session, planner: Any) -> None:
    planner.gate.clear()
    session.plan()
    assert planner.started.acquire(timeout=LIMIT_SECONDS)
    session.set(delta=0.3)
    session.plan()
    assert planner.started.acquire(timeout=LIMIT_SECONDS)
    planner.gate.set()
    assert session.wait(LIMIT_SECONDS)
    state = session.store.state
    assert state.plan.options.delta == 0.3
    assert not state.out_of_date


def test_b_that_was_changed_while_planning_is_the_b_of_the_final_plan(session: Session, planner: Any) -> None:
    planner.gate.clear()
    session.plan()
    assert planner.started.acquire(timeout=LIMIT_SECONDS)
    session.set(num_microbatches=64)
    planner.gate.set()
    assert session.wait(LIMIT_SECONDS)
    state = session.store.state
    assert state.plan.options.num_microbatches == 64
    assert not state.out_of_date


def test_an_error_of_another_b_goes_away_with_a_b_that_works(
    session: Session, planner: Any, user_error: AlpaExploreError
) -> None:
    plan_and_wait(session)
    planner.error = user_error
    set_and_wait(session, num_microbatches=1000)
    assert session.store.state.fault is not None
    planner.error = None
    set_and_wait(session, num_microbatches=16)
    assert session.store.state.fault is None


def test_an_unexpected_exception_of_a_thread_is_shown_with_its_traceback(session: Session, planner: Any) -> None:
    planner.error = ZeroDivisionError("a fault")
    plan_and_wait(session)
    fault = session.store.state.fault
    assert "ZeroDivisionError: a fault" in fault.found
    assert "Traceback" in fault.detail


def test_an_impossible_cluster_is_an_error_in_place(session: Session) -> None:
    session.set(devices_per_node=0)
    plan_and_wait(session)
    fault = session.store.state.fault
    assert "at least one device" in fault.what


def test_a_model_is_captured_once_whatever_else_changes(session: Session, planner: Any) -> None:
    for delta in (0.3, 0.4, 0.5):
        session.set(delta=delta)
        plan_and_wait(session)
    assert planner.captures == [("gpt-tiny", 8)]
    session.set(microbatch=4)
    plan_and_wait(session)
    assert planner.captures == [("gpt-tiny", 8), ("gpt-tiny", 4)]
