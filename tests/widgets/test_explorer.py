import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from alpa_explore_widgets import explore
from alpa_explore_widgets.explorer import Explorer

from alpa_explore.errors import (
    AlpaExploreError,
    BalanceError,
    ClusterError,
    LayerCountError,
    OptionError,
    UnknownNameError,
)
from alpa_explore.plans.plan import Plan
from tests.waiting import LIMIT_SECONDS
from tests.widgets.conftest import plan_and_wait, type_and_wait


def test_explore_returns_while_the_planner_still_works(planner: Any, drawn: list[Any]) -> None:
    planner.gate.clear()
    start = time.thread_time()
    explorer = explore("gpt-tiny", backend=planner.functions())
    assert time.thread_time() - start < 2  # of the processor; the planner itself does not go on before its gate opens
    assert explorer.plan is None
    explorer.session.cancel()
    assert explorer.session.wait(LIMIT_SECONDS)


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"model": "gpt-1.3"}, UnknownNameError),
        ({"model": "gpt-tiny", "cluster": "1x0:v100"}, ClusterError),
        ({"model": "gpt-tiny", "cluster": "1x4:v1000"}, UnknownNameError),
        ({"model": "gpt-tiny", "num_microbatches": -1}, OptionError),
        ({"model": 42}, OptionError),
    ],
)
def test_input_at_fault_is_an_error_of_the_cell(arguments: dict[str, Any], error: type[AlpaExploreError]) -> None:
    with pytest.raises(error):
        explore(**arguments)


def test_the_path_of_a_config_and_a_sequence_are_shown_in_the_controls(
    tmp_path: Path, planner: Any, drawn: list[Any]
) -> None:
    (tmp_path / "config.json").write_text(
        '{"model_type": "llama", "max_position_embeddings": 512, "dtype": "bfloat16"}'
    )
    explorer = explore(str(tmp_path / "config.json"), backend=planner.functions())
    assert explorer.wait(LIMIT_SECONDS)
    assert (explorer.settings.model, explorer.settings.sequence) == ("llama", None)
    assert explorer.controls["sequence"].default == 512
    explorer.controls["sequence"].value = 64
    assert explorer.settings.sequence == 64
    named = explore("llama-3-8b@131072", backend=planner.functions(), precision="bf16")
    assert named.wait(LIMIT_SECONDS)
    assert (named.settings.model, named.settings.sequence) == ("llama-3-8b", 131072)
    assert named.settings.precision == "bfloat16"
    named.controls["model"].value = "wide-resnet-1b"
    assert named.controls["sequence"].disabled
    assert named.settings.sequence is None


def test_only_the_selected_tab_is_drawn(explorer: Explorer, drawn: list[tuple[str, int, str]]) -> None:
    plan_and_wait(explorer.session)
    assert drawn == [("Cluster", 8, "light")]
    explorer.go_to_tab("t_max")
    assert drawn[1:] == [("t_max", 8, "light")]
    type_and_wait(explorer, num_microbatches=32)
    assert drawn[2:] == [("t_max", 32, "light")]
    explorer.go_to_tab("Cluster")
    assert drawn[3:] == [("Cluster", 32, "light")], "a tab that was hidden meanwhile is stale"
    explorer.go_to_tab("t_max")
    assert len(drawn) == 4, "a tab that is up to date is not drawn again"


def test_the_layers_are_not_drawn_again_for_another_b(explorer: Explorer, drawn: list[tuple[str, int, str]]) -> None:
    plan_and_wait(explorer.session)
    explorer.go_to_tab("Layers")
    type_and_wait(explorer, num_microbatches=32)
    assert [tab for tab, *_ in drawn].count("Layers") == 1, "the stages hold the same layers"
    type_and_wait(explorer, delta=0.25)
    assert drawn[-1][0] == "Layers"
    assert len(drawn) == 3


def test_a_change_of_data_reaches_the_figure_that_is_there(explorer: Explorer) -> None:
    figure = explorer.panels[explorer.tabs.selected].figure
    plan_and_wait(explorer.session)
    assert '"y":[8]' in figure.figure_json
    type_and_wait(explorer, num_microbatches=16)
    assert explorer.panels[explorer.tabs.selected].figure is figure
    assert '"y":[16]' in figure.figure_json


def test_the_figures_follow_the_theme_of_the_page(explorer: Explorer, drawn: list[tuple[str, int, str]]) -> None:
    plan_and_wait(explorer.session)
    explorer.bridge.theme = "dark"
    assert drawn[-1] == ("Cluster", 8, "dark")


