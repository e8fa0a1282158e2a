from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from alpa_explore_widgets.session import tuning
from alpa_explore_widgets.session.settings import Settings, device_setting
from alpa_explore_widgets.session.sources import Sources, UserModel, user_model

import alpa_explore as ax
from alpa_explore.cluster import Cluster
from alpa_explore.errors import ClusterError, OptionError, UnknownNameError
from alpa_explore.models.catalog import build, entry


class Module:
    """Has the interface of an nn.Module, without torch."""

    def named_parameters(self) -> list[Any]:
        return []


def tensor(*shape: int) -> Any:
    return SimpleNamespace(shape=shape)


@pytest.mark.parametrize("inputs", [(tensor(16, 8), tensor(16)), {"x": tensor(16, 8)}, tensor(16, 8)])
def test_a_modules_microbatch_is_the_first_dim_of_its_first_input(inputs: Any) -> None:
    model = user_model(Module(), inputs, {})
    assert (model.name, model.samples) == ("Module", 16)


def test_a_module_without_inputs_gets_the_call_that_works_as_remedy() -> None:
    with pytest.raises(OptionError, match="example_inputs"):
        user_model(Module(), None, {})


def test_an_object_that_is_no_model_is_refused_with_the_accepted_kinds() -> None:
    with pytest.raises(OptionError, match=r"nn\.Module"):
        user_model(3.14, None, {})


def test_your_model_stands_first_in_the_list_and_hides_its_namesake() -> None:
    sources = Sources(lambda *_: None, UserModel(name="gpt-tiny", samples=4, capture=lambda: None))  # type: ignore[arg-type, return-value]  # never called
    choices = sources.model_choices()
    assert choices[0] == ["gpt-tiny", "gpt-tiny", "Your model"]
    assert [value for value, _, _ in choices].count("gpt-tiny") == 1
    assert sources.microbatches("gpt-tiny") == [4]


def test_devices_are_listed_once_without_their_aliases() -> None:
    names = [value for value, _, _ in Sources(lambda *_: None).device_choices()]  # type: ignore[arg-type, return-value]  # never called
    assert "v100" in names
    assert "v100-16gb" not in names


def test_a_cluster_of_your_own_keeps_its_device_when_its_size_changes(with_settings: Callable[..., Settings]) -> None:
    given = Cluster.parse("1x4:v100")
    mine = given.with_changes(name="my-gpu", memory_bytes=1)
    sources = Sources(lambda *_: None, cluster=mine)  # type: ignore[arg-type, return-value]  # never called
    assert sources.device_choices()[0][0] == "my-gpu"
    larger = sources.cluster(with_settings(device="my-gpu", nodes=2, devices_per_node=8))
    assert (larger.nodes, larger.devices_per_node, larger.device.memory_bytes) == (2, 8, 1)
    assert sources.cluster(with_settings(device="v100")).device == given.device


def test_a_cluster_of_unlike_nodes_is_kept_whole_and_cannot_be_resized(with_settings: Callable[..., Settings]) -> None:
    given = Cluster.parse("1x8:h100+2x8:a100", memory_bytes=2**35)
    text = device_setting(given)
    settings = with_settings(device=text, nodes=3, devices_per_node=8)
    sources = Sources(lambda *_: None, cluster=given)  # type: ignore[arg-type, return-value]  # never called
    assert sources.device_choices()[0][0] == text
    assert sources.cluster(settings) == given
    elsewhere = Sources(lambda *_: None)  # type: ignore[arg-type, return-value]  # never called
    assert elsewhere.cluster(settings) == Cluster.parse("1x8:h100+2x8:a100")
    changed = sources.cluster(replace(settings, memory_bytes=2.0**34, inside_bandwidth=1e11))
    assert {kind.device.memory_bytes for kind in changed.kinds} == {2**34}
    assert {kind.inside_node.bandwidth for kind in changed.kinds} == {1e11}
    with pytest.raises(ClusterError, match=r"counted by kind.*Set 3 nodes of 8"):
        sources.cluster(replace(settings, nodes=4))


def test_a_microbatch_of_a_catalogue_model_divides_its_batch() -> None:
    sources = Sources(lambda *_: None)  # type: ignore[arg-type, return-value]  # never called
    assert sources.microbatches("gpt-tiny") == [1, 2, 4, 8, 16, 32, 64]
    assert sources.initial_batch("gpt-tiny", 16) == (4, 16)
    with pytest.raises(UnknownNameError):
        sources.initial_batch("gpt-tony", None)


