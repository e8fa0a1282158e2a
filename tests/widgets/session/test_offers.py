"""After a fault for lack of memory: what would fit is sought in the background and offered as a button."""

import threading
from collections.abc import Callable
from typing import Any

import pytest
from alpa_explore_widgets.explorer import Explorer
from alpa_explore_widgets.panels.messages import message_html
from alpa_explore_widgets.session.backend import Backend
from alpa_explore_widgets.session.session import Session
from alpa_explore_widgets.session.settings import Settings
from alpa_explore_widgets.session.sources import Sources
from alpa_explore_widgets.session.state import Offer, State

from alpa_explore.cluster import Cluster
from alpa_explore.errors import AlpaExploreError, InfeasiblePlanError
from alpa_explore.planner.fitting import FittingCluster
from tests.waiting import LIMIT_SECONDS, until
from tests.widgets.conftest import plan_and_wait, set_and_wait

TOO_LARGE = InfeasiblePlanError("No plan fits in memory", found="stage 0", remedy="Use more.", over_bytes=1.0)
LARGER = FittingCluster(cluster=Cluster.parse("2x8:v100"), found=True, least=True)


class Graph:
    rematerialization = False


class Search:
    """Answers of the search for what fits; `gate` holds it back."""

    def __init__(self) -> None:
        self.gate, self.asked = threading.Event(), [0]
        self.gate.set()
        self.larger: FittingCluster | None = LARGER
        self.cancelled = False
        self.both_needed = False
        """Whether only recomputation with microbatches of one sample fits."""

    def fitting_cluster(self, _graph: object, _cluster: object, *, cancel: threading.Event, **options: Any) -> Any:
        self.asked.append(options["num_microbatches"])
        until(lambda: self.gate.is_set() or cancel.is_set(), "the test lets it go on")
        if not self.gate.is_set():
            self.cancelled = True
            return None
        return self.larger

    def fits(self, _graph: object, _cluster: object, *, cancel: threading.Event, **options: Any) -> bool:
        recomputes, count = bool(options.get("rematerialization")), options["num_microbatches"]
        return (recomputes and count == 64) if self.both_needed else (recomputes or count == 16)


@pytest.fixture
def search() -> Search:
    return Search()


@pytest.fixture
def session(planner: Any, search: Search, with_settings: Callable[..., Settings]) -> Session:
    functions = Backend(
        capture=lambda *_, **__: Graph(),
        plan=planner.plan,
        replan=planner.replan,
        fitting_cluster=search.fitting_cluster,
        fits=search.fits,
    )
    return Session(with_settings(), Sources(functions.capture), functions)


def refused(session: Session, planner: Any) -> tuple[State, tuple[Offer, ...]]:
    """The state after planning what is too large, and what is offered instead."""
    planner.error = TOO_LARGE
    state = plan_and_wait(session)
    return state, state.offers.offers


def test_the_plan_on_screen_is_not_made_again_for_settings_that_are_planned_at_once(
    session: Session, planner: Any, plan: Any
) -> None:
    session.show_plan(plan)
    session.take(Offer(found="", button="", changes=(("num_microbatches", 16), ("microbatch", 4))))
    assert session.wait(LIMIT_SECONDS)
    session.plan_on(Cluster.parse("1x8:v100"))
    assert session.wait(LIMIT_SECONDS)
    assert planner.replans == []
    assert len(session.store.state.history.entries) == 3
    settings = session.store.state.settings
    assert (settings.num_microbatches, settings.microbatch, settings.devices_per_node) == (16, 4, 8)


def test_more_devices_recomputation_and_smaller_microbatches_are_offered(session: Session, planner: Any) -> None:
    state, offers = refused(session, planner)
    assert [o.button for o in offers] == ["Plan on 2 × 8", "Plan with recomputation", "Plan with microbatches of 4"]
    html = message_html(state)
    assert "Needs 16 × v100: 2 nodes of 8; Fits with recomputation; Fits with microbatches of 4, B = 16." in html


def test_recomputation_with_the_smallest_microbatches_is_offered_where_neither_alone_fits(
    session: Session, planner: Any, search: Search
) -> None:
    search.both_needed = True
    _, offers = refused(session, planner)
    assert [o.button for o in offers] == ["Plan on 2 × 8", "Plan with recomputation, microbatches of 1"]
    assert dict(offers[-1].changes) == {"rematerialization": True, "microbatch": 1, "num_microbatches": 64}


def test_a_press_sets_the_cluster_and_plans(session: Session, planner: Any, drawn: object) -> None:
    explorer = Explorer(session)
    planner.error = TOO_LARGE
    plan_and_wait(session)
    assert len(explorer.messages.buttons.children) == 3
    planner.error = None
    explorer.messages.buttons.children[0].click()
    assert session.wait(LIMIT_SECONDS)
    state = session.store.state
    assert planner.plans[-1]["cluster"] == "2x8:v100"
    assert state.plan is not None
    assert (state.fault, state.offers, state.out_of_date) == (None, None, False)
    assert explorer.messages.buttons.children == ()


def test_the_message_is_there_at_once_and_says_that_more_is_sought(
    session: Session, planner: Any, search: Search
) -> None:
    search.gate.clear()
    planner.error = TOO_LARGE
    session.plan()
    assert session.planning.plans.wait(LIMIT_SECONDS)
    assert "Looking for what would fit" in message_html(session.store.state)
    assert not session.store.state.planning
    session.cancel()
    assert session.wait(LIMIT_SECONDS)
    assert search.cancelled


def test_a_new_plan_ends_the_search(session: Session, planner: Any, search: Search) -> None:
    search.gate.clear()
    planner.error = TOO_LARGE
    session.plan()
    assert session.planning.plans.wait(LIMIT_SECONDS)
    planner.error = None
    plan_and_wait(session)
    assert search.cancelled
    assert session.store.state.offers is None


def test_a_lower_bound_is_said_and_not_offered(session: Session, planner: Any, search: Search) -> None:
    search.larger = FittingCluster(cluster=Cluster.parse("2x8:v100"), found=False, least=True)
    planner.error = TOO_LARGE
    plan_and_wait(session)
    assert "Needs at least 16 × v100" in message_html(session.store.state)
    assert session.store.state.offers is not None
    assert all("2 × 8" not in o.button for o in session.store.state.offers.offers)


def test_a_b_that_does_not_fit_gets_offers_too(session: Session, planner: Any, search: Search) -> None:
    plan_and_wait(session)
    planner.error = TOO_LARGE
    set_and_wait(session, num_microbatches=64)
    assert search.asked[-1] == 64
    assert session.store.state.offers is not None


def test_other_faults_get_none(session: Session, planner: Any, user_error: AlpaExploreError) -> None:
    planner.error = user_error
    plan_and_wait(session)
    assert session.store.state.offers is None