def test_controls_show_the_settings_and_pass_on_changes(explorer: Explorer) -> None:
    plan_and_wait(explorer.session)
    assert explorer.controls["num_layers"].value == 4
    assert explorer.controls["num_microbatches"].note == "8 × 8 = 64 samples · 2,048 tokens an iteration"
    explorer.controls["devices_per_node"].value = "8"
    explorer.controls["device"].value = "h100"
    explorer.controls["nodes"].value = 2
    explorer.controls["num_layers"].value = None
    settings = explorer.settings
    assert (settings.nodes, settings.devices_per_node, settings.device, settings.num_layers) == (2, 8, "h100", None)
    explorer.plan_button.plan.click()
    assert explorer.wait(LIMIT_SECONDS)
    assert str(explorer.plan.cluster) == "2x8:h100"


def test_a_model_chosen_from_the_list_brings_its_batch_to_the_controls(explorer: Explorer) -> None:
    explorer.controls["model"].value = "gpt-39b"
    assert explorer.controls["num_microbatches"].value == 1024
    assert explorer.controls["microbatch"].value == "1"
    assert "48 layers" in explorer.controls["model"].note


def test_changed_settings_are_listed_below_the_plan_button(explorer: Explorer) -> None:
    plan_and_wait(explorer.session)
    explorer.controls["num_layers"].value = 6
    assert "Out of date" in explorer.plan_button.progress.value
    assert "layers 4 → 6" in explorer.plan_button.progress.value
    assert "alpa-stale" in explorer.verdict.head.value
    explorer.controls["num_layers"].value = 4
    assert "Out of date" not in explorer.plan_button.progress.value


def test_progress_shows_counts_elapsed_and_time_left_and_cancel_works(explorer: Explorer, planner: Any) -> None:
    planner.gate.clear()
    explorer.plan_button.plan.click()
    assert planner.started.acquire(timeout=LIMIT_SECONDS)
    assert "0 of 2" in explorer.plan_button.progress.value
    assert "elapsed" in explorer.plan_button.progress.value
    assert not explorer.plan_button.cancel.disabled
    explorer.plan_button.cancel.click()
    assert explorer.session.wait(LIMIT_SECONDS)
    assert explorer.plan_button.cancel.disabled
    assert "Cancelled" in explorer.plan_button.progress.value


def test_an_error_shows_what_found_and_remedy_above_the_last_plan(
    explorer: Explorer, planner: Any, user_error: AlpaExploreError
) -> None:
    plan_and_wait(explorer.session)
    planner.error = user_error
    explorer.plan_button.plan.click()
    assert explorer.session.wait(LIMIT_SECONDS)
    shown = explorer.messages.text.value
    for part in (user_error.what, user_error.found, user_error.remedy, "last plan that worked"):
        assert part in shown
    assert explorer.plan is not None


@pytest.mark.parametrize(
    ("error", "setting"),
    [
        (LayerCountError("Too many layers", found="500 layers of 13", remedy="Choose at most 13."), "num_layers"),
        (BalanceError("No clustering", found="delta = 0", remedy="The smallest delta that works is 0.2."), "delta"),
    ],
)
def test_a_value_that_the_planner_refuses_is_marked_in_its_field_until_it_changes(
    explorer: Explorer, planner: Any, error: AlpaExploreError, setting: str
) -> None:
    plan_and_wait(explorer.session)
    planner.error = error
    explorer.plan_button.plan.click()
    assert explorer.session.wait(LIMIT_SECONDS)
    field = explorer.controls[setting]
    assert field.problem == f"{error.found}. {error.remedy}"
    assert not explorer.controls["num_microbatches"].problem
    field.value = 2.0
    assert not field.problem


def test_an_impossible_cluster_is_marked_before_it_is_planned(planner: Any) -> None:
    explorer = explore("gpt-tiny", cluster="1x32:v100", backend=planner.functions())
    nodes = explorer.controls["nodes"]
    nodes.value = 1024.0
    assert nodes.problem == "32,768 devices. Give 16,384 devices at most."
    nodes.value = 512.0
    assert not nodes.problem
    explorer.close()


