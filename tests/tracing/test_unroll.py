"""Graphs of many equal blocks, unrolled from captures with few, equal a capture of the whole."""

from dataclasses import fields, replace

import pytest
import torch
from torch import nn

from alpa_explore.graph import TrainingGraph
from alpa_explore.models.catalog import entry
from alpa_explore.models.configs import DecoderConfig, GPTConfig, ModelConfig, MoEConfig
from alpa_explore.models.factory import make_inputs, make_module
from alpa_explore.models.gpt import GPT
from alpa_explore.models.transformer import FeedForward
from alpa_explore.tracing.capture import capture
from alpa_explore.tracing.catalogue import catalogue_graph, unrolled
from alpa_explore.tracing.resizing.unroll import FEW, MORE, unroll

TINY_GPT = GPTConfig(hidden=16, layers=8, heads=2, vocabulary=32, sequence=8)
TINY_MOE = MoEConfig(
    hidden=16, layers=11, heads=2, experts=4, vocabulary=32, sequence=8, expert_group=16, auxiliary_weight=0
)


def captured(config: ModelConfig) -> TrainingGraph:
    module, inputs = make_module(config, "meta", 0), make_inputs(config, 4, "meta", 0)
    return capture(module, inputs, precision="float16", rematerialization=True)


def check_equal(unrolled_graph: TrainingGraph | None, whole: TrainingGraph) -> None:
    assert unrolled_graph is not None
    for part in fields(TrainingGraph):
        assert getattr(unrolled_graph, part.name) == getattr(whole, part.name), part.name
    assert unrolled_graph == whole, "1, 1.0 and True are equal in Python, but not in the content key"
    assert unrolled_graph.model_flops == whole.model_flops


TINY_FUSED = replace(TINY_GPT, attention="fused", tied=False, positions="rotary")
TINY_LLAMA = DecoderConfig(hidden=16, layers=7, heads=4, kv_heads=2, vocabulary=32, sequence=8, ffn=32)


TINY_OF_TODAY = [
    replace(entry(name).config, layers=layers) for name, layers in (("deepseek-tiny", 8), ("qwen3-tiny", 7))
]


@pytest.mark.sweep(kept=1, in_turn=True)
@pytest.mark.parametrize(
    "config",
    [
        TINY_GPT,
        pytest.param(TINY_MOE, marks=pytest.mark.slow),
        TINY_FUSED,
        TINY_LLAMA,
        replace(TINY_LLAMA, fused_projections=True),
        *(pytest.param(config, marks=pytest.mark.slow) for config in (*TINY_OF_TODAY, entry("gpt-1.3b").config)),
    ],
    ids=["gpt", "moe", "fused gpt", "llama", "fused llama", "deepseek", "qwen3", "of the paper"],
)
def test_an_unrolled_graph_equals_a_capture(config):
    few, more = (captured(config.with_periods(periods)) for periods in (FEW, MORE))
    check_equal(unroll(few, more, config.periods), captured(config))
    check_equal(unroll(few, more, FEW), few)
    check_equal(unroll(few, more, MORE), more)


class Odd(GPT):
    """The third block is wider inside."""

    def __init__(self, config: GPTConfig) -> None:
        super().__init__(config)
        if config.layers > FEW:
            self.h[2].mlp = FeedForward(config.hidden, 8)


@pytest.mark.slow
def test_a_model_with_one_different_block_is_captured_whole(monkeypatch):
    monkeypatch.setattr("alpa_explore.models.factory.GPT", Odd)
    model = replace(entry("gpt-tiny"), config=TINY_GPT, precision="float16")
    whole = capture(
        Odd(TINY_GPT),
        make_inputs(TINY_GPT, 4, "meta", 0),
        name=model.name,
        recipe=model.name,
        precision="float16",
        rematerialization=True,
    )
    check_equal(catalogue_graph(model, 4), whole)


@pytest.mark.slow
def test_a_model_whose_blocks_do_not_all_read_the_one_before_is_not_unrolled():
    class Skips(nn.Module):
        """Every block reads the previous one, except the third, which reads the first."""

        def __init__(self, blocks: int) -> None:
            super().__init__()
            self.h = nn.ModuleList(nn.Linear(6, 6) for _ in range(blocks))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            made = [x]
            for place, block in enumerate(self.h):
                made.append(block(made[1 if place == self.skips else -1]) + made[-1])
            return made[-1].mean()

        skips = 2

    class Chain(Skips):
        skips = -1

    def of(kind: type[Skips], blocks: int) -> TrainingGraph:
        return capture(kind(blocks), (torch.empty(4, 6),), name="chain")

    check_equal(unroll(of(Chain, FEW), of(Chain, MORE), 8), of(Chain, 8))
    few, more = of(Skips, FEW), of(Skips, MORE)
    assert [o.kind for o in more.operators] == [o.kind for o in of(Chain, MORE).operators]
    assert unroll(few, more, 8) is None


@pytest.mark.parametrize("name", ["wide-resnet-13b", "mlp-tiny", "gpt-tiny", "moe-380m"])
def test_a_model_with_few_equal_blocks_is_not_unrolled(name):
    def refuse(config: ModelConfig) -> TrainingGraph:
        raise AssertionError("nothing to capture in part")

    assert unrolled(entry(name).config, refuse) is None
