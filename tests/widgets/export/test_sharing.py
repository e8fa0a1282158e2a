"""Exports of the explorer work elsewhere: code runs, files open, tables are complete."""

import ast
import csv
import html
import io
import json
import re
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from alpa_explore_widgets.elements.tables import row_key, table_csv, table_html
from alpa_explore_widgets.explorer import Explorer, explore
from alpa_explore_widgets.export import plan_code, plan_from_text
from alpa_explore_widgets.panels.actions import file_name
from alpa_explore_widgets.session.sources import Sources, device_overrides

import alpa_explore as ax
from alpa_explore.errors import OptionError, PlanFileError
from alpa_explore.models import catalog
from alpa_explore.plans.file.document import plan_text
from alpa_explore.plans.report.tables import layers_table, stages_table
from alpa_explore.plans.report.timeline_tables import submeshes_table
from tests.plans.example import example_plan
from tests.waiting import LIMIT_SECONDS
from tests.widgets.conftest import SETTINGS

CHANGED = replace(
    SETTINGS,
    num_layers=3,
    solver="ilp",
    precision="float32",
    schedule="gpipe",
    communication=True,
    rematerialization=False,
    memory_bytes=3.0e10,
    peak_flops=2e14,
    inside_bandwidth=1e11,
    between_bandwidth=5e9,
)


CONFIG = {
    "architectures": ["Qwen2ForCausalLM"],
    "model_type": "qwen2",
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 128,
    "max_position_embeddings": 64,
}
UNLIKE = replace(SETTINGS, device="1x4:h100+1x4:v100", nodes=2, devices_per_node=4)


