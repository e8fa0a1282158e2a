"""The model of a run: its config, its FLOPs by Megatron's formula, its dtypes."""

from dataclasses import replace

import pytest

from alpa_explore.models.catalog import entry
from alpa_explore.models.configs import DecoderConfig, GPTConfig
from alpa_explore.validation.runs.architecture import Architecture
from alpa_explore.validation.runs.machines import precision_of

GPT_175B = Architecture(
    kind="gpt", layers=96, hidden=12288, heads=96, kv_heads=96, ffn=49152, vocabulary=51200, tied=True
)
LLAMA_8B = Architecture(
    kind="llama", layers=32, hidden=4096, heads=32, kv_heads=8, ffn=14336, vocabulary=128256, tied=False
)


def test_flops_are_those_of_megatrons_formula() -> None:
    # 72·B·s·l·h² · (1 + s/6h + V/12lh), without recomputation (arXiv 2104.04473, with 96 for full recomputation).
    tokens, s, layers, h, words = 1024 * 2048, 2048, 96, 12288, 51200
    expected = 72 * tokens * layers * h**2 * (1 + s / (6 * h) + words / (12 * layers * h))
    assert GPT_175B.flops(tokens, s) == pytest.approx(expected)


def test_products_of_a_block_are_its_matrices() -> None:
    config = LLAMA_8B.config(8192)
    norms = 2 * config.hidden
    one, two = (config.with_periods(n).parameter_count for n in (1, 2))
    assert LLAMA_8B.block_products == two - one - norms


def test_a_config_is_that_of_the_model_with_fewer_blocks_or_padded_words() -> None:
    assert replace(LLAMA_8B).config(8192) == LLAMA_8B.config(8192), "runs of one model share a graph"
    assert LLAMA_8B.config(8192).parameter_count == entry("llama-3-8b").parameter_count
    short = LLAMA_8B.config(4096, layers=2, vocabulary=128512)
    assert (short.layers, short.vocabulary, short.sequence) == (2, 128512, 4096)
    assert isinstance(short, DecoderConfig)
    gpt = GPT_175B.config(2048)
    assert isinstance(gpt, GPTConfig)
    assert (gpt.attention, gpt.positions, gpt.bias) == ("fused", "learned", True)
    for ffn in (2 * 12288, 49152):  # attention spelled out changes no matrix
        fused, spelled_out = (replace(GPT_175B, ffn=ffn).config(2048, software=name) for name in ("", "megatron-v2"))
        assert spelled_out.attention != fused.attention
        assert spelled_out.parameter_count == fused.parameter_count
    nemotron = replace(GPT_175B, kind="nemotron", kv_heads=8, tied=False).config(4096)
    assert isinstance(nemotron, GPTConfig)
    assert (nemotron.positions, nemotron.activation, nemotron.bias) == ("rotary", "squared-relu", False)


@pytest.mark.parametrize(
    ("name", "tensors", "recipe"),
    [
        ("bf16", "bfloat16", None),
        ("FP16", "float16", None),
        ("fp8", "bfloat16", "fp8-delayed"),
        ("fp8-mx", "bfloat16", "mxfp8"),
        ("nvfp4", "bfloat16", "nvfp4"),
    ],
)
def test_low_precisions_are_those_of_products_alone(name: str, tensors: str, recipe: str | None) -> None:
    found = precision_of(name)
    assert (found.tensors, found.recipe) == (tensors, recipe)
