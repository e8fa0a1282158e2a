"""Figures of other B that are made ahead are those that the tab shows once B has changed."""

import gzip
import math
from collections.abc import Iterator

import pytest
from alpa_explore_widgets import explore
from alpa_explore_widgets.explorer import Explorer
from alpa_explore_widgets.session import tuning
from alpa_explore_widgets.tabs.layouts.fit_scale import FitScalePanel
from alpa_explore_widgets.tabs.of_plan import FrontierPanel

import alpa_explore as ax
from tests.waiting import LIMIT_SECONDS
from tests.widgets.conftest import type_and_wait

TABS = ("Overview", "Cluster", "Costs", "t_max", "Microbatches", "Timeline", "Memory", "Search", "Compare")
OF_THE_HISTORY = ("Search", "Compare")
OF_LAYOUTS = ("Fit & scale", "Layouts")
"""Whose figures show the answers to questions about uniform layouts."""


@pytest.fixture(autouse=True)
def no_figures_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    """In place of the fixture of conftest.py: here they are, however long they take."""
    monkeypatch.setattr(tuning, "AHEAD_SECONDS", math.inf)


@pytest.fixture(scope="module")
def plan() -> ax.Plan:
    return ax.plan("mlp-tiny", "1x4:v100", num_microbatches=8, num_layers=2, scheduler="serial", cache=False)


@pytest.fixture
def explorer(plan: ax.Plan, monkeypatch: pytest.MonkeyPatch) -> Iterator[Explorer]:
    """Its slider moves until a test says that it rests."""
    monkeypatch.setattr("alpa_explore_widgets.session.tuning.SAME_MOVE_SECONDS", 1e6)
    made = explore(plan)
    yield made
    made.close()


def ahead(explorer: Explorer, title: str) -> dict[str, bytes]:
    explorer.go_to_tab(title)
    assert explorer.ahead.wait(LIMIT_SECONDS)
    (figure,) = explorer.panels[explorer.tabs.selected].figures
    return dict(figure.ahead)


def drawn_at(explorer: Explorer, b: int) -> str:
    """What Python draws once the slider is at `b`."""
    type_and_wait(explorer, num_microbatches=float(b))
    assert explorer.plan.options.num_microbatches == b
    (figure,) = explorer.panels[explorer.tabs.selected].figures
    return figure.html if hasattr(figure, "html") else figure.figure_json


def text(packed: bytes) -> str:
    return gzip.decompress(packed).decode()


@pytest.mark.sweep(kept=4)
@pytest.mark.slow
@pytest.mark.parametrize("title", TABS)
def test_they_are_what_python_draws_for_that_b(explorer: Explorer, title: str) -> None:
    figures = ahead(explorer, title)
    stops = [int(stop) for stop in explorer.controls["num_microbatches"].stops]
    own = {8} if title == "Compare" else set()  # where there is no other plan to compare with
    assert list(figures) == [str(b) for b in sorted(stops, key=lambda b: abs(b - 8)) if b not in own]
    for b in (16, stops[0], 8):
        drawn = drawn_at(explorer, b)
        assert b in own or text(figures[str(b)]) == drawn
    assert ahead(explorer, title) == figures  # B has changed and nothing else: they stay


def test_every_tab_that_is_made_ahead_is_tested_here(explorer: Explorer) -> None:
    assert {tab.kind.title for tab in explorer.panels.tabs if tab.kind.made_ahead} == {*TABS, *OF_LAYOUTS}


@pytest.fixture(scope="module")
def decoder_plan() -> ax.Plan:
    return ax.plan("gpt-tiny", "1x4:v100", num_microbatches=4, num_layers=2, scheduler="serial")