@pytest.mark.parametrize("settings", [SETTINGS, CHANGED, UNLIKE])
def test_the_code_of_the_settings_requests_exactly_these_settings(
    settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments: dict[str, Any] = {}

    def plan(model: str, cluster: Any, **options: Any) -> str:
        arguments.update(model=model, cluster=cluster, **options)
        return "the plan"

    monkeypatch.setattr(ax, "plan", plan, raising=False)
    namespace: dict[str, Any] = {}
    cluster = Sources(lambda *_: SimpleNamespace()).cluster(settings)
    exec(plan_code(settings, cluster, reference=settings.model), namespace)
    assert namespace["plan"] == "the plan"
    assert arguments.pop("model") == settings.model
    assert arguments.pop("cluster") == cluster
    pipeline = arguments.pop("pipeline", None)
    assert pipeline == (ax.PipelineOptions(**settings.pipeline) if settings.pipeline else None)
    batch = settings.microbatch * settings.num_microbatches
    assert arguments.pop("global_batch", catalog.entry(settings.model).global_batch) == batch
    assert arguments == {
        name: getattr(settings, name)
        for name in ("num_microbatches", "delta", "num_layers", "rematerialization", "precision", "solver")
        if getattr(settings, name) not in (None, "auto")
    }


def test_the_code_of_a_model_from_a_config_names_it_wherever_it_runs(tmp_path: Path, planner: Any) -> None:
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    explorer = explore(str(tmp_path / "config.json"), cluster="1x4:h100", backend=planner.functions())
    explorer.wait(LIMIT_SECONDS)
    (tmp_path / "config.json").unlink()
    for code in (explorer.toolbar.widget.code, html.unescape(explorer._repr_mimebundle_()["text/html"])):
        called = re.search(r"(?:ax\.plan|explore)\(('hf@.*?')", code)
        assert called is not None, code
        assert catalog.entry(ast.literal_eval(called[1])).name == "Qwen2ForCausalLM"
    assert explorer.controls["expert_imbalance"].layout.display == "none", "a dense model"


def cluster_of_ones_own() -> ax.Cluster:
    """One whose device is no preset, with software of its own, that sends experts unevenly."""
    cluster = ax.Cluster.parse("1x4:h100", memory_bytes=2**35, expert_imbalance=1.5)
    return cluster.with_changes(name="mine", software=replace(cluster.software, name="ours", iteration_seconds=0.01))


def file_of(plan: ax.Plan, folder: Path) -> ax.Plan:
    plan.save(folder / "a.plan.json")
    return ax.load_plan(folder / "a.plan.json")


def of_another_batch() -> ax.Plan:
    return ax.plan("mlp-tiny", "1x4:h100@fsdp", num_microbatches=8, global_batch=24, num_layers=2)


OPTIONS = {"cluster": "1x4:h100", "num_microbatches": 8, "num_layers": 2}
SOURCES: dict[str, Callable[[Path, ax.TrainingGraph], Explorer]] = {
    "catalogue": lambda folder, graph: explore("mlp-tiny", **OPTIONS, global_batch=24),
    "config": lambda folder, graph: explore(str(folder / "config.json"), **OPTIONS, sequence=32, global_batch=16),
    "graph": lambda folder, graph: explore(graph, **OPTIONS),
    "cluster": lambda folder, graph: explore("mlp-tiny", **{**OPTIONS, "cluster": cluster_of_ones_own()}),
    "file": lambda folder, graph: explore(file_of(of_another_batch(), folder)),
    "file of a graph": lambda folder, graph: explore(file_of(ax.plan(graph, "1x2:v100", num_microbatches=4), folder)),
    "baseline": lambda folder, graph: explore(
        file_of(ax.baseline("gpt-tiny", "1x4:h100", "megatron", tp=2, pp=2, zero=1, num_microbatches=8), folder)
    ),
}
"""Where a plan comes from -> what shows one in a folder with a config."""


@pytest.mark.slow
@pytest.mark.parametrize("source", SOURCES)
def test_the_code_that_is_copied_or_saved_makes_the_plan_on_screen_wherever_it_comes_from(
    source: str, tmp_path: Path, drawn: list[Any]
) -> None:
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    module, inputs = catalog.build("mlp-tiny", 4)
    graph = ax.capture(module, inputs, name="my own")
    explorer = SOURCES[source](tmp_path, graph)
    plan = explorer.wait(LIMIT_SECONDS)
    assert plan is not None
    copied: dict[str, Any] = {"graph": graph}
    exec(explorer.toolbar.widget.code, copied)
    saved = html.unescape(explorer._repr_mimebundle_()["text/html"])
    code, call = saved.partition("<pre>")[2].partition("</pre>")[0].rstrip().rsplit("\n", 1)
    names: dict[str, Any] = {"graph": graph}
    exec(code, names)
    shown = eval(call, names)
    for again in (copied["plan"], shown.wait(LIMIT_SECONDS)):
        assert again.stages == plan.stages
        assert again.predicted == plan.predicted
        assert again.cluster == plan.cluster
    explorer.close()
    shown.close()


def test_a_global_batch_is_that_of_the_explorer_and_one_that_microbatches_cannot_have_is_refused(planner: Any) -> None:
    functions = planner.functions()
    explorer = explore("gpt-tiny", global_batch=24, num_microbatches=8, backend=functions)
    assert (explorer.settings.microbatch, explorer.settings.num_microbatches) == (3, 8)
    explorer.close()
    module, inputs = catalog.build("mlp-tiny", 4)
    own = explore(module, example_inputs=inputs, global_batch=24, backend=functions)
    assert (own.settings.microbatch, own.settings.num_microbatches) == (4, 6)
    own.close()
    with pytest.raises(OptionError, match=r"global_batch=10 in 2 microbatches of 4.*a multiple of 4"):
        explore(module, example_inputs=inputs, global_batch=10, backend=functions)


def test_a_saved_plan_opens_again_and_a_damaged_one_names_the_users_file() -> None:
    plan = example_plan()
    assert plan_from_text("mine.plan.json", plan_text(plan).encode()) == plan
    with pytest.raises(PlanFileError, match=r"mine\.plan\.json"):
        plan_from_text("mine.plan.json", b"{")


def test_a_plan_that_is_opened_brings_its_settings_and_its_figures(explorer: Explorer) -> None:
    cluster = ax.Cluster.parse("1x4:v100", memory_bytes=2**35)
    plan = replace(example_plan(), cluster=cluster, model=replace(example_plan().model, recipe="gpt-tiny", samples=8))
    explorer.toolbar_pressed("open", {"name": "a.plan.json"}, [plan_text(plan).encode()])
    # The example has eight devices: a file with four of them is inconsistent, which the explorer reports in place.
    assert "a.plan.json" in explorer.messages.text.value
    plan = replace(plan, cluster=replace(cluster, nodes=2))
    explorer.toolbar_pressed("open", {"name": "a.plan.json"}, [plan_text(plan).encode()])
    assert explorer.plan == plan
    assert (explorer.settings.nodes, explorer.settings.memory_bytes) == (2, 2.0**35)
    assert explorer.session.sources.cluster(explorer.settings) == plan.cluster


def test_device_overrides_are_the_settings_that_reproduce_a_cluster() -> None:
    sources = Sources(lambda *_: SimpleNamespace())
    plain = sources.cluster(SETTINGS)
    assert device_overrides(plain, plain) == {}
    apart = device_overrides(sources.cluster(CHANGED), plain)
    assert apart == {name: getattr(CHANGED, name) for name in apart}
    assert len(apart) == 4


def test_rows_of_a_table_select_what_they_are_about() -> None:
    plan = example_plan()
    assert [row_key(row, plan) for row in stages_table(plan)] == [f"stage:{s.index}" for s in plan.stages]
    assert row_key(layers_table(plan)[-1], plan) == f"stage:{plan.stages[-1].index}/layer:{len(plan.layers) - 1}"
    assert row_key({"operator": "a b", "layer": 0}, plan, 0) == "stage:0/layer:0/operator:a%20b"
    timeline = submeshes_table(plan, plan.timeline())
    assert row_key(timeline[2], plan) == "stage:2"
    assert row_key({"what": "x"}, plan) == ""


def test_a_table_is_text_and_its_file_has_every_row() -> None:
    plan = example_plan()
    rows = [{"operator": f"<b>{i}", "layer": 0, "inputs": ("S0R", "RR")} for i in range(900)]
    html = table_html(rows, plan, 0)
    assert "<b>1" not in html
    assert html.count("<tr") == 401
    assert "500 more rows" in html
    read = list(csv.DictReader(io.StringIO(table_csv(rows))))
    assert len(read) == 900
    assert read[0]["inputs"] == "S0R RR"


@pytest.mark.slow
def test_each_button_saves_a_file_of_its_kind(explorer: Explorer, monkeypatch: pytest.MonkeyPatch) -> None:
    saved: list[tuple[str, str]] = []
    monkeypatch.setattr(type(explorer.toolbar.widget), "save", lambda _, name, text, kind: saved.append((name, kind)))
    plan = replace(example_plan(), details=None)  # as a plan from a file
    explorer.session.show_plan(plan)
    for name in ("plan", "csv", "html", "report", "fsdp2", "megatron"):
        explorer.toolbar_pressed(name, {}, [])
        assert explorer.session.wait(LIMIT_SECONDS)
    kinds = ["application/json", "text/csv", "text/html", "text/html", "text/x-python", "text/x-shellscript"]
    assert [kind for _, kind in saved] == kinds
    assert [name for name, _ in saved[3:]] == [
        "gpt-example_2x4_B32.report.html",
        "gpt-example_2x4_B32.fsdp2.py",
        "gpt-example_2x4_B32.megatron.sh",
    ]
    assert "It does not express: Stages on unequal submeshes" in explorer.session.store.state.activity
    assert saved[0][0] == file_name(plan, "plan.json") == "gpt-example_2x4_B32.plan.json"


def test_files_requested_during_a_query_are_all_saved_and_it_is_not_cancelled(
    explorer: Explorer, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved: list[str] = []
    answered: list[bool] = []
    release = threading.Event()

    def save(_toolbar: object, _name: str, _text: str, kind: str) -> None:
        assert release.wait(LIMIT_SECONDS)
        saved.append(kind)

    monkeypatch.setattr(type(explorer.toolbar.widget), "save", save)
    explorer.session.show_plan(example_plan())
    explorer.session.run_query(lambda: answered.append(release.wait(LIMIT_SECONDS)) or {}, "asking…")
    for name in ("plan", "csv", "plan"):
        explorer.toolbar_pressed(name, {}, [])
    release.set()
    assert explorer.session.wait(LIMIT_SECONDS)
    assert saved == ["application/json", "text/csv", "application/json"]
    assert answered == [True]
