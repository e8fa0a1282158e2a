"""Models of many equal blocks, captured with few of them, have the graph of a capture of the whole."""

from collections.abc import Callable
from dataclasses import fields, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import hypothesis
import pytest
import torch
import transformers
from hypothesis import strategies
from torch import nn

import alpa_explore.tracing.capture as capturing
from alpa_explore.errors import CaptureError
from alpa_explore.graph import TrainingGraph
from alpa_explore.tracing.resizing import fewer_blocks
from alpa_explore.tracing.resizing.fewer_blocks import FEW, MORE, repeated_blocks
from tests.tracing.autograd import assert_autograd

BLOCKS = 16
H = 16


class Block(nn.Module):
    def __init__(self, number: int) -> None:
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(H), nn.Linear(H, 2 * H), nn.Linear(2 * H, H)
        self.number = number

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(nn.functional.gelu(self.up(self.norm(x))))


class Stack(nn.Module):
    def __init__(self, blocks: int = BLOCKS) -> None:
        super().__init__()
        self.first = nn.Linear(H, H)
        self.blocks = nn.ModuleList(Block(number) for number in range(blocks))
        self.last = nn.Linear(H, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.first(x)
        for block in self.blocks:
            x = self.called(block, x)
        return self.last(x)

    def called(self, block: Block, x: torch.Tensor) -> torch.Tensor:
        return block(x)


class EveryFifthOtherwise(Stack):
    def called(self, block: Block, x: torch.Tensor) -> torch.Tensor:
        return x + block(x) if block.number % 5 == 4 else block(x)


class ScaledByNumber(Stack):
    def called(self, block: Block, x: torch.Tensor) -> torch.Tensor:
        return block(x) * (1 + block.number)


class ScaledByDepth(Stack):
    def called(self, block: Block, x: torch.Tensor) -> torch.Tensor:
        return block(x) / len(self.blocks)


class InReverse(Stack):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.first(x)
        for block in reversed(self.blocks):
            x = block(x)
        return self.last(x)


class OneIsFrozen(Stack):
    def __init__(self) -> None:
        super().__init__()
        self.blocks[7].up.weight.requires_grad_(False)


class OneHasAnotherShape(Stack):
    def __init__(self) -> None:
        super().__init__()
        self.blocks[6].up, self.blocks[6].down = nn.Linear(H, 3 * H), nn.Linear(3 * H, H)


class Halved(torch.autograd.Function):
    """The identity, with half of its gradient."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        return 0.5 * gradient


class Whole(torch.autograd.Function):
    """The identity; its forward pass is that of `Halved`."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        return gradient


class Told(torch.autograd.Function):
    """The identity, whose backward pass depends on what the forward pass was told."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, other: bool) -> torch.Tensor:
        ctx.other = other
        return x.clone()

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:
        return (-gradient if ctx.other else gradient), None


class Swapped(torch.autograd.Function):
    """The sum of a tensor and of two weights, which may get each other's gradient."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, a: torch.Tensor, b: torch.Tensor, other: bool) -> torch.Tensor:
        ctx.other = other
        return x + a + 2 * b

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        of_a = gradient.flatten(0, -2).sum(0)
        of_b = 2 * of_a
        return gradient, *((of_b, of_a) if ctx.other else (of_a, of_b)), None


def gradients_off(block: Block, x: torch.Tensor, other: bool) -> torch.Tensor:
    with torch.set_grad_enabled(not other):
        branch = block(x)
    return x + branch


def tensor_hook(block: Block, x: torch.Tensor, other: bool) -> torch.Tensor:
    out = block(x)
    if other:
        out.register_hook(lambda gradient: 0.5 * gradient)
    return out


def node_hook(block: Block, x: torch.Tensor, other: bool) -> torch.Tensor:
    out = block(x)
    if other:
        out.grad_fn.register_prehook(lambda gradients: tuple(3.0 * g for g in gradients))
    return out


def module_hook(block: Block, x: torch.Tensor, other: bool) -> torch.Tensor:
    if not other:
        return block(x)
    handle = block.register_full_backward_hook(lambda module, into, out: tuple(2.0 * g for g in into))
    try:
        return block(x)
    finally:
        handle.remove()


def weight_hook(block: Block, x: torch.Tensor, other: bool) -> torch.Tensor:
    if other:
        block.up.weight.register_hook(lambda gradient: 0.0 * gradient)
    return block(x)


HIDDEN = {
    "gradients off": gradients_off,
    "detached": lambda block, x, other: block(x.detach() if other else x),
    "hook of a tensor": tensor_hook,
    "hook of a node": node_hook,
    "hook of a module": module_hook,
    "hook of a weight": weight_hook,
    "another backward": lambda block, x, other: block((Halved if other else Whole).apply(x)),
    "a backward that was told": lambda block, x, other: block(Told.apply(x, other)),
    "gradients swapped": lambda block, x, other: Swapped.apply(block(x), block.norm.weight, block.norm.bias, other),
}
"""Ways to call a block that give the same values in the forward pass, whether `other` or not."""


class HiddenDifference(Stack):
    """Some blocks differ in what autograd records of them."""

    def __init__(self, way: str, others: frozenset[int]) -> None:
        super().__init__()
        self.way, self.others = HIDDEN[way], others

    def called(self, block: Block, x: torch.Tensor) -> torch.Tensor:
        return self.way(block, x, block.number in self.others)


def loss(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    return ((output - target) ** 2).mean()


X, Y = torch.zeros(2, 4, H), torch.zeros(2, 4, 4)


def language_model(kind: str, **changes: Any) -> tuple[nn.Module, dict[str, torch.Tensor]]:
    config = transformers.AutoConfig.for_model(
        kind,
        **{
            "hidden_size": H,
            "intermediate_size": 2 * H,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "vocab_size": 32,
            **changes,
        },
    )
    with torch.device("meta"):
        model = transformers.AutoModelForCausalLM.from_config(config)
    tokens = torch.zeros(2, 8, dtype=torch.long)
    return model, {"input_ids": tokens, "labels": tokens}


def both(
    monkeypatch: pytest.MonkeyPatch, model: nn.Module, example: Any, loss: Callable[..., Any] | None
) -> tuple[TrainingGraph, TrainingGraph, bool]:
    """The graph of a capture, that of a capture of the whole model, and whether the first had fewer blocks."""
    made: list[TrainingGraph | None] = []
    from_fewer = capturing.from_fewer_blocks

    def of_fewer(request: Any) -> TrainingGraph | None:
        made.append(from_fewer(request))
        return made[-1]

    graphs = []
    for function in (of_fewer, lambda request: None):
        monkeypatch.setattr(capturing, "from_fewer_blocks", function)
        graphs.append(capturing.capture(model, example, loss=loss))
    return graphs[0], graphs[1], made[0] is not None


def without_this_file(graph: TrainingGraph) -> TrainingGraph:
    """Without the lines of this file: where a model has no code of its own, they are those that call `capture`."""
    operators = (
        replace(operator, source="") if operator.source.startswith(Path(__file__).name) else operator
        for operator in graph.operators
    )
    return replace(graph, operators=tuple(operators))


def check_equal(fewer: TrainingGraph, whole: TrainingGraph) -> None:
    fewer, whole = without_this_file(fewer), without_this_file(whole)
    for part in fields(TrainingGraph):
        assert getattr(fewer, part.name) == getattr(whole, part.name), part.name


@pytest.mark.sweep(kept=1)
@pytest.mark.slow
@pytest.mark.parametrize(
    "model",
    [
        Stack(),
        InReverse(),
        nn.Sequential(
            nn.Linear(H, H), *(nn.Sequential(nn.Linear(H, H), nn.ReLU()) for _ in range(20)), nn.Linear(H, 4)
        ),
        nn.Sequential(*(part for _ in range(20) for part in (nn.Linear(H, H), nn.Tanh())), nn.Linear(H, 4)),
        nn.Sequential(
            nn.TransformerEncoder(
                nn.TransformerEncoderLayer(H, 2, 32, batch_first=True), 16, enable_nested_tensor=False
            ),
            nn.Linear(H, 4),
        ),
    ],
    ids=["modules", "in reverse", "sequential", "periods of two", "encoder"],
)
def test_equal_blocks_are_captured_once(model: nn.Module, monkeypatch: pytest.MonkeyPatch) -> None:
    modules = list(model.named_modules())
    fewer, whole, shortened = both(monkeypatch, model, (X, Y), loss)
    assert shortened
    check_equal(fewer, whole)
    assert [(name, id(module)) for name, module in model.named_modules()] == [(n, id(m)) for n, m in modules]


@pytest.mark.sweep(kept=1, in_turn=True)
@pytest.mark.parametrize(
    ("kind", "changes"),
    [
        ("llama", {}),
        ("gpt2", {}),
        pytest.param("gemma2", {"head_dim": 4}, marks=pytest.mark.slow),
        pytest.param(
            "qwen3_moe",
            {"num_experts": 2, "num_experts_per_tok": 1, "moe_intermediate_size": H, "head_dim": 4},
            marks=pytest.mark.slow,
        ),
    ],
    ids=["llama", "gpt2", "every second with a window", "experts"],
)
def test_models_of_transformers_are_captured_with_fewer_blocks(
    kind: str, changes: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of so few blocks two captures would not be worth it: a capture of many, for the comparison, takes longer."""
    monkeypatch.setattr(fewer_blocks, "WORTH_SHORTENING", 2.0)
    blocks = (FEW + MORE + 1) * (2 if kind == "gemma2" else 1)
    model, example = language_model(kind, num_hidden_layers=blocks, **changes)
    fewer, whole, shortened = both(monkeypatch, model, example, None)
    assert shortened
    check_equal(fewer, whole)


@pytest.mark.sweep(kept=1)
@pytest.mark.slow
@pytest.mark.parametrize("kind", [EveryFifthOtherwise, ScaledByNumber, ScaledByDepth])
def test_blocks_that_are_called_otherwise_are_captured_whole(
    kind: type[Stack], monkeypatch: pytest.MonkeyPatch
) -> None:
    model = kind()
    assert repeated_blocks(model) is not None, "the modules do not show it"
    fewer, whole, shortened = both(monkeypatch, model, (X, Y), loss)
    assert not shortened
    check_equal(fewer, whole)


@pytest.mark.slow
@hypothesis.given(
    way=strategies.sampled_from(sorted(HIDDEN)),
    others=strategies.frozensets(strategies.integers(0, BLOCKS - 1), max_size=3),
)
@hypothesis.settings(max_examples=6)
def test_blocks_that_differ_in_what_autograd_records_have_the_gradients_of_torch(
    way: str, others: frozenset[int]
) -> None:
    torch.manual_seed(0)
    model, x, y = HiddenDifference(way, others), torch.randn(2, 4, H), torch.randn(2, 4, 4)
    assert repeated_blocks(model) is not None, "the modules do not show it"
    assert_autograd(capturing.capture(model, (x, y), loss=loss), model, (x, y), loss)


@pytest.mark.parametrize("kind", [OneIsFrozen, OneHasAnotherShape])
def test_blocks_that_differ_are_not_equal(kind: type[Stack]) -> None:
    assert repeated_blocks(kind()) is None


def test_few_blocks_are_captured_whole() -> None:
    assert repeated_blocks(Stack(8)) is None
    assert repeated_blocks(Stack(13)) is None, "two captures trace more than six tenths of it"
    assert repeated_blocks(Stack(30)) is not None


def test_a_model_has_its_blocks_after_an_error() -> None:
    model = Stack()
    blocks = repeated_blocks(model)
    assert blocks is not None
    before = list(model.blocks)

    def fail() -> None:
        assert len(model.blocks) == MORE
        raise ZeroDivisionError

    with blocks.shortened(MORE), pytest.raises(ZeroDivisionError):
        fail()
    assert list(model.blocks) == before
    with pytest.raises(ZeroDivisionError), blocks.shortened(MORE):
        fail()
    assert list(model.blocks) == before


class KeepsTables(Stack):
    """Makes tables in its first forward pass, as many models do with rotary embeddings."""

    def __init__(self, blocks: int = BLOCKS) -> None:
        super().__init__(blocks)
        self.table: torch.Tensor | None = None
        self.tables: dict[int, torch.Tensor | None] = {H: None}
        self.listed: list[torch.Tensor] = []

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.table is None:
            self.table = torch.arange(H).float().cos()
            self.listed.append(self.table)
            self.made = True
        if (table := self.tables[H]) is None:
            self.tables[H] = table = torch.arange(H).float().sin()
        return super().forward(x * self.table + table)


@pytest.mark.slow
@pytest.mark.parametrize("blocks", [1, BLOCKS])
def test_what_a_forward_pass_keeps_in_attributes_does_not_reach_the_next(
    blocks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = KeepsTables(blocks)
    fewer, whole, shortened = both(monkeypatch, model, (X, Y), loss)
    assert shortened == (blocks == BLOCKS)
    check_equal(fewer, whole)
    assert {operator.kind for operator in whole.operators} >= {"aten.cos.default", "aten.sin.default"}
    assert (model.table, model.tables, model.listed, hasattr(model, "made")) == (None, {H: None}, [], False)


@lru_cache
def table() -> torch.Tensor:
    return torch.arange(H).float().cos()


class ReadsACachedTable(Stack):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x * table())


@pytest.mark.slow
def test_a_tensor_that_is_kept_outside_the_modules_is_named_in_the_error() -> None:
    for blocks in (1, BLOCKS):
        table.cache_clear()
        with pytest.raises(CaptureError, match=r"behind functools.lru_cache or in a global\. Make it in __init__"):
            capturing.capture(ReadsACachedTable(blocks), (X, Y), loss=loss)
    table.cache_clear()
