"""What a model recomputes by `torch.utils.checkpoint` is what its plans recompute."""

from functools import partial
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint, checkpoint_sequential, create_selective_checkpoint_contexts

import alpa_explore as ax
from tests.tracing.autograd import assert_autograd

WIDTH, BLOCKS = 128, 10


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(torch.tanh(self.up(x)))


def model_of(form: Any, *, reentrant: bool = False) -> nn.Module:
    """Equal blocks, each run by `form(model, number, block, x)`."""

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.blocks = nn.Linear(WIDTH, WIDTH), nn.ModuleList(Block() for _ in range(BLOCKS))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = self.first(x)
            for number, block in enumerate(self.blocks):
                x = form(number, block, x)
            return x.pow(2).mean()

    return Model()


def without(number: int, block: nn.Module, x: torch.Tensor) -> torch.Tensor:
    return block(x)


def every(number: int, block: nn.Module, x: torch.Tensor, reentrant: bool = False) -> torch.Tensor:
    return checkpoint(block, x, use_reentrant=reentrant)


def every_second(number: int, block: nn.Module, x: torch.Tensor) -> torch.Tensor:
    return block(x) if number % 2 else checkpoint(partial(block.forward), x, use_reentrant=False)


def the_last(number: int, block: nn.Module, x: torch.Tensor) -> torch.Tensor:
    """Beyond the blocks from which a capture of fewer could tell."""
    return checkpoint(block, x, use_reentrant=False) if number == BLOCKS - 1 else block(x)


def graph_of(form: Any) -> ax.TrainingGraph:
    return ax.capture(model_of(form), (torch.randn(512, WIDTH),))


def planned(graph: ax.TrainingGraph, recomputed: Any = None) -> tuple[float, float]:
    """(seconds of an iteration, activations of the stage) on one device."""
    plan = ax.plan(graph, "1x1:v100", num_microbatches=1, num_layers=2, rematerialization=recomputed, cache=False)
    return plan.predicted.iteration_seconds, plan.stages[0].activation_bytes


@pytest.mark.sweep(kept=2, in_turn=True)
@pytest.mark.parametrize(
    ("form", "named"),
    [(every, "full"), (partial(every, reentrant=True), "full"), (every_second, "half"), (without, "none")],
)
def test_a_plan_recomputes_what_the_model_checkpoints(form, named):
    graph = graph_of(form)
    assert graph.warnings == ()
    assert planned(graph) == planned(graph_of(without), named)
    assert planned(graph, "none") == planned(graph_of(without))  # what is asked for comes before


def test_one_checkpoint_among_many_equal_blocks_is_seen():
    graph = graph_of(the_last)
    assert graph.checkpoints == ((f"blocks.{BLOCKS - 1}",),)
    seconds, held = planned(graph)
    assert planned(graph_of(without))[0] < seconds < planned(graph_of(every))[0]
    assert planned(graph_of(without))[1] > held > planned(graph_of(every))[1]


@pytest.mark.parametrize("reentrant", [True, False])
def test_the_chunks_of_a_sequential_model_are_regions(reentrant):
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.blocks = nn.Linear(WIDTH, WIDTH), nn.Sequential(*(Block() for _ in range(6)))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return checkpoint_sequential(self.blocks, 3, self.first(x), use_reentrant=reentrant).sum()

    graph = ax.capture(Model(), (torch.randn(64, WIDTH),))
    # torch runs the last chunk without a checkpoint.
    assert graph.checkpoints == (("blocks.0", "blocks.1"), ("blocks.2", "blocks.3"))
    assert graph.warnings == ()


def test_what_cannot_be_followed_is_said():
    def function(number: int, block: nn.Module, x: torch.Tensor) -> torch.Tensor:
        return checkpoint(lambda y: block(y) * 2, x, use_reentrant=False)

    def selective(number: int, block: nn.Module, x: torch.Tensor) -> torch.Tensor:
        keeps = partial(create_selective_checkpoint_contexts, [torch.ops.aten.mm.default])
        return checkpoint(block, x, use_reentrant=False, context_fn=keeps)

    graph = graph_of(function)
    assert len(graph.checkpoints) == BLOCKS
    (warning,) = graph.warnings
    assert "lambda" in warning
    assert "recomputes blocks.0, blocks.1, blocks.2 and 7 more" in warning
    assert "context_fn" in graph_of(selective).warnings[0]


def test_a_reentrant_checkpoint_without_a_gradient_of_its_input_trains_nothing_as_in_torch():
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner, self.head = nn.Linear(8, 8), nn.Linear(8, 8)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.head(checkpoint(self.inner, x, use_reentrant=True)).sum()

    graph = ax.capture(Model(), (torch.randn(4, 8),))
    assert "do not reach the loss and are not trained: inner.weight, inner.bias" in graph.warnings[0]
    assert ax.capture(Model(), (torch.randn(4, 8, requires_grad=True),)).warnings == ()


@pytest.mark.parametrize("form", [every, every_second, partial(every, reentrant=True)])
def test_loss_and_gradients_are_those_of_the_module(form):
    torch.manual_seed(0)
    model, inputs = model_of(form), (torch.randn(4, WIDTH),)
    assert_autograd(ax.capture(model, inputs), model, inputs, rtol=1e-4, atol=1e-6)


@pytest.mark.sweep(kept=1)
@pytest.mark.parametrize("reentrant", [True, False])
def test_gradient_checkpointing_of_transformers_is_followed(reentrant):
    from transformers import LlamaConfig, LlamaForCausalLM

    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_attention_heads": 2, "num_key_value_heads": 2}
    model = LlamaForCausalLM(LlamaConfig(vocab_size=64, num_hidden_layers=3, **sizes)).train()
    model.gradient_checkpointing_enable({"use_reentrant": reentrant})
    tokens = torch.randint(0, 64, (2, 8))
    graph = ax.capture(model, {"input_ids": tokens, "labels": tokens})
    assert graph.checkpoints == tuple((f"model.layers.{k}",) for k in range(3))
    assert graph.warnings == ()
    model.gradient_checkpointing_disable()
    assert ax.capture(model, {"input_ids": tokens, "labels": tokens}).checkpoints == ()


def test_a_plan_of_a_model_with_checkpoints_trains_as_one_process_does():
    model, inputs = model_of(every_second), (torch.randn(4, WIDTH),)
    graph = ax.capture(model, inputs)
    plan = ax.plan(graph, "1x2:v100", num_microbatches=2, num_layers=2, cache=False)
    assert plan.options.rematerialization == "checkpoints"
    assert any(operator.recomputed for stage in plan.stages for operator in stage.operators)
    assert ax.verify_interpreted(plan, graph=graph, model=model, example_inputs=inputs).passed
