"""The blocks of every part of a pipeline, as each framework divides them."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest

from alpa_explore.uniform_layouts.stages import blocks_of_parts, idle_ranks
from alpa_explore.validation.runs.architecture import Architecture

LLAMA_8B = Architecture(
    kind="llama", layers=32, hidden=4096, heads=32, kv_heads=8, ffn=14336, vocabulary=128256, tied=False
)
SMALL = replace(LLAMA_8B, layers=16, hidden=2048, ffn=8192, vocabulary=131072, tied=True)


@pytest.mark.parametrize("software", ["megatron", "megatron-deepspeed", "torchtitan", "fsdp"])
def test_stages_are_equal_where_the_layers_allow_it(software: str) -> None:
    assert blocks_of_parts(LLAMA_8B, 4, 1, software) == (8, 8, 8, 8)
    assert blocks_of_parts(LLAMA_8B, 4, 2, software) == (4,) * 8


def test_nanotron_divides_the_cost_with_the_head_in_it() -> None:
    # The example of the Ultra-Scale Playbook: Llama-3-8B in 8 stages, of which the last has few blocks.
    assert blocks_of_parts(LLAMA_8B, 8, 1, "nanotron") == (5, 4, 4, 5, 4, 4, 4, 2)
    assert blocks_of_parts(SMALL, 2, 1, "nanotron") == (11, 5)
    assert blocks_of_parts(SMALL, 4, 1, "nanotron") == (6, 5, 5, 0)


def test_a_rank_of_nanotron_may_get_nothing() -> None:
    assert [idle_ranks(SMALL, stages, "nanotron") for stages in (1, 2, 4, 8, 16, 32)] == [0, 0, 0, 0, 1, 12]
    assert idle_ranks(SMALL, 16, "megatron") == 0


def test_embedding_and_head_count_as_blocks_where_they_make_stages_even() -> None:
    llama_405b = replace(LLAMA_8B, layers=126)
    assert blocks_of_parts(llama_405b, 8, 4, "megatron") == (3, *(4,) * 30, 3)
    bloom = replace(LLAMA_8B, kind="gpt", layers=70)
    assert blocks_of_parts(bloom, 12, 1, "megatron-deepspeed") == (5, *(6,) * 10, 5)
    assert blocks_of_parts(replace(bloom, layers=78), 12, 1, "megatron-deepspeed") == (6, *(7,) * 10, 2)
    assert blocks_of_parts(replace(bloom, layers=33), 4, 1, "torchtitan") == (9, 8, 8, 8)


def test_a_model_that_predicts_ahead_has_a_short_last_part() -> None:
    """Megatron-Bridge's pp_layout of DeepSeek-V3: "Et*4|(t*4|)*14tmL" and "Et|(tt|)*30mL"."""
    deepseek = replace(LLAMA_8B, layers=61, predicted_ahead=1)
    assert blocks_of_parts(deepseek, 2, 8, "megatron") == (4, *(4,) * 14, 1)
    assert blocks_of_parts(deepseek, 8, 4, "megatron") == (1, *(2,) * 30, 0)
    assert blocks_of_parts(deepseek, 1, 1, "megatron") == (61,)


@pytest.mark.parametrize("software", ["megatron", "megatron-deepspeed", "nanotron", "torchtitan"])
def test_no_block_is_lost(software: str) -> None:
    for layers, stages in product((7, 16, 30, 31, 32, 33), (1, 2, 3, 4, 8)):
        counts = blocks_of_parts(replace(LLAMA_8B, layers=layers), stages, 1, software)
        assert (len(counts), sum(counts)) == (stages, layers)
        assert min(counts) >= 0
