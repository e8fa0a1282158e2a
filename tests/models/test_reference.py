"""A model by name, with another sequence, and from a Hugging Face config."""

import itertools
import json
import math

import pytest
from torch import nn

from alpa_explore.errors import OptionError, RecipeError, UnknownNameError
from alpa_explore.models import build, entry, huggingface
from alpa_explore.models.catalog import is_reference
from alpa_explore.models.configs.huggingface import MOST_BYTES
from alpa_explore.models.recipe import check_recipe
from alpa_explore.tracing.catalogue import catalogue_graph

LLAMA = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    **{"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 64},
    **{"num_key_value_heads": 2, "max_position_embeddings": 128, "torch_dtype": "bfloat16"},
}


def config(tmp_path, **changes):
    path = tmp_path / "config.json"
    path.write_text(json.dumps({**LLAMA, **changes}))
    return str(path)


def test_a_sequence_behind_the_name_or_beside_it_changes_the_model():
    long = entry("llama-3-8b@131072")
    assert long == entry("llama-3-8b", 131072) == entry(long.reference)
    assert (long.sequence, long.name) == (131072, "llama-3-8b@131072")
    assert long.parameter_count == entry("llama-3-8b").parameter_count, "positions are rotary"
    assert entry("llama-3-8b", 8192) is entry("llama-3-8b"), "its own sequence"
    _, (tokens, _) = build("qwen3-tiny@48", 2)
    assert tokens.shape == (2, 48)


@pytest.mark.parametrize("name", ["llama-3-8b@", "llama-3-8b@0", "llama-3-8b@long", "llama-3-8b@9999999999"])
def test_a_sequence_that_is_none_is_an_error(name):
    with pytest.raises(OptionError, match="number of tokens"):
        entry(name)


def test_images_have_no_sequence():
    with pytest.raises(OptionError, match="no sequence of tokens"):
        entry("vit-tiny", 16)


def test_a_config_file_is_a_model_whose_reference_holds_the_file(tmp_path):
    found = entry(config(tmp_path, _name_or_path="meta/llama"))
    assert (found.name, found.precision, found.sequence) == ("LlamaForCausalLM", "bfloat16", 128)
    assert "meta" not in found.reference
    assert is_reference(found.reference)
    assert check_recipe(found.reference, allow_import=False) == found.reference
    again = entry(found.reference)
    assert again == found
    assert entry(config(tmp_path), 16).sequence == entry(config(tmp_path) + "@16").sequence == 16


def test_a_plan_file_may_not_name_a_path(tmp_path):
    path = config(tmp_path)
    assert not is_reference(path)
    with pytest.raises(RecipeError, match="not a model of the catalogue"):
        check_recipe(path, allow_import=False)


def test_code_and_weights_from_the_internet_are_refused(tmp_path):
    code = {"AutoModel": "someone/model--modeling.Model"}
    with pytest.raises(RecipeError, match=r"never run: auto_map, for model_type 'own'"):
        build(config(tmp_path, model_type="own", auto_map=code), 1, device="meta")
    with pytest.raises(RecipeError, match="use_pretrained_backbone"):
        entry(config(tmp_path, use_pretrained_backbone=True))


@pytest.mark.parametrize("places", [{"auto_map": {"AutoModel": "a/b--c.D"}}, {"text": {"auto_map": {}}}])
def test_a_config_that_names_code_of_the_hub_is_the_model_of_transformers_and_says_so(tmp_path, places):
    plain, named = entry(config(tmp_path)), entry(config(tmp_path, **places))
    assert named.parameter_count == plain.parameter_count
    assert "a/b--c.D" not in named.reference
    (remark,) = named.config.remarks
    assert "never run: the model is transformers' own llama" in remark
    assert entry(named.reference).config.remarks == (remark,)
    assert remark in catalogue_graph(named, 1).warnings
    assert plain.config.remarks == ()


