"""Graphs of decoders at other samples, positions and words: equal to a capture at these sizes."""

from dataclasses import replace

import pytest

from alpa_explore.errors import BatchError
from alpa_explore.graph import TrainingGraph
from alpa_explore.models.configs import GPTConfig, LlamaConfig
from alpa_explore.models.factory import make_inputs, make_module
from alpa_explore.tracing.capture import capture
from alpa_explore.tracing.resizing.rescale import DecoderSize, resize_decoder

LLAMA = LlamaConfig(
    hidden=64, layers=2, heads=8, kv_heads=4, ffn=128, vocabulary=256, sequence=32, fused_projections=True
)
GPT = GPTConfig(hidden=64, layers=2, heads=8, vocabulary=256, sequence=32)
FUSED = replace(GPT, attention="fused", kv_heads=4, tied=False)


def at(config: GPTConfig | LlamaConfig, size: DecoderSize) -> TrainingGraph:
    sized = replace(config, sequence=size.positions, vocabulary=size.words)
    module, inputs = make_module(sized, "meta", 0), make_inputs(sized, size.samples, "meta", 0)
    return capture(module, inputs, name="decoder", precision="bfloat16")


def of(samples: int, positions: int, words: int) -> DecoderSize:
    return DecoderSize(samples=samples, positions=positions, words=words)


@pytest.mark.sweep(kept=1, in_turn=True)
@pytest.mark.slow
@pytest.mark.parametrize(("config", "first"), [(LLAMA, 1), (replace(LLAMA, tied=True), 1), (FUSED, 1), (GPT, 2)])
def test_a_resized_graph_equals_a_capture_at_these_sizes(config: GPTConfig | LlamaConfig, first: int) -> None:
    sizes = [of(first, 32, 256), of(2 * first, 32, 256), of(first, 16, 256), of(first, 32, 384)]
    captures = {size: at(config, size) for size in sizes}
    for size in (of(first, 8, 384), of(8, 16, 512)):
        resized, fresh = resize_decoder(captures, size), at(config, size)
        assert resized == fresh
        assert resized.operators == fresh.operators, "FLOPs and bytes included"


@pytest.mark.slow
def test_captures_of_another_structure_are_refused() -> None:
    # Spelled-out attention of one sample is captured in another order.
    captures = {size: at(GPT, size) for size in (of(1, 32, 256), of(2, 32, 256))}
    with pytest.raises(BatchError, match="different graphs"):
        resize_decoder(captures, of(4, 32, 256))


@pytest.mark.slow
def test_a_size_that_no_capture_shows_is_refused() -> None:
    captures = {size: at(LLAMA, size) for size in (of(1, 32, 256), of(2, 32, 256))}
    with pytest.raises(BatchError, match="no capture has other words"):
        resize_decoder(captures, of(2, 32, 384))