def test_a_figure_is_faded_while_the_next_one_is_computed(explorer: Explorer, planner: Any) -> None:
    plan_and_wait(explorer.session)
    planner.started.acquire()
    planner.replan_gate.clear()
    explorer.controls.kept.value = "microbatch"
    explorer.controls["num_microbatches"].value = 64
    assert planner.started.acquire(timeout=LIMIT_SECONDS)
    figure = explorer.panels[explorer.tabs.selected].figure
    assert figure.busy
    assert '"y":[8]' in figure.figure_json
    planner.replan_gate.set()
    assert explorer.wait(LIMIT_SECONDS)
    assert not figure.busy


def test_a_figure_that_fails_shows_its_error_in_its_own_tab_only(
    explorer: Explorer, drawn: list[tuple[str, int, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(state: object, theme: str) -> None:
        raise KeyError("no such stage")

    layers = explorer.panels[explorer.tabs.selected]
    monkeypatch.setattr(layers, "draw", fail)
    plan_and_wait(explorer.session)
    assert "no such stage" in layers.finding.value
    explorer.go_to_tab("Layers")
    assert drawn == [("Layers", 8, "light")]


def test_without_a_kernel_the_notebook_still_shows_the_plan_and_the_code(explorer: Explorer) -> None:
    plan_and_wait(explorer.session)
    html = explorer._repr_mimebundle_()["text/html"]
    assert html.count("<tr>") == 3, "a head and two stages"
    assert "explore(&#x27;gpt-tiny&#x27;, cluster=cluster" in html
    assert "num_microbatches=8" in html
    assert repr(explorer) == "Explorer(gpt-tiny on 1x4:v100, B = 8)"


def test_what_is_saved_follows_the_plan_without_rebuilding_the_explorer(
    explorer: Explorer, monkeypatch: pytest.MonkeyPatch
) -> None:
    import alpa_explore_widgets.export as module

    shown: list[dict[str, str]] = []
    tables: set[str] = set()

    def display(data: dict[str, str], *, raw: bool, display_id: str = "") -> None:
        shown.append(data)
        tables.update({display_id} - {""})

    monkeypatch.setattr(module, "display", display)
    monkeypatch.setattr(module, "update_display", display)
    explorer._ipython_display_()
    assert "No plan was ready" in shown[0]["text/html"]
    plan_and_wait(explorer.session)
    assert explorer.wait(LIMIT_SECONDS)
    table, picture = shown[2:4]
    assert shown[4:] == [table, picture], "once more for a client that drops what is sent between two cells"
    assert "T" in table["text/html"]
    assert "<table>" in table["text/html"]
    root = ElementTree.fromstring(picture["image/svg+xml"])
    titles = [text.text for text in root.iter("{http://www.w3.org/2000/svg}text") if text.get("class") == "title"]
    assert titles[1:] == ["Layers", "Cluster", "Timeline", "Why", "t_max"]
    assert "href" not in picture["image/svg+xml"], "nothing is loaded for it"
    explorer._ipython_display_()
    assert len(tables) == 2, "both cells have the same table and picture, so that an update reaches both"


def test_no_plan_comes_between_the_outputs_that_are_saved(explorer: Explorer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fault of 0.1.0: a plan that was ready while the explorer was displayed was not saved with it."""
    import alpa_explore_widgets.export as module

    lock, could_change = explorer.session.store.lock, []

    def display(data: dict[str, str], *, raw: bool, display_id: str = "") -> None:
        with ThreadPoolExecutor() as other:
            could_change.append(other.submit(lock.acquire, blocking=False).result())

    monkeypatch.setattr(module, "display", display)
    explorer._ipython_display_()
    assert could_change == [False, False]


def test_a_finished_plan_is_shown_at_once_and_b_can_be_moved(plan: Plan, planner: Any, drawn: list[Any]) -> None:
    explorer = explore(plan, backend=planner.functions())
    assert explorer.plan is plan
    assert (planner.plans, drawn) == ([], [])
    assert "data-tab" in explorer.panels[0].view.html, "the overview"  # type: ignore[attr-defined]  # an OverviewPanel
    explorer.go_to_tab("Cluster")
    assert drawn == [("Cluster", 8, "light")]
    assert explorer.settings.num_layers == 4
    type_and_wait(explorer, num_microbatches=16)
    assert drawn[-1] == ("Cluster", 16, "light")


def test_planning_again_without_the_model_is_an_error_in_place(plan: Plan, planner: Any) -> None:
    stranger = replace(plan, model=replace(plan.model, name="theirs", recipe=None))
    explorer = explore(stranger, backend=planner.functions())
    explorer.plan_button.plan.click()
    assert explorer.session.wait(LIMIT_SECONDS)
    assert "not available" in explorer.messages.text.value
    assert explorer.plan is stranger
