"""How soon a plan is there: what was captured and solved before is read, and what takes long is named."""

import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from alpa_explore_widgets.panels.actions import progress_html
from alpa_explore_widgets.session.backend import Backend
from alpa_explore_widgets.session.session import Session
from alpa_explore_widgets.session.sources import Sources
from numba import njit

import alpa_explore as ax
from alpa_explore.execution import dask_pool
from alpa_explore.execution.progress import Progress
from alpa_explore.graph import TrainingGraph
from alpa_explore.graph.document import load_graph
from tests.waiting import LIMIT_SECONDS
from tests.widgets.conftest import plan_and_wait

KNOWN_PLAN = """
import sys
from alpa_explore_widgets import explore
plan = explore("mlp-tiny", cluster="1x4:v100", num_microbatches=8, num_layers=2).wait()
print(repr(plan.predicted), plan.statistics.cached_solves == plan.statistics.distinct_solves)
print(sorted({"torch", "distributed"} & set(sys.modules)))
"""


@pytest.fixture
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ALPA_EXPLORE_CACHE", str(tmp_path))
    return tmp_path


@pytest.mark.slow
def test_a_known_plan_in_a_new_process_needs_neither_torch_nor_workers_and_is_the_same(own_cache: Path) -> None:
    first, second = (
        subprocess.run([sys.executable, "-c", KNOWN_PLAN], capture_output=True, text=True, check=True).stdout
        for _ in range(2)
    )
    first_plan, second_plan = first.splitlines()[-2:], second.splitlines()[-2:]
    assert second_plan[1] == "[]", "read from the cache"
    assert second_plan[0] == first_plan[0].replace("False", "True")


def test_the_plan_from_a_stored_graph_equals_the_one_without_any_cache(own_cache: Path) -> None:
    backend, settings = Backend(), {"num_microbatches": 8, "num_layers": 2}
    backend.capture("mlp-tiny", 8)
    stored = backend.capture("mlp-tiny", 8)
    count = 64 // 8
    fresh = ax.plan("mlp-tiny", "1x4:v100", global_batch=64, num_microbatches=count, num_layers=2, cache=False)
    found = backend.plan(stored, ax.Cluster.parse("1x4:v100"), delta=0.5, **settings)
    assert found.stages == fresh.stages
    assert found.predicted == fresh.predicted
    assert found.costs.candidates == fresh.costs.candidates


@pytest.mark.parametrize("change", ["sources", "torch"])
def test_a_graph_that_other_code_captured_is_captured_again(
    own_cache: Path, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    Backend().capture("mlp-tiny", 8)
    captured = []

    def stored_graph(stored: dict[str, Any]) -> TrainingGraph:
        captured.append("stored")
        return load_graph(stored)

    monkeypatch.setattr("alpa_explore.tracing.catalogue.load_graph", stored_graph)
    Backend().capture("mlp-tiny", 8)
    assert captured == ["stored"]
    monkeypatch.setattr("alpa_explore.tracing.catalogue.code_version", lambda *_: change)
    assert Backend().capture("mlp-tiny", 8).name == "mlp-tiny"
    assert captured == ["stored"]


def test_no_worker_is_started_for_what_the_cache_answers(own_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = {"num_microbatches": 8, "num_layers": 2}
    before = ax.plan("mlp-tiny", "1x4:v100", **plan)
    monkeypatch.setattr(dask_pool, "open_pool", lambda *_: pytest.fail("a worker was started"))
    assert ax.plan("mlp-tiny", "1x4:v100", scheduler="processes", **plan).predicted == before.predicted


def test_compiling_is_named_while_it_lasts(planner: Any, with_settings: Any) -> None:
    compiling, told = threading.Event(), threading.Event()

    def plan(*arguments: Any, **options: Any) -> Any:
        njit(lambda x: 7 * x)(1)
        assert told.wait(LIMIT_SECONDS), "nothing was said"
        return planner.plan(*arguments, **options)

    functions = Backend(capture=planner.capture, plan=plan)
    session = Session(with_settings(), Sources(functions.capture), functions)
    texts: list[str] = []

    def listen(_old: Any, new: Any) -> None:
        texts.append(progress_html(new))
        if new.compiling:
            compiling.set()
        elif compiling.is_set():
            told.set()

    session.store.listen(listen)
    plan_and_wait(session)
    assert any("Compiling kernels (only the first time on this machine)" in text for text in texts)
    assert not session.store.state.compiling


def test_every_step_is_told_in_plain_words(session: Session, planner: Any) -> None:
    texts: list[str] = []
    session.store.listen(lambda _old, new: texts.append(progress_html(new)))
    plan_and_wait(session)
    told = " | ".join(texts)
    assert told.index("Reading the model: gpt-tiny…") < told.index("Clustering the operators into layers…")
    assert "Solving sharding problems: 0 of 2" in told
    assert "capturing" not in told


def test_each_of_several_settings_says_which_it_is(session: Session, with_settings: Any) -> None:
    texts: list[str] = []
    plan_and_wait(session)
    session.store.listen(lambda _old, new: texts.append(progress_html(new)))
    session.try_settings((with_settings(delta=0.25), with_settings(delta=1.0)), ("δ 0.25", "δ 1"))
    assert session.wait(LIMIT_SECONDS)
    assert any("2 of 2: δ 1: Solving sharding problems: 0 of 2" in text for text in texts)


def test_compiling_is_named_beside_counts_and_without_them(session: Session) -> None:
    session.store.change(planning=True, progress=None, compiling=True, activity="")
    assert "Compiling kernels" in progress_html(session.store.state)
    session.store.change(progress=Progress(pass_name="sharding", done=1, total=2, elapsed_seconds=1.0))
    assert "Compiling kernels" in progress_html(session.store.state)
