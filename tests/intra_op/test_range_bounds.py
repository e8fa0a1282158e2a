"""Lower bounds of layer ranges from short runs of layers, against the optimum of every range."""

from typing import cast

import numpy as np
import pytest
import torch
from torch import nn

from alpa_explore.cluster import Cluster, Submesh, logical_mesh
from alpa_explore.cost.model import CostModel
from alpa_explore.intra_op.composition.chain import chain_of
from alpa_explore.intra_op.problem.solution import Status
from alpa_explore.intra_op.range_bounds import range_bounds
from alpa_explore.intra_op.solve import solve
from alpa_explore.intra_op.stage.build_problem import build_stage_problem
from alpa_explore.intra_op.stage.layered_graph import assign_layers
from alpa_explore.intra_op.stage.stage_graph import StageGraph, StageSlicer, slice_stages
from alpa_explore.intra_op.tuning import RUN_GAP
from alpa_explore.layering import cluster_operators
from alpa_explore.tracing.capture import capture


class Translator(nn.Module):
    """An encoder whose output every layer of a decoder reads, with a weight that the first and the last layer share."""

    def __init__(self, layers: int = 3, width: int = 32) -> None:
        super().__init__()
        self.words = nn.Embedding(64, width)
        self.encoder = nn.ModuleList(nn.Linear(width, width) for _ in range(layers))
        self.decoder = nn.ModuleList(nn.Linear(width, width) for _ in range(layers))

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        read = self.words(tokens)
        for linear in self.encoder:
            read = read + torch.relu(linear(read))
        said = self.words(tokens.flip(0))
        for linear in self.decoder:
            said = said + torch.relu(linear(said)) * read
        return (said @ self.words.weight.T).logsumexp(-1).sum()


@pytest.mark.parametrize("shape", [(4,), (2, 2)])
@pytest.mark.parametrize("inverse_b", [1.0, 1 / 64])
def test_no_layer_range_costs_less_than_its_bound_and_none_much_more(shape: tuple[int, ...], inverse_b: float) -> None:
    with torch.device("meta"):
        graph = capture(Translator(), (torch.zeros(64, 16, dtype=torch.int64),))
    layers = 6
    layered = assign_layers(graph, cluster_operators(graph, layers, delta=1.0).layer_of_forward)
    assert not chain_of(layered).is_chain(0, layers - 1), "composition can do it"
    slicer = slice_stages(layered)
    cluster = Cluster.parse("1x4:v100")
    model = CostModel(cluster.device, logical_mesh(cluster, Submesh(1, 4), shape).squeezed())
    ranges = [(i, j) for i in range(layers) for j in range(i, layers)]
    bounds = range_bounds(slicer, model, ranges, inverse_b)
    shares = []
    for r in ranges:
        problem = build_stage_problem(slicer(*r), model)
        priced = problem.at(inverse_b=inverse_b, memory_price=0.0, microbatches_held=1)
        best = solve(priced)
        assert best.status is Status.OPTIMAL
        assert bounds[r] <= best.objective * (1 + 1e-9)
        shares.append(bounds[r] / best.objective)
    assert np.mean(shares) > 0.5


def test_only_the_ranges_that_are_asked_for_are_bounded() -> None:
    with torch.device("meta"):
        graph = capture(Translator(), (torch.zeros(64, 16, dtype=torch.int64),))
    slicer = slice_stages(assign_layers(graph, cluster_operators(graph, 6, delta=1.0).layer_of_forward))
    cluster = Cluster.parse("1x2:v100")
    model = CostModel(cluster.device, logical_mesh(cluster, Submesh(1, 2), (2, 1)).squeezed())
    every = range_bounds(slicer, model, [(i, j) for i in range(6) for j in range(i, 6)], 0.5)
    few = range_bounds(slicer, model, [(0, 3), (2, 2)], 0.5)
    assert few == {r: every[r] for r in [(0, 3), (2, 2)]}


class _Recorded:
    """A slicer that remembers how long the runs were that it cut."""

    def __init__(self, slicer: StageSlicer) -> None:
        self.layered, self.lengths, self._slicer = slicer.layered, set[int](), slicer

    def __call__(self, first: int, last: int) -> StageGraph:
        self.lengths.add(last - first + 1)
        return self._slicer(first, last)


def test_runs_double_only_where_a_longer_one_raises_the_bound() -> None:
    """Layers that are divided by samples meet without resharding: their bounds add up to the least cost, but for the
    gap of each and that of longer runs."""
    layers = 8
    with torch.device("meta"):
        model = nn.Sequential(*(nn.Linear(32, 32, bias=False) for _ in range(layers)))
        inputs = torch.zeros(4096, 32), torch.zeros(4096, 32)
        graph = capture(model, inputs, loss=lambda y, target: (y * target).sum())
    slicer = slice_stages(assign_layers(graph, cluster_operators(graph, layers, delta=1.0).layer_of_forward))
    cluster = Cluster.parse("1x4:v100")
    costs = CostModel(cluster.device, logical_mesh(cluster, Submesh(1, 4), (4, 1)).squeezed())
    recorded = _Recorded(slicer)
    bounds = range_bounds(cast(StageSlicer, recorded), costs, [(0, layers - 1)], 1 / 64)
    assert recorded.lengths == {1, 2}
    problem = build_stage_problem(slicer(0, layers - 1), costs)
    best = solve(problem.at(inverse_b=1 / 64, memory_price=0.0, microbatches_held=1))
    assert (1 - 2 * RUN_GAP) * best.objective <= bounds[0, layers - 1] <= best.objective
