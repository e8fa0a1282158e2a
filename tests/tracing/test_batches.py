"""Graphs at other batch sizes: a graph rescaled from two captures equals a capture at that size."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from alpa_explore.errors import BatchError, OptionError
from alpa_explore.graph import TrainingGraph
from alpa_explore.models.catalog import build, entry
from alpa_explore.tracing.batches import capture_batches
from alpa_explore.tracing.capture import capture
from alpa_explore.tracing.resizing.rescale import rescale
from tests.one_layer import OneLayer


def captured(name: str, samples: int) -> TrainingGraph:
    model = entry(name)
    module, inputs = build(name, samples)
    return capture(
        module, inputs, name=name, recipe=name, precision=model.precision, rematerialization=model.rematerialization
    )


def line(module: nn.Module, samples: int) -> TrainingGraph:
    return capture(module, (torch.empty(samples, 6),))


SIZES = {
    **dict.fromkeys(("gpt-tiny", "wide-resnet-tiny", "moe-tiny", "mlp-tiny"), 32),
    "wide-resnet-1b": 64,
    "gpt-350m": 2,
    "moe-380m": 32,
}
"""Some models of the paper, and their tiny ones -> samples."""


@pytest.mark.sweep(kept=1, in_turn=True)
@pytest.mark.slow
@pytest.mark.parametrize("name", SIZES)
def test_a_rescaled_graph_equals_a_capture_at_that_batch(name):
    low, high = captured(name, 4), captured(name, 8)
    rescaled, fresh = rescale(low, high, SIZES[name]), captured(name, SIZES[name])
    assert rescaled == fresh
    # Equality compares content keys; these are the parts of a key, FLOPs and bytes included.
    assert rescaled.operators == fresh.operators
    assert rescaled.tensors == fresh.tensors
    assert (rescaled.samples, rescaled.tokens, rescaled.model_flops) == (fresh.samples, fresh.tokens, fresh.model_flops)


@pytest.mark.slow
def test_a_rescaled_hugging_face_gpt2_equals_a_capture_at_that_batch():
    t = pytest.importorskip("transformers", reason="pip install alpa-explore[hf]")
    config = t.GPT2Config(n_embd=32, n_layer=2, n_head=4, vocab_size=100, n_positions=64)
    model = t.AutoModelForCausalLM.from_config(config).train()

    def inputs(samples):
        ids = torch.randint(1, 100, (samples, 16))
        return {"input_ids": ids, "labels": ids}

    batches = capture_batches(model, inputs(2))
    for samples in (2, 6, 128):
        assert batches.at_batch(samples) == capture(model, inputs(samples))
    assert batches.captures == 3, "one at the first size, two for all others"
    assert batches.at_batch(1) == capture(model, inputs(1))
    assert batches.captures == 4, "a batch of 1 is captured: torch treats it apart"


@pytest.mark.slow
def test_a_size_of_one_does_not_follow_from_larger_ones():
    low, high = captured("gpt-tiny", 4), captured("gpt-tiny", 8)
    with pytest.raises(BatchError, match="would be 1, which torch treats specially"):
        rescale(low, high, 1)


@pytest.mark.slow
def test_a_size_that_would_not_be_an_integer_is_named():
    low, high = captured("moe-tiny", 4), captured("moe-tiny", 8)
    with pytest.raises(BatchError, match=r"2 and 4 there, and would be 2\.5.*Capture the model at 5 samples"):
        rescale(low, high, 5)


def test_flops_need_not_be_affine_in_the_batch():
    class Contrastive(OneLayer):
        def forward(self, x):
            y = self.layer(x)
            return (y @ y.T).square().mean()

    module = Contrastive(6, 6)
    low, high = line(module, 4), line(module, 8)
    rescaled, fresh = rescale(low, high, 20), line(module, 20)
    assert rescaled.model_flops == fresh.model_flops
    assert rescaled.model_flops != low.model_flops + (high.model_flops - low.model_flops) * 4


class Squares(OneLayer):
    """Arguments that are the square of the batch."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.layer(x)
        return (y @ y.T).flatten().softmax(0).square().sum()


class FewerThanTen(OneLayer):
    """Other operators for a batch of ten and more."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.layer(x)
        return (F.gelu(y) if x.shape[0] < 10 else F.relu(y)).sum()


def test_sizes_that_are_not_affine_are_an_error():
    module = Squares(6, 6)
    with pytest.raises(BatchError, match=r"aten\.(view|_unsafe_view|expand)\.default.*Capture the model at 6"):
        rescale(line(module, 4), line(module, 8), 6)


def test_captures_that_are_different_graphs_are_an_error():
    module = FewerThanTen(6, 6)
    with pytest.raises(BatchError, match="different graphs"):
        rescale(line(module, 4), line(module, 16), 8)


def test_a_constant_that_depends_on_the_batch_is_an_error():
    class Mean(OneLayer):
        def forward(self, x):
            return self.layer(x).sum() * (1.0 / x.shape[0])

    module = Mean(6, 6)
    with pytest.raises(BatchError, match=r"is 0\.25 and 0\.125 there, and is not a size"):
        rescale(line(module, 4), line(module, 8), 6)


@pytest.mark.slow
@pytest.mark.parametrize("module", [Squares(6, 6), FewerThanTen(6, 6)])
def test_where_sizes_are_not_affine_every_size_is_captured(module):
    batches = capture_batches(module, torch.empty(2, 6))
    for samples in (12, 6, 3, 40, 1):
        assert batches.at_batch(samples) == line(module, samples)


def test_a_batch_of_no_samples_is_an_error():
    with pytest.raises(OptionError, match="1 or more"):
        capture_batches(Squares(6, 6), torch.empty(2, 6)).at_batch(0)
