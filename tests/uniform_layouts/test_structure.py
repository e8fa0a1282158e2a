"""The structure of a model: that of its graph, whoever wrote the model."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from alpa_explore.baselines.block_work import DecoderWork
from alpa_explore.cluster import Cluster
from alpa_explore.models.catalog import entry
from alpa_explore.store.records import plain, record
from alpa_explore.uniform_layouts import works
from alpa_explore.uniform_layouts.structure import Structure
from alpa_explore.uniform_layouts.works import ModelKey, own_work
from alpa_explore.validation.runs.architecture import Architecture
from alpa_explore.validation.runs.rows import read_rows

DATA = Path(__file__).parents[1] / "validation" / "data"


def structure(model: str, sequence: int | None = None) -> Structure:
    return works.captured_model(ModelKey(config=entry(model, sequence).config, micro_batch=1, dtype="bfloat16"))[1]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "file", "model"),
    [
        ("llama-3-70b", "dgxc_nemo_h100_gb200", "LLAMA3-70B"),
        ("llama-2-70b", "dgxc_nemo_h100_gb200", "LLAMA2-70B"),
        ("llama-3-8b", "megatron_bridge_nemo", "LLAMA3-8B"),
    ],
)
def test_a_graph_has_the_sizes_and_flops_of_measured_runs(name: str, file: str, model: str) -> None:
    """Their FLOPs are those of Megatron's formula, in closed form."""
    row = next(r.architecture for r in read_rows([DATA / f"{file}.csv"]).measured if r.model == model)
    of = structure(name)
    assert (of.sizes, of.experts) == (row.sizes, row.experts)
    assert of.flops == pytest.approx(row.flops(of.tokens, of.tokens), rel=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["mixtral-8x7b", "qwen3-30b-a3b", "gpt-oss-20b"])
def test_experts_and_windows_have_the_flops_of_the_closed_form(name: str) -> None:
    config: Any = entry(name).config
    sizes = {key: getattr(config, key) for key in ("layers", "hidden", "heads", "kv_heads", "vocabulary", "tied")}
    closed = Architecture(kind="llama", ffn=config.experts.ffn, decoder=config, **sizes)
    of = structure(name)
    assert (of.sizes, of.experts, of.ffn) == (closed.sizes, closed.experts, closed.ffn)
    assert of.flops == pytest.approx(closed.flops(of.tokens, of.tokens), rel=1e-9)


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
MIXTRAL = LLAMA | {"model_type": "mixtral", "vocab_size": 32000, "num_local_experts": 8, "num_experts_per_tok": 2}
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


@pytest.mark.slow
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
def test_a_config_has_the_structure_of_the_catalogue(config: dict[str, Any], name: str, tmp_path: Path) -> None:
    """transformers' model and that of the catalogue are other code."""
    file = tmp_path / "config.json"
    file.write_text(json.dumps(config))
    given, own = structure(str(file), entry(name).sequence), structure(name)
    assert (given.layers, given.hidden, given.heads, given.vocabulary) == (
        own.layers,
        own.hidden,
        own.heads,
        own.vocabulary,
    )
    assert (given.kinds, given.experts, given.ffn) == (own.kinds, own.experts, own.ffn)
    assert given.flops == pytest.approx(own.flops, rel=1e-3)


SMALL = {"hidden_size": 256, "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 512}
EXPERTS = {"num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 128}
FAMILIES: dict[str, dict[str, Any]] = {
    # Windows in all but every sixth block, whose number no period divides.
    "gemma3_text": {**SMALL, "num_hidden_layers": 8, "intermediate_size": 512, "head_dim": 64, "sliding_window": 32},
    # A table for every block, and heads of another size in some.
    "gemma4_text": {
        **{**SMALL, "num_hidden_layers": 6, "intermediate_size": 512, "head_dim": 64, "sliding_window": 32},
        **{"vocab_size_per_layer_input": 512, "hidden_size_per_layer_input": 16},
    },
    # Dense first blocks, shared experts.
    "hy_v3": {
        **{**SMALL, **EXPERTS, "num_hidden_layers": 6, "intermediate_size": 512, "head_dim": 64},
        "mlp_layer_types": ["dense"] + ["sparse"] * 5,
    },
    # A kind of its own for each block.
    "nemotron_h": {
        **{
            **SMALL,
            "intermediate_size": 512,
            "head_dim": 64,
            "mamba_num_heads": 8,
            "mamba_head_dim": 64,
            "n_groups": 2,
        },
        **{"n_routed_experts": 8, "moe_intermediate_size": 128, "moe_shared_expert_intermediate_size": 128},
        "layers_block_type": ["linear_attention", "moe", "full_attention", "mlp"],
    },
    # Attention in some blocks, experts in others.
    "jamba": {
        **{**SMALL, **EXPERTS, "num_hidden_layers": 8, "intermediate_size": 512, "mamba_dt_rank": 16},
        **{"attn_layer_offset": 2, "attn_layer_period": 4},
    },
    "lfm2": {
        **{**SMALL, "num_hidden_layers": 5, "intermediate_size": 512},
        "layer_types": ["conv", "full_attention", "conv", "conv", "full_attention"],
    },
    # No attention at all.
    "mamba": {"hidden_size": 256, "num_hidden_layers": 4, "vocab_size": 512},
    # Encoder and decoder: two lists of blocks.
    "t5": {
        **{"d_model": 256, "num_heads": 4, "d_kv": 64, "d_ff": 512, "num_layers": 4, "num_decoder_layers": 5},
        **{"vocab_size": 512, "decoder_start_token_id": 0},
    },
    "vit": {"hidden_size": 256, "num_attention_heads": 4, "intermediate_size": 512, "num_hidden_layers": 4},
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", FAMILIES)
def test_the_kinds_of_blocks_together_are_the_model(kind: str, tmp_path: Path) -> None:
    """Of any family of transformers: the parameters of the model that it builds, and a FLOP at least for each."""
    from alpa_explore.models.factory import make_module

    path = tmp_path / "config.json"
    path.write_text(json.dumps({"model_type": kind, **FAMILIES[kind]}))
    model = entry(str(path), 128)
    graph, of = works.captured_model(ModelKey(config=model.config, micro_batch=1, dtype="bfloat16"))
    work = own_work(graph, Cluster.parse("1x1:h100"), (1, 1, 1), of.captured)
    whole = sum(p.numel() for p in make_module(model.config, "meta", 0).parameters() if p.requires_grad)
    assert parameters(work, of) == whole
    assert record(Structure, json.loads(json.dumps(plain(of))), checked=False) == of


def parameters(work: DecoderWork, of: Structure) -> float:
    counts = Counter(of.kinds)
    parts = [(work.embedding, 1), (work.head, 1), *((part, counts[kind]) for kind, part in enumerate(work.blocks))]
    return sum((part.parameters + part.expert_parameters) * count for part, count in parts)


def test_only_attention_lets_devices_share_a_sequence(tmp_path: Path) -> None:
    assert structure("llama-tiny").divides_sequences
    path = tmp_path / "config.json"
    path.write_text(json.dumps({"model_type": "mamba", **FAMILIES["mamba"]}))
    assert not structure(str(path), 128).divides_sequences
