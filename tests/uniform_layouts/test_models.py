"""The architecture of a name: as measured runs have it, and the same from a Hugging Face config."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from alpa_explore.errors import OptionError
from alpa_explore.models.catalog import entry, names
from alpa_explore.uniform_layouts.models import FAMILIES, layout_model
from alpa_explore.uniform_layouts.pricing.architecture import Architecture
from alpa_explore.validation.runs.rows import read_rows

DATA = Path(__file__).parents[1] / "validation" / "data"


def counted(of: Architecture) -> tuple[object, ...]:
    """What FLOPs and layouts depend on."""
    return of.sizes, of.kind, of.experts, of.period, of.ffn, of.flops(10**9, 1024), of.flops(10**9, 4096)


def parameters(of: Architecture) -> float:
    """Of the matrices: those that a token meets, and those of the experts that it does not choose."""
    blocks = of.block_products
    if of.decoder is not None:
        blocks, routed = of.decoder.active_products, of.decoder.experts
        if routed is not None:
            blocks += 3 * of.hidden * routed.ffn * (routed.count - routed.chosen)
    return of.layers * blocks + of.hidden * of.vocabulary * (1 if of.tied else 2)


def of_row(file: str, model: str) -> Architecture:
    return next(row.architecture for row in read_rows([DATA / f"{file}.csv"]).measured if row.model == model)


@pytest.mark.parametrize(
    ("name", "file", "model"),
    [
        ("llama-3-70b", "dgxc_nemo_h100_gb200", "LLAMA3-70B"),
        ("llama-2-70b", "dgxc_nemo_h100_gb200", "LLAMA2-70B"),
        ("llama-3-8b", "megatron_bridge_nemo", "LLAMA3-8B"),
    ],
)
def test_a_catalogue_model_has_the_architecture_of_measured_runs(name: str, file: str, model: str) -> None:
    assert layout_model(name).architecture == of_row(file, model)


def test_deepseek_is_that_of_measured_runs_without_the_block_that_predicts_ahead() -> None:
    measured, own = of_row("megatron_bridge_nemo", "DeepSeekV3"), layout_model("deepseek-v3").architecture
    assert measured.predicted_ahead == 1
    assert counted(replace(measured, predicted_ahead=0)) == counted(own)


def test_the_parameters_of_an_architecture_are_about_those_of_the_catalogue() -> None:
    """Norms and biases apart; the first dense blocks of DeepSeek count as the others, 5 % more."""
    for name in names():
        model = entry(name)
        if model.family not in ("gpt", "llama", "qwen3", "mixtral", "deepseek", "gpt-oss") or "tiny" in name:
            continue
        assert parameters(layout_model(name).architecture) == pytest.approx(
            model.parameter_count, rel=0.06 if model.family == "deepseek" else 0.03
        ), name


LLAMA = {
    "model_type": "llama",
    "hidden_size": 4096,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "intermediate_size": 14336,
    "vocab_size": 128256,
    "max_position_embeddings": 8192,
}
QWEN3_MOE = {
    "model_type": "qwen3_moe",
    "hidden_size": 2048,
    "num_hidden_layers": 48,
    "num_attention_heads": 32,
    "num_key_value_heads": 4,
    "head_dim": 128,
    "num_experts": 128,
    "num_experts_per_tok": 8,
    "moe_intermediate_size": 768,
    "intermediate_size": 6144,
    "vocab_size": 151936,
}
MIXTRAL = LLAMA | {
    "model_type": "mixtral",
    "vocab_size": 32000,
    "num_local_experts": 8,
    "num_experts_per_tok": 2,
}
DEEPSEEK = {
    "model_type": "deepseek_v3",
    "hidden_size": 7168,
    "num_hidden_layers": 61,
    "num_attention_heads": 128,
    "num_key_value_heads": 128,
    "q_lora_rank": 1536,
    "kv_lora_rank": 512,
    "qk_rope_head_dim": 64,
    "qk_nope_head_dim": 128,
    "v_head_dim": 128,
    "n_routed_experts": 256,
    "n_shared_experts": 1,
    "num_experts_per_tok": 8,
    "moe_intermediate_size": 2048,
    "intermediate_size": 18432,
    "vocab_size": 129280,
}
GPT_OSS = {
    "model_type": "gpt_oss",
    "hidden_size": 2880,
    "num_hidden_layers": 36,
    "num_attention_heads": 64,
    "num_key_value_heads": 8,
    "head_dim": 64,
    "sliding_window": 128,
    "num_local_experts": 128,
    "num_experts_per_tok": 4,
    "intermediate_size": 2880,
    "vocab_size": 201088,
}


@pytest.mark.parametrize(
    ("config", "name"),
    [
        (LLAMA, "llama-3-8b"),
        (QWEN3_MOE, "qwen3-30b-a3b"),
        (MIXTRAL, "mixtral-8x7b"),
        (DEEPSEEK, "deepseek-v3"),
        (GPT_OSS, "gpt-oss-120b"),
    ],
)
def test_a_config_has_the_architecture_of_the_catalogue(config: dict[str, Any], name: str, tmp_path: Path) -> None:
    file = tmp_path / "config.json"
    file.write_text(json.dumps(config))
    assert counted(layout_model(str(file)).architecture) == counted(layout_model(name).architecture)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"model_type": "mamba"}, "this family"),
        ({"hidden_size": None}, "hidden_size"),
        ({"vocab_size": 0}, "vocab_size"),
    ],
)
def test_a_config_that_cannot_be_priced_says_why(change: dict[str, Any], words: str, tmp_path: Path) -> None:
    file = tmp_path / "config.json"
    file.write_text(json.dumps(LLAMA | change))
    with pytest.raises(OptionError, match=words):
        layout_model(str(file))


def test_heads_of_another_size_are_counted_as_they_are() -> None:
    assert layout_model("qwen3-8b").architecture.decoder is None
    wide = layout_model("qwen3-32b").architecture
    assert wide.decoder is not None
    assert wide.decoder.head * wide.heads == 8192 != wide.hidden
    assert wide.experts == 1


def test_a_size_is_known_by_every_name_that_transformers_takes(tmp_path: Path) -> None:
    """`attribute_map` of the configs of all families: each alias gives the architecture of the name that it is for."""
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    tried = 0
    for kind in FAMILIES:
        values = {**CONFIG_MAPPING[kind]().to_dict(), "model_type": kind}
        for alias, name in CONFIG_MAPPING[kind].attribute_map.items():
            if not isinstance(values.get(name), int):
                continue
            renamed = {**values, alias: values[name]}
            del renamed[name]
            paths = tmp_path / "given.json", tmp_path / "renamed.json"
            for path, config in zip(paths, (values, renamed), strict=True):
                path.write_text(json.dumps(config))
            given, by_alias = (layout_model(str(path)).architecture for path in paths)
            assert given == by_alias, (kind, alias)
            tried += 1
    assert tried >= 6


def test_deepseek_without_a_rank_of_queries_projects_them_directly(tmp_path: Path) -> None:
    from transformers import DeepseekV3Config

    path, made = tmp_path / "config.json", []
    for rank in (1536, None):
        path.write_text(json.dumps({**DeepseekV3Config().to_dict(), "model_type": "deepseek_v3", "q_lora_rank": rank}))
        made.append(layout_model(str(path)).architecture)
    heads, hidden, head = 128, 7168, 192
    of = [architecture.decoder.active_products for architecture in made]
    assert of[1] - of[0] == heads * head * hidden - 1536 * (hidden + heads * head)


GLM4_MOE = {
    **{"model_type": "glm4_moe", "hidden_size": 512, "num_hidden_layers": 20, "num_attention_heads": 8},
    **{"num_key_value_heads": 2, "head_dim": 128, "n_routed_experts": 16, "n_shared_experts": 1, "vocab_size": 1024},
    **{"num_experts_per_tok": 4, "moe_intermediate_size": 256, "intermediate_size": 1024, "first_k_dense_replace": 1},
}
OTHERS = {
    "minimax_m2": {
        **{"model_type": "minimax_m2", "hidden_size": 512, "num_hidden_layers": 4, "num_attention_heads": 8},
        **{"num_key_value_heads": 2, "head_dim": 128, "num_local_experts": 16, "num_experts_per_tok": 4},
        **{"intermediate_size": 256, "vocab_size": 1024},
    },
    "glm4_moe": GLM4_MOE,
    "hy_v3": GLM4_MOE
    | {
        "model_type": "hy_v3",
        "num_experts": 16,
        "num_shared_experts": 1,
        "mlp_layer_types": ["dense"] + ["sparse"] * 19,
    },
    "qwen2_moe": {
        **{"model_type": "qwen2_moe", "hidden_size": 512, "num_hidden_layers": 4, "num_attention_heads": 4},
        **{"num_key_value_heads": 4, "num_experts": 16, "num_experts_per_tok": 4, "moe_intermediate_size": 256},
        **{"shared_expert_intermediate_size": 768, "intermediate_size": 1024, "vocab_size": 1024},
    },
    "olmoe": {
        **{"model_type": "olmoe", "hidden_size": 512, "num_hidden_layers": 4, "num_attention_heads": 4},
        **{"num_key_value_heads": 4, "num_experts": 16, "num_experts_per_tok": 4, "intermediate_size": 256},
        **{"vocab_size": 1024},
    },
    **{
        kind: {
            **{"model_type": kind, "hidden_size": 512, "num_hidden_layers": 4, "num_attention_heads": 4},
            **{"num_key_value_heads": 2, "intermediate_size": 1024, "vocab_size": 1024, "pad_token_id": 0},
            **{"tie_word_embeddings": False, "head_dim": 128},
        }
        for kind in ("phi3", "olmo2", "granite", "smollm3", "seed_oss")
    },
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", OTHERS)
def test_a_config_of_another_family_has_the_parameters_of_its_model(kind: str, tmp_path: Path) -> None:
    """As transformers builds it, norms and biases apart; a dense first block counts as the others."""
    transformers = pytest.importorskip("transformers")
    path = tmp_path / "config.json"
    path.write_text(json.dumps(OTHERS[kind]))
    count = parameters(layout_model(str(path)).architecture)
    with torch.device("meta"):
        model = transformers.AutoModelForCausalLM.from_config(transformers.AutoConfig.for_model(**OTHERS[kind]))
    assert count == pytest.approx(sum(p.numel() for p in model.parameters()), rel=0.06 if kind in DENSE_FIRST else 0.01)


DENSE_FIRST = ("glm4_moe", "hy_v3")


def test_many_blocks_without_experts_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(OTHERS["hy_v3"] | {"mlp_layer_types": ["dense", "sparse"] * 10}))
    with pytest.raises(OptionError, match="10 blocks of 20 without experts"):
        layout_model(str(path))