def test_two_names_of_one_size_must_agree(tmp_path):
    sizes = {"n_embd": 32, "n_layer": 2, "n_head": 2, "vocab_size": 64, "n_positions": 64}
    path = tmp_path / "gpt.json"
    path.write_text(json.dumps({"model_type": "gpt2", **sizes, "num_hidden_layers": 2}))
    build(str(path), 1, device="meta")
    path.write_text(json.dumps({"model_type": "gpt2", **sizes, "num_hidden_layers": 3}))
    with pytest.raises(RecipeError, match="num_hidden_layers = 3, n_layer = 2"):
        build(str(path), 1, device="meta")


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"num_hidden_layers": 10**9}, "num_hidden_layers 1,000,000,000. Give 2,000 or fewer"),
        ({"num_hidden_layers": 2001}, "num_hidden_layers 2,001. Give 2,000 or fewer"),
        ({"num_hidden_layers": 1e12}, "num_hidden_layers 1,000,000,000,000.0. Give 2,000"),
        ({"text_config": {"n_layer": 10**6}}, "n_layer 1,000,000"),
        ({"vision_config": {"depths": [2, 10**9, 2]}}, "depths 1,000,000,000"),
        ({"num_local_experts": 10**8}, "num_local_experts 100,000,000. Give 100,000"),
        ({"num_labels": 10**9}, "num_labels 1,000,000,000. Give 10,000,000"),
        ({"decoder_layers": 10**20}, "decoder_layers"),
    ],
)
def test_more_parts_than_are_built_are_refused_and_the_limit_is_told(change, told, tmp_path):
    for named in (config(tmp_path, **change), "hf@16:" + json.dumps({**LLAMA, **change})):
        with pytest.raises(RecipeError, match="asks for more parts than are built") as raised:
            entry(named)
        assert told in str(raised.value)


@pytest.mark.parametrize("change", [{"vocab_size_per_layer_input": 262144}, {"time_step_limit": [0.0, math.inf]}])
def test_sizes_per_layer_and_infinite_limits_are_no_counts(change, tmp_path):
    assert entry(config(tmp_path, **change)).config.values[next(iter(change))] == next(iter(change.values()))


def test_a_model_that_grows_under_another_name_is_stopped_too(monkeypatch):
    monkeypatch.setattr(huggingface, "MOST_PARTS", 1000)
    with pytest.raises(RecipeError, match="more than 1,000 modules and parameters"), huggingface.limited_parts():
        nn.ModuleList(nn.Linear(2, 2, device="meta") for _ in itertools.count())
    with huggingface.limited_parts():
        nn.Sequential(*(nn.Linear(2, 2, device="meta") for _ in range(100)))
    nn.Sequential(*(nn.Linear(2, 2, device="meta") for _ in range(1001)))  # it holds only inside


def test_files_that_are_no_configs_are_errors(tmp_path):
    for text in ("{", "[]", '{"model_type": 3}', "{}", "[" * 100_000, '{"a": "' + "x" * MOST_BYTES + '"}'):
        (tmp_path / "a.json").write_text(text)
        with pytest.raises(RecipeError, match="not the config of a Hugging Face model"):
            entry(str(tmp_path / "a.json"))
    with pytest.raises(RecipeError, match="cannot be read"):
        entry(str(tmp_path / "missing.json"))


def test_an_unknown_architecture_is_named_with_the_nearest(tmp_path):
    pytest.importorskip("transformers", reason="pip install alpa-explore[hf]")
    with pytest.raises(UnknownNameError, match=r"model_type 'lama'.*'llama'"):
        build(config(tmp_path, model_type="lama"), 1)
    with pytest.raises(RecipeError, match=r"refuses the config.*hidden_size"):
        build(config(tmp_path, hidden_size="wide"), 1)
    with pytest.raises(RecipeError, match="returns a loss"):
        build(config(tmp_path, model_type="sam", architectures=["SamModel"]), 1)


SMALL = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1, "num_attention_heads": 4}


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"model_type": "bert", "architectures": ["BertForMaskedLM"], **SMALL},
        {"model_type": "vit", "architectures": None, "image_size": 32, "patch_size": 8, **SMALL},
        {"model_type": "bert", "architectures": ["BertForSequenceClassification"], "id2label": {"0": "a", "1": "b"}},
    ],
    ids=["llama", "masked", "images", "classified"],
)
def test_a_model_from_a_config_returns_its_loss_and_has_its_parameters(tmp_path, changes):
    pytest.importorskip("transformers", reason="pip install alpa-explore[hf]")
    path = config(tmp_path, **changes)
    module, inputs = build(path, 2, device="cpu")
    loss = module(**inputs).loss
    assert loss.isfinite()
    assert sum(p.numel() for p in module.parameters()) == entry(path).parameter_count
    again, same = build(path, 2, device="cpu")
    assert all((a == b).all() for a, b in zip(module.parameters(), again.parameters(), strict=True))
    assert all((inputs[name] == same[name]).all() for name in inputs)