def test_only_the_last_few_graphs_are_kept(with_settings: Callable[..., Settings]) -> None:
    captured: list[int] = []

    def capture(_name: str, microbatch: int) -> Any:
        captured.append(microbatch)
        return microbatch

    sources = Sources(capture)
    made = list(range(1, tuning.KEPT_GRAPHS + 2))
    for microbatch in (*made, made[-1], 1):
        sources.graph(with_settings(microbatch=microbatch))
    assert captured == [*made, 1]


def test_another_precision_is_another_capture_and_the_default_is_the_models_own(
    with_settings: Callable[..., Settings],
) -> None:
    captures: list[tuple[Any, ...]] = []
    sources = Sources(lambda *given, **more: captures.append((*given, more)) or len(captures))  # type: ignore[arg-type, func-returns-value]  # a fake graph
    first = sources.graph(with_settings())
    assert sources.graph(with_settings(precision="float32")) != first == sources.graph(with_settings())
    assert captures == [("gpt-tiny", 8, {}), ("gpt-tiny", 8, {"precision": "float32"})]
    names = [name for name, _, _ in sources.precisions("gpt-tiny")]
    assert names == ["", "float16", "bfloat16", "float32", "fp8", "fp8-current", "mxfp8", "nvfp4"]
    assert sources.precisions("wide-resnet-2b")[0][1] == "float32 (default)"


def test_a_lower_precision_of_products_is_one_of_the_software(with_settings: Callable[..., Settings]) -> None:
    captures: list[Any] = []
    sources = Sources(lambda name, _, precision: captures.append(precision) or len(captures))  # type: ignore[arg-type, func-returns-value]  # a fake graph
    low = with_settings(precision="fp8", device="h100")
    sources.graph(low)
    assert captures == ["bfloat16"]
    assert sources.cluster(low).software.low_precision == "fp8-delayed"
    with pytest.raises(ClusterError, match="fp8"):
        sources.cluster(with_settings(precision="mxfp8", device="h100"))


def test_another_sequence_is_another_capture_of_the_same_model(with_settings: Callable[..., Settings]) -> None:
    captures: list[Any] = []
    sources = Sources(lambda name, _: captures.append(name) or len(captures))  # type: ignore[arg-type, func-returns-value]  # a fake graph
    first = sources.graph(with_settings())
    assert sources.graph(with_settings(sequence=16)) != first == sources.graph(with_settings(sequence=None))
    assert captures == ["gpt-tiny", "gpt-tiny@16"]
    assert sources.default_sequence("gpt-tiny") == 32
    assert sources.default_sequence("wide-resnet-2b") is None
    with pytest.raises(OptionError, match="no sequence"):
        sources.graph(with_settings(model="mlp-tiny", sequence=16))


def test_a_model_from_a_config_is_in_the_list_and_captured_from_its_text(
    tmp_path: Path, with_settings: Callable[..., Settings]
) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "llama", "vocab_size": 64}')
    captures: list[Any] = []
    config = entry(str(tmp_path / "config.json"))
    sources = Sources(lambda name, _: captures.append(name) or "graph", config=config)  # type: ignore[arg-type, func-returns-value, return-value]  # a fake graph
    assert sources.model_choices()[0] == ["llama", "llama", "Your model"]
    assert sources.initial_batch("llama", None) == (8, 16)
    sources.graph(with_settings(model="llama", sequence=256))
    assert captures == ['hf@256:{"model_type":"llama","vocab_size":64}']


def test_the_precision_of_a_graph_is_fixed_and_a_module_is_captured_in_any(
    with_settings: Callable[..., Settings],
) -> None:
    graph = ax.capture(*build("mlp-tiny", 8, device="meta", seed=0), precision="float32", name="mine")
    sources = Sources(lambda *_: None, user_model(graph, None, {}))  # type: ignore[arg-type, return-value]  # never called
    assert [name for name, _, _ in sources.precisions("mine")] == ["", "float32"]
    for precision in (None, "float32"):
        assert sources.graph(with_settings(model="mine", precision=precision)) is graph
    with pytest.raises(OptionError, match="fixed"):
        sources.graph(with_settings(model="mine", precision="float16"))
    module, inputs = build("mlp-tiny", 8, device="meta", seed=0)
    sources = Sources(lambda *_: None, user_model(module, inputs, {"name": "mine"}))  # type: ignore[arg-type, return-value]  # never called
    assert len(sources.precisions("mine")) == 8
    for precision in ("bfloat16", "float32"):
        assert sources.graph(with_settings(model="mine", precision=precision)).precision == precision
