"""The kinds of blocks: equal in all that a module and its config say, in every list of blocks."""

from __future__ import annotations

from types import SimpleNamespace

import torch
from torch import nn

import alpa_explore as ax
from alpa_explore.layering.blocks import OUTSIDE, blocks_with_paths
from alpa_explore.tracing.resizing.fewer_blocks import block_kinds

WIDTH = 8


class Block(nn.Module):
    """A block whose experts are a list of their own."""

    def __init__(self, inner: int, number: int) -> None:
        super().__init__()
        self.number = number
        self.experts = nn.ModuleList(nn.Sequential(nn.Linear(WIDTH, inner), nn.Linear(inner, WIDTH)) for _ in range(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + sum(expert(x) for expert in self.experts)


class Model(nn.Module):
    """Two lists of blocks, and what a config says of each block of the first."""

    def __init__(self, first: list[int], second: list[int], types: list[str]) -> None:
        super().__init__()
        self.config = SimpleNamespace(types=types, numbers=list(range(len(first))), size=WIDTH)
        self.embed = nn.Linear(WIDTH, WIDTH)
        self.encoder, self.decoder = (
            nn.ModuleList(Block(inner, number) for number, inner in enumerate(sizes)) for sizes in (first, second)
        )
        self.head = nn.Sequential(nn.Linear(WIDTH, 1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.embed(x)
        for block in (*self.encoder, *self.decoder):
            x = block(x)
        return self.head(x).square().mean()


def test_blocks_are_of_one_kind_where_all_that_is_said_of_them_is_equal() -> None:
    model = Model([8, 8, 8, 16, 8], [8, 16], ["full", "window", "full", "full", "window"])
    found = block_kinds(model)
    assert found is not None
    assert [path for path, _ in found.containers] == ["encoder", "decoder"]
    assert found.kinds == (0, 1, 0, 2, 1, 3, 4), "the second list has no types in the config"
    assert found.examples == (2, 1, 3, 5, 6), "not the first block, where another is like it"
    assert found.chosen == (0, 1, 2, 3, 5, 6)
    assert found.paths == (*(f"encoder.{n}" for n in range(4)), "decoder.0", "decoder.1")


def test_a_shortened_model_is_whole_again_afterwards() -> None:
    model = Model([16, 8, 8, 8, 8, 8], [8], ["a", *"bbbbb"])
    before = [*model.encoder]
    found = block_kinds(model)
    assert found is not None
    with found.shortened():
        assert [*model.encoder] == before[:3], "a block of each kind, and two equal ones"
        assert model.config.types == ["a", "b", "b"]
        graph = ax.capture(model, (torch.randn(4, WIDTH),))
    assert [*model.encoder] == before
    assert model.config.types == ["a", *"bbbbb"]
    assert {path for _, path in blocks_with_paths(graph)} >= {"encoder.0", "encoder.1", "encoder.2"}


def test_unlike_blocks_are_blocks_where_no_two_are_alike() -> None:
    class Hybrid(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.blocks = nn.ModuleList([nn.Sequential(nn.Linear(8, 8), act, nn.Linear(8, 8)) for act in ACTIVATIONS])

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for block in self.blocks:
                x = x + block(x)
            return x.square().mean()

    graph = ax.capture(Hybrid(), (torch.randn(4, WIDTH),))
    numbers = [number for number, _ in blocks_with_paths(graph)]
    assert sorted({*numbers} - {OUTSIDE}) == [0, 1, 2]


ACTIVATIONS = (nn.ReLU(), nn.Tanh(), nn.SiLU())


def test_layers_of_a_perceptron_are_no_blocks() -> None:
    assert block_kinds(nn.Sequential(*(nn.Linear(WIDTH, WIDTH) for _ in range(4)))) is None
