"""Questions about clusters: what is typed while they are answered is not lost."""

import threading
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

from alpa_explore_widgets.session.asking.layouts import LayoutQuestions
from alpa_explore_widgets.session.backend import Backend
from alpa_explore_widgets.session.sources import Sources
from alpa_explore_widgets.session.state import State, StateStore

from alpa_explore.cluster import Cluster
from alpa_explore.uniform_layouts.scaling import Scaling, ScalingPoint
from tests.waiting import LIMIT_SECONDS
from tests.widgets.conftest import SETTINGS

PRICED = Scaling(
    model="gpt-tiny",
    global_batch=8,
    sequence=128,
    precision="float16",
    points=(
        ScalingPoint(
            cluster=Cluster.parse("1x8:h100"),
            state="priced",
            best=SimpleNamespace(tokens_per_second=1e6),  # type: ignore[arg-type]  # no more of it is read
        ),
    ),
)


def test_a_price_that_is_given_while_clusters_are_priced_holds_for_what_comes_later() -> None:
    first, go_on = threading.Event(), threading.Event()

    def scaling(*_arguments: Any, partial: Any, **_options: Any) -> Scaling:
        partial(PRICED)
        first.set()
        assert go_on.wait(LIMIT_SECONDS)
        return replace(PRICED, whole=True)

    store, backend = StateStore(State(settings=SETTINGS)), Backend(scaling=scaling)
    questions = LayoutQuestions(store, Sources(backend.capture, None, Cluster.parse("1x4:v100"), None), backend)
    questions.ask_scaling(("h100",), (1,), {})
    assert first.wait(LIMIT_SECONDS)
    questions.set_prices({"h100": 3.6})
    go_on.set()
    assert questions.scaling.worker.wait(LIMIT_SECONDS)
    answer = store.state.scaling
    assert answer.found is not None
    assert not answer.running
    (point,) = answer.found.points
    assert point.dollars_per_billion_tokens == 8 * 3.6 / 3600 / 1e6 * 1e9
