"""Settings that are estimated at once, and planned as soon as they rest; and B that keeps the global batch."""

from typing import Any

import pytest
from alpa_explore_widgets.explorer import Explorer
from alpa_explore_widgets.panels.verdict import estimate_words, estimated_seconds
from alpa_explore_widgets.session.session import Session

from alpa_explore.errors import AlpaExploreError
from tests.waiting import LIMIT_SECONDS, until
from tests.widgets.conftest import LATENCIES, plan_and_wait, set_and_wait

GIB = 2.0**30


def held(session: Session, planner: Any, **changes: Any) -> None:
    """Change settings, and wait until the planner, which is held, runs for them."""
    until(lambda: not planner.started.acquire(blocking=False), "earlier runs are counted")
    planner.gate.clear()
    session.set(**changes)
    until(lambda: len(planner.plans) > 1, "the planner runs for them")


def test_another_memory_is_repriced_at_once_and_then_planned(session: Session, planner: Any) -> None:
    plan_and_wait(session)
    held(session, planner, memory_bytes=20 * GIB)
    assert session.planning.replans.wait(LIMIT_SECONDS)
    state = session.store.state
    assert (state.estimated, state.following, state.out_of_date) == (True, True, False)
    assert state.plan.cluster.device.memory_bytes == 20 * GIB
    assert "exact in a moment" in estimate_words(state)
    assert len(state.history.entries) == 1, "an estimate is no plan to come back to"
    planner.gate.set()
    assert session.wait(LIMIT_SECONDS)
    state = session.store.state
    assert (state.estimated, state.planning, estimate_words(state)) == (False, False, "")
    assert state.plan.cluster.device.memory_bytes == 20 * GIB
    assert [entry.settings.memory_bytes for entry in state.history.entries] == [None, 20 * GIB]


@pytest.mark.parametrize(
    ("changes", "of_the_work"),
    [
        ({"nodes": 2}, 0.5),
        ({"devices_per_node": 2}, 2.0),
        ({"microbatch": 4}, 0.5),
        ({"sequence": 128}, 4.0),
        ({"microbatch": 4, "num_microbatches": 16}, 0.5 * (sum(LATENCIES) + 15 * 0.014) / (sum(LATENCIES) + 7 * 0.014)),
    ],
)
def test_what_scales_the_work_of_a_device_is_estimated_until_the_planner_has_it(
    session: Session, planner: Any, changes: dict[str, Any], of_the_work: float
) -> None:
    before = plan_and_wait(session).plan  # 8 samples of 32 tokens: all of T is work
    held(session, planner, **changes)
    assert estimated_seconds(session.store.state) == pytest.approx(before.predicted.iteration_seconds * of_the_work)
    planner.gate.set()
    assert session.wait(LIMIT_SECONDS)
    assert estimated_seconds(session.store.state) is None
    assert session.store.state.settings == session.store.state.plan_settings


def test_a_slider_that_moves_on_is_planned_once(session: Session, planner: Any) -> None:
    plan_and_wait(session)
    for nodes in (2, 3, 4):
        session.set(nodes=nodes)
    assert session.wait(LIMIT_SECONDS)
    assert [plan["cluster"] for plan in planner.plans] == ["1x4:v100", "4x4:v100"]


def test_a_slider_that_comes_back_needs_no_planner(session: Session, planner: Any) -> None:
    before = plan_and_wait(session).plan
    session.set(nodes=2)
    state = set_and_wait(session, nodes=1)
    assert (len(planner.plans), state.plan, state.planning) == (1, before, False)


def test_what_waits_for_plan_lets_the_others_wait_with_it(session: Session, planner: Any) -> None:
    plan_and_wait(session)
    set_and_wait(session, device="h100")
    state = set_and_wait(session, nodes=2)
    assert (len(planner.plans), state.out_of_date) == (1, True)


def test_an_estimate_that_has_no_plan_gives_way_to_the_last_plan_that_worked(
    session: Session, planner: Any, user_error: AlpaExploreError
) -> None:
    before = plan_and_wait(session).plan
    held(session, planner, memory_bytes=2 * GIB)
    assert session.planning.replans.wait(LIMIT_SECONDS)
    planner.error = user_error
    planner.gate.set()
    assert session.wait(LIMIT_SECONDS)
    state = session.store.state
    assert (state.plan, state.estimated, state.out_of_date) == (before, False, True)
    assert state.fault is not None
    assert state.settings.memory_bytes == 2 * GIB


def test_undo_drops_the_plan_under_way(session: Session, planner: Any) -> None:
    before = plan_and_wait(session)
    held(session, planner, nodes=2)
    session.undo()
    planner.gate.set()
    assert session.wait(LIMIT_SECONDS)
    state = session.store.state
    assert (state.plan, state.settings, state.planning) == (before.plan, before.settings, False)


def test_cancel_leaves_an_estimate_and_says_that_plan_makes_it_exact(session: Session, planner: Any) -> None:
    plan_and_wait(session)
    held(session, planner, memory_bytes=20 * GIB)
    assert session.planning.replans.wait(LIMIT_SECONDS)
    session.cancel()
    assert session.wait(LIMIT_SECONDS)
    state = session.store.state
    assert (state.estimated, state.planning) == (True, False)
    assert "press Plan" in estimate_words(state)


def test_no_other_layout_takes_the_place_of_a_baseline(session: Session, planner: Any) -> None:
    plan_and_wait(session)
    session.try_baselines(("data-parallel",))
    assert session.wait(LIMIT_SECONDS)
    session.show_entry(1)
    state = set_and_wait(session, memory_bytes=20 * GIB)
    assert (len(planner.plans), state.estimated) == (1, True)


def test_b_keeps_the_global_batch_and_refuses_what_does_not_divide_it(explorer: Explorer, planner: Any) -> None:
    plan_and_wait(explorer.session)
    b = explorer.controls["num_microbatches"]
    assert list(b.stops) == [1, 2, 4, 8, 16, 32, 64]
    b.value = 16
    assert (explorer.settings.num_microbatches, explorer.settings.microbatch) == (16, 4)
    assert explorer.wait(LIMIT_SECONDS)
    assert (planner.plans[-1]["num_microbatches"], planner.captures[-1]) == (16, ("gpt-tiny", 4))
    b.value = 24
    assert b.problem == "64 samples are not 24 equal microbatches: 16 or 32 are. Still 16."
    assert (b.value, explorer.settings.num_microbatches) == (16, 16)
    b.value = 32
    assert (b.problem, explorer.settings.microbatch) == ("", 2)
    assert explorer.wait(LIMIT_SECONDS)


def test_where_the_microbatch_stays_any_b_is_answered_without_the_planner(explorer: Explorer, planner: Any) -> None:
    plan_and_wait(explorer.session)
    explorer.controls.kept.value = "microbatch"
    explorer.controls["num_microbatches"].value = 24
    assert explorer.wait(LIMIT_SECONDS)
    assert (explorer.plan.options.num_microbatches, explorer.settings.microbatch) == (24, 8)
    assert (len(planner.plans), planner.replans) == (1, [24])