@pytest.mark.sweep(kept=1, in_turn=True)
@pytest.mark.slow
@pytest.mark.parametrize("title", OF_LAYOUTS)
def test_those_of_layouts_are_made_once_the_question_is_answered(decoder_plan: ax.Plan, title: str) -> None:
    explorer = explore(decoder_plan)
    fit = explorer.panels[explorer.panels.at("Fit & scale")]
    assert isinstance(fit, FitScalePanel)
    fit.devices.value, fit.nodes.value = "v100", "1, 2"
    explorer.go_to_tab(title)  # which asks
    questions = explorer.session.layouts
    assert questions.layouts.worker.wait(LIMIT_SECONDS)
    assert questions.scaling.worker.wait(LIMIT_SECONDS)
    figures = ahead(explorer, title)
    assert "8" not in figures, "its larger microbatches were not captured, and are not until the slider is there"
    for b in (3, 1, 4):
        assert text(figures[str(b)]) == drawn_at(explorer, b)
        assert questions.layouts.by_batch.worker.wait(LIMIT_SECONDS)
    before = explorer.session.store.state
    assert drawn_at(explorer, 8)  # reads what the others of its size need, too
    assert questions.layouts.by_batch.worker.wait(LIMIT_SECONDS)
    assert questions.scaling.by_batch.worker.wait(LIMIT_SECONDS)
    assert "8" in ahead(explorer, title)
    drawn_at(explorer, before.settings.num_microbatches)
    state = explorer.session.store.state
    answer = state.layouts if title == "Layouts" else state.scaling
    assert answer.question.global_batch == 4 * state.settings.microbatch
    assert ahead(explorer, title).items() > figures.items()
    explorer.close()


def test_where_they_take_long_those_near_the_slider_are_made(plan: ax.Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuning, "AHEAD_SECONDS", 0.0)
    explorer = explore(plan)
    stops = [int(stop) for stop in explorer.controls["num_microbatches"].stops]
    first = ahead(explorer, "t_max")
    assert len(first) == tuning.FIRST_FIGURES < len(stops)
    assert {str(b) for b in stops if abs(b - 8) <= 2} <= first.keys()
    drawn_at(explorer, stops[-1])
    second = ahead(explorer, "t_max")
    assert second.keys() == first.keys() | {str(b) for b in stops[-tuning.FIRST_FIGURES :]}
    assert text(second[str(stops[-2])]) == drawn_at(explorer, stops[-2])
    explorer.close()


@pytest.mark.slow
def test_they_are_replaced_when_something_else_changes(explorer: Explorer) -> None:
    before = ahead(explorer, "Memory")
    type_and_wait(explorer, schedule="gpipe")
    after = ahead(explorer, "Memory")
    assert after.keys() == before.keys()
    assert after["16"] != before["16"]
    assert text(after["16"]) == drawn_at(explorer, 16)


@pytest.mark.slow
def test_they_follow_a_choice_of_the_tab(explorer: Explorer) -> None:
    before = ahead(explorer, "Memory")
    panel = explorer.panels[explorer.tabs.selected]
    assert isinstance(panel, FrontierPanel)
    panel.view.value = "choices"
    assert explorer.ahead.wait(LIMIT_SECONDS)
    after = panel.figure.ahead
    assert after.keys() == before.keys()
    assert after["16"] != before["16"]
    assert text(after["16"]) == drawn_at(explorer, 16)


@pytest.mark.slow
def test_none_are_on_the_page_while_another_model_waits_for_plan(explorer: Explorer) -> None:
    before = ahead(explorer, "Memory")
    explorer.controls["model"].value = "gpt-tiny"
    assert ahead(explorer, "Memory") == {}
    explorer.controls["model"].value = "mlp-tiny"
    assert ahead(explorer, "Memory") == before


@pytest.mark.slow
def test_another_tab_stops_those_of_the_first_which_are_made_when_it_is_selected_again(explorer: Explorer) -> None:
    explorer.go_to_tab("t_max")
    t_max = explorer.panels[explorer.tabs.selected]
    assert ahead(explorer, "Cluster")
    assert t_max.figure.ahead == {}
    assert ahead(explorer, "t_max")


@pytest.mark.sweep(kept=1, in_turn=True)
@pytest.mark.slow
@pytest.mark.parametrize("title", OF_THE_HISTORY)
def test_those_with_the_history_are_made_again_when_the_slider_rests(explorer: Explorer, title: str) -> None:
    store, before = explorer.session.store, ahead(explorer, title)
    drawn_at(explorer, 16)
    assert ahead(explorer, title) == before  # the next stop takes the place of this one in the history
    store.change(moving=False)
    after = ahead(explorer, title)
    assert after["32"] != before["32"]
    assert len(store.state.history.entries) == 2
    assert text(after["32"]) == drawn_at(explorer, 32)
    assert len(store.state.history.entries) == 3


def test_none_are_made_for_a_tab_that_shows_more_than_plan_and_history(explorer: Explorer) -> None:
    assert ahead(explorer, "Layers") == {}
