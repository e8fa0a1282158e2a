"""Graphs as plain lists: dumping and loading changes nothing."""

import json
from contextlib import contextmanager

import pytest

from alpa_explore.graph.document import dump_graph, load_graph
from alpa_explore.models.catalog import entry
from alpa_explore.planner.microbatch_graph import microbatch_graph
from alpa_explore.store.cache import SolveCache
from alpa_explore.tracing import catalogue


@pytest.mark.sweep(kept=1, in_turn=True)
@pytest.mark.slow
@pytest.mark.parametrize("name", ["gpt-tiny", "moe-tiny", "wide-resnet-tiny", "mlp-tiny"])
def test_a_graph_survives_dumping_and_loading(name: str) -> None:
    graph = microbatch_graph(name, 4)
    again = load_graph(json.loads(json.dumps(dump_graph(graph))))
    assert again == graph
    for field in ("name", "recipe", "warnings", "operators", "tensors", "parameters"):
        assert getattr(again, field) == getattr(graph, field)
    assert [type(a) for o in again.operators for a in o.arguments] == [
        type(a) for o in graph.operators for a in o.arguments
    ]


def test_a_catalogue_model_is_captured_once(tmp_path, monkeypatch) -> None:
    store = SolveCache(tmp_path)
    model = entry("mlp-tiny")
    first = catalogue.catalogue_graph(model, 8, store=store)
    monkeypatch.setattr("alpa_explore.tracing.capture.capture", None)
    assert catalogue.catalogue_graph(model, 8, store=store) == first
    with pytest.raises(TypeError):
        catalogue.catalogue_graph(model, 16, store=store)


def test_a_graph_that_is_read_is_not_captured(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr("alpa_explore.planner.microbatch_graph.catalogue_graph", catalogue.catalogue_graph)
    captures: list[str] = []

    @contextmanager
    def capturing():
        captures.append("begins")
        yield
        captures.append("ends")

    store = SolveCache(tmp_path)
    for _ in range(2):
        microbatch_graph("mlp-tiny", 8, store=store, capturing=capturing)
        assert captures == ["begins", "ends"]


def test_changed_code_captures_again(tmp_path, monkeypatch) -> None:
    store = SolveCache(tmp_path)
    model = entry("mlp-tiny")
    catalogue.catalogue_graph(model, 8, store=store)
    monkeypatch.setattr(catalogue, "code_version", lambda *_: "other code")
    monkeypatch.setattr("alpa_explore.tracing.capture.capture", None)
    with pytest.raises(TypeError):
        catalogue.catalogue_graph(model, 8, store=store)
