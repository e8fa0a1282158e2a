"""Bounds of stages without a solve: no choice is below them, whatever the layers and the model."""

import random

import pytest
import torch
from torch import nn

import alpa_explore as ax
from alpa_explore.planner.microbatch_graph import microbatch_graph
from alpa_explore.plans.rebuild import layered_graphs
from alpa_explore.search.bounds.least_bytes import least_bytes
from alpa_explore.search.bounds.lower_bounds import LowerBounds

B = 8


class Residual(nn.Module):
    """A residual stream that begins with a product, so that it may be pending everywhere."""

    def __init__(self, blocks=4, width=32):
        super().__init__()
        self.begin = nn.Linear(width, width, bias=False)
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(blocks))
        self.up = nn.ModuleList(nn.Linear(width, 4 * width, bias=False) for _ in range(blocks))
        self.down = nn.ModuleList(nn.Linear(4 * width, width, bias=False) for _ in range(blocks))

    def forward(self, x):
        x = self.begin(x)
        for norm, up, down in zip(self.norms, self.up, self.down, strict=True):
            x = x + down(up(norm(x)).relu())
        return x.sum(1).square().mean()


def planned(graph, where, boundaries):
    return ax.plan(graph, where, num_microbatches=B, boundaries=boundaries, scheduler="serial")


def check_bounds(plan, graph):
    (layered,) = layered_graphs(plan, graph)
    least = LowerBounds(layered, [plan.cluster.device])
    for (first, last, _), candidates in plan.costs.candidates.items():
        for c in candidates:
            bound = least.seconds(first, last, c.logical_mesh)
            assert 0 < bound <= c.latency_seconds(B) * (1 + 1e-9), (first, last, c.logical_mesh.shape)


@pytest.mark.parametrize(("where", "precision"), [("1x2:v100", "float32"), ("1x2:h100", "bfloat16")])
def test_on_one_device_a_stage_holds_what_the_bound_says_and_on_more_no_less(where, precision):
    graph = ax.capture(Residual(), (torch.zeros(64, 32),), precision=precision)
    plan = planned(graph, where, random_layers(graph, random.Random(0), 3))
    (layered,), device = layered_graphs(plan, graph), plan.cluster.device
    bound, least = LowerBounds(layered, [device]), least_bytes(layered, device.software)
    alone = 0
    for cell, candidates in plan.costs.candidates.items():
        devices = plan.costs.submeshes[cell[2]].devices
        for c in candidates:
            weights, held = c.weight_bytes * devices, c.activation_bytes * devices
            assert least[cell[:2]] <= (weights * (1 + 1e-9), held * (1 + 1e-9))
            most = (devices * (device.memory_bytes - device.reserved_bytes) - weights) / held
            stage = *cell[:2], plan.costs.submeshes[cell[2]]
            assert most <= bound.most_held(*stage) * (1 + 1e-9)
            over = c.peak_bytes(2) - device.memory_bytes
            assert bound.over_bytes(*stage, 2) <= over + 1e-9 * device.memory_bytes
            if devices == 1:
                assert least[cell[:2]] == pytest.approx((weights, held))
                assert bound.most_held(*stage) == pytest.approx(most)
                assert bound.over_bytes(*stage, 2) >= over - c.workspace_bytes
                alone += 1
    assert alone > 3


def random_layers(graph, rng, layers):
    return [o.name for o in sorted(rng.sample(graph.forward_operators[1:], layers - 1), key=lambda o: o.index)]


@pytest.mark.parametrize("seed", range(2))
def test_no_choice_is_faster_than_its_bound_whatever_the_layers_of_a_residual_stream(seed):
    graph = ax.capture(Residual(), (torch.zeros(64, 32),))
    rng = random.Random(seed)
    for layers in (3, 4):
        check_bounds(planned(graph, "2x2:v100", random_layers(graph, rng, layers)), graph)


@pytest.mark.sweep(kept=1, in_turn=True)
@pytest.mark.slow
@pytest.mark.parametrize("name", ["gpt-tiny", "moe-tiny", "wide-resnet-tiny"])
def test_no_choice_is_faster_than_its_bound_whatever_the_layers(name):
    graph = microbatch_graph(name, B)
    rng = random.Random(name)
    for layers in (2, 3):
        check_bounds(planned(graph, "1x2:v100", random_layers(graph, rng, layers)), graph)
