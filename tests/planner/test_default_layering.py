"""The layers where the user gives no boundaries: their number, and that none does next to nothing."""

from dataclasses import replace

import pytest
import torch
from torch import nn

import alpa_explore as ax
from alpa_explore.layering import cluster_operators
from alpa_explore.planner.default_layering import clustered, default_layering, numbers_of_layers
from alpa_explore.store.cache import SolveCache


class Tabled(nn.Module):
    """An embedding and a table that all blocks read, as masks and rotary tables are."""

    def __init__(self, blocks: int) -> None:
        super().__init__()
        self.tokens = nn.Embedding(64, 16)
        self.blocks = nn.ModuleList(nn.Linear(16, 16) for _ in range(blocks))

    def forward(self, tokens_BS: torch.Tensor) -> torch.Tensor:
        x_BSH = self.tokens(tokens_BS)
        table_S1 = torch.arange(tokens_BS.shape[1])[:, None].cos()
        for block in self.blocks:
            x_BSH = x_BSH + block(x_BSH * table_S1).relu()
        return x_BSH.square().mean()


def graph_of(blocks: int) -> ax.TrainingGraph:
    return ax.capture(Tabled(blocks), (torch.zeros(4, 8, dtype=torch.int64),))


@pytest.mark.slow
@pytest.mark.parametrize(("blocks", "layers"), [(9, 9), (12, 12), (16, 16), (24, 24), (32, 32), (41, 16)])
def test_the_default_number_of_layers_follows_from_the_blocks(blocks, layers) -> None:
    graph = graph_of(blocks)
    layering = default_layering(graph, 0.5)
    assert len(layering.layers) == layers
    mean = sum(layer.flops for layer in layering.layers) / len(layering.layers)
    assert min(layer.flops for layer in layering.layers) >= 0.25 * mean


def longest(parts: int, stages: int) -> float:
    """Of so many stages of whole parts, as a multiple of the mean stage."""
    return max(parts * (k + 1) // stages - parts * k // stages for k in range(stages)) * stages / parts


@pytest.mark.parametrize("blocks", range(8, 129))
def test_pipelines_of_the_default_layers_are_about_as_even_as_those_of_blocks(blocks) -> None:
    layers = numbers_of_layers(blocks)[0]
    for stages in (2, 4, 8):
        assert longest(layers, stages) <= 1.15 * longest(blocks, stages), f"{layers} layers in {stages} stages"


@pytest.mark.parametrize(("devices", "stages"), [(24, 3), (48, 6), (96, 12), (40, 5), (56, 7)])
def test_pipelines_that_divide_the_cluster_are_among_them(devices, stages) -> None:
    excess = []
    for blocks in range(32, 131):
        layers = numbers_of_layers(blocks, devices)[0]
        excess.append(longest(layers, stages) / longest(blocks, stages) - 1)
    assert sum(excess) / len(excess) < 0.04
    assert max(excess) <= 0.25


@pytest.mark.parametrize(
    ("blocks", "layers"),
    [(56, 28), (32, 32), (64, 32), (72, 24), (80, 16), (48, 16), (40, 40), (126, 16), (94, 16), (62, 16), (11, 11)],
)
def test_equal_layers_are_preferred_and_few_are_enough(blocks, layers) -> None:
    assert numbers_of_layers(blocks)[0] == layers


@pytest.mark.slow
def test_where_the_largest_operator_allows_few_layers_the_best_of_these_is_taken() -> None:
    """Of 24 blocks and a head that does a fifth of the work, 24 layers and 12 cannot be balanced."""
    model = nn.Sequential(Tabled(24))
    model[0].blocks[-1] = nn.Sequential(nn.Linear(16, 100), nn.Linear(100, 16))
    graph = ax.capture(model, (torch.zeros(4, 8, dtype=torch.int64),))
    assert len(default_layering(graph, 0.5).layers) == 8


def test_the_tiny_models_and_those_of_the_paper_have_the_layers_of_the_catalogue() -> None:
    for name, layers in (("gpt-tiny", 4), ("gpt-1.3b", 6)):
        graph = replace(graph_of(8), recipe=name)
        assert len(default_layering(graph, 3.0, devices=48).layers) == layers


def test_what_precedes_the_first_block_goes_with_it_and_eq_6_alone_may_part_them() -> None:
    graph = graph_of(16)
    alone, together = cluster_operators(graph, 8, delta=0.5), clustered(graph, 8, 0.5)
    assert alone.layers[0].flops == 0
    assert "blocks.0" in {graph.forward_operators[place].module for place in together.layers[0].operators}
    assert all(layer.flops > 0 for layer in together.layers)


def test_more_layers_than_can_all_do_something_are_given_where_they_are_asked_for() -> None:
    graph = graph_of(2)
    assert len(clustered(graph, 6, 3.0).layers) == 6


def test_layers_from_the_cache_are_those_that_were_put_there_and_of_the_same_question_alone(tmp_path, monkeypatch):
    from alpa_explore.planner import default_layering as module

    store, graph = SolveCache(tmp_path), graph_of(8)
    known = clustered(graph, 4, 0.5, store)
    assert known == clustered(graph, 4, 0.5)
    monkeypatch.setattr(module, "cluster_operators", None)
    assert clustered(graph, 4, 0.5, store) == known
    for other in ((graph, 4, 0.6), (graph, 5, 0.5), (graph_of(9), 4, 0.5)):
        with pytest.raises(TypeError):
            clustered(*other, store)


def test_the_layers_of_the_papers_models_are_those_of_eq_6(monkeypatch) -> None:
    from alpa_explore.planner import default_layering as module

    asked = []
    monkeypatch.setattr(module, "cluster_operators", lambda *_, **options: asked.append(options))
    clustered(replace(graph_of(2), recipe="gpt-1.3b"), 2, 0.5)
    assert asked == [{"delta": 0.5}]
