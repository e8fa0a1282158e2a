"""Bounds of stages from the stage costs of other layers: no choice is below them, whatever the layers and the model."""

import math
import random

import numpy as np
import pytest
import torch
from torch import nn

import alpa_explore as ax
from alpa_explore.cluster import logical_meshes, submeshes
from alpa_explore.intra_op.stage.layered_graph import assign_layers
from alpa_explore.layering import manual_layers
from alpa_explore.planner.microbatch_graph import microbatch_graph
from alpa_explore.plans.rebuild import layered_graphs
from alpa_explore.search.bounds.entering_sums import EnteringSums
from alpa_explore.search.bounds.least_bytes import least_bytes
from alpa_explore.search.bounds.lower_bounds import LowerBounds
from alpa_explore.sharding.spec_constraint import constraints_of

B = 8


class Reduced(nn.Module):
    """Two products, of sizes that only their inner dim divides; their sum is reduced at once."""

    def __init__(self):
        super().__init__()
        self.register_buffer("first", torch.zeros(64, 4001))
        self.second = nn.Linear(64, 4001, bias=False)

    def forward(self, x, y):
        return (x @ self.first + self.second(y)).sum(1).relu().mean()


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


def least_of(plan, other, graph):
    layered, known = (layered_graphs(p, graph)[0] for p in (plan, other))
    meshes = [logical_meshes(plan.cluster, piece) for piece in plan.costs.submeshes]
    return LowerBounds(layered, [plan.cluster.device], meshes, other=known, known=other.costs, num_microbatches=B)


def check_bounds(plan, other, graph):
    least = least_of(plan, other, graph)
    for cell, candidates in plan.costs.candidates.items():
        for c in candidates:
            bound = least.seconds(*cell, c.logical_mesh)
            assert 0 < bound <= c.latency_seconds(B) * (1 + 1e-9), (cell, c.logical_mesh.shape)


def test_on_one_device_a_stage_holds_what_the_bound_says_and_on_more_no_less():
    graph = ax.capture(Residual(), (torch.zeros(64, 32),))
    plan = planned(graph, "1x2:v100", random_layers(graph, random.Random(0), 3))
    bound, least = least_of(plan, plan, graph), least_bytes(layered_graphs(plan, graph)[0])
    alone = 0
    for cell, candidates in plan.costs.candidates.items():
        devices = plan.costs.submeshes[cell[2]].devices
        for c in candidates:
            weights, held = c.weight_bytes * devices, c.activation_bytes * devices
            assert least[cell[:2]] <= (weights * (1 + 1e-9), held * (1 + 1e-9))
            most = (devices * plan.costs.device_memory_bytes - weights) / held
            assert most <= bound.most_held(*cell) * (1 + 1e-9)
            if devices == 1:
                assert least[cell[:2]] == pytest.approx((weights, held))
                assert bound.most_held(*cell) == pytest.approx(most)
                alone += 1
    assert alone > 3


def random_layers(graph, rng, layers):
    return [o.name for o in sorted(rng.sample(graph.forward_operators[1:], layers - 1), key=lambda o: o.index)]


def test_a_sum_that_another_layer_adds_to_while_it_is_pending_need_not_be_completed():
    graph = ax.capture(Reduced(), (torch.zeros(501, 64), torch.zeros(501, 64)))
    where = ax.Cluster.parse("1x4:v100")
    names = [o.name for o in graph.forward_operators]
    begin, relu = names[1], next(name for name in names if name.startswith("relu"))
    plan, other = (planned(graph, where, boundaries) for boundaries in ([relu], [begin, relu]))
    check_bounds(plan, other, graph)


@pytest.mark.slow
def test_sums_may_be_pending_across_layers_only_where_all_that_is_added_may_be():
    where = ax.Cluster.parse("1x2:v100")
    mesh = logical_meshes(where, submeshes(where)[-1])[0]

    def counted(graph):
        """Of three layers that begin at layer norms."""
        norms = [o.name for o in graph.forward_operators if "layer_norm" in o.kind]
        layering = manual_layers(graph, norms[1:3])
        return EnteringSums(assign_layers(graph, layering.layer_of_forward)).seconds(mesh)

    seconds = counted(ax.capture(Residual(), (torch.zeros(64, 32),)))
    assert [place > 0 for place in seconds.diagonal()] == [False, True, True]  # nothing comes into the first layer
    assert seconds[0, 2] == pytest.approx(seconds.diagonal().sum())
    # The stream of a GPT begins with the weight of the positions, which no device holds a part of a sum of.
    assert not counted(microbatch_graph("gpt-tiny", B)).any()


def test_nothing_is_said_of_stages_in_which_something_is_constrained_of_what_a_pending_sum_passes():
    graph = ax.capture(Reduced(), (torch.zeros(501, 64), torch.zeros(501, 64)))
    where = ax.Cluster.parse("1x2:v100")
    mesh = logical_meshes(where, submeshes(where)[-1])[0]
    names = [o.name for o in graph.forward_operators]
    layers = manual_layers(graph, [names[1], "relu"]).layer_of_forward
    constrained = assign_layers(graph, layers, spec_constraints=constraints_of(forbid={"add": "RR"}))
    seconds = EnteringSums(constrained).seconds(mesh)
    assert [math.isinf(place) for place in seconds.diagonal()] == [False, True, False]
    assert math.isinf(seconds[0, 2])
    assert np.isfinite(EnteringSums(assign_layers(graph, layers)).seconds(mesh)).all()


@pytest.mark.parametrize("seed", range(2))
def test_no_choice_is_faster_than_its_bound_whatever_the_layers_of_a_residual_stream(seed):
    graph = ax.capture(Residual(), (torch.zeros(64, 32),))
    rng = random.Random(seed)
    plans = [planned(graph, "2x2:v100", random_layers(graph, rng, layers)) for layers in (3, 4)]
    check_bounds(*plans, graph)
    check_bounds(*plans[::-1], graph)


@pytest.mark.sweep(kept=1, in_turn=True)
@pytest.mark.slow
@pytest.mark.parametrize("name", ["gpt-tiny", "moe-tiny", "wide-resnet-tiny"])
def test_no_choice_is_faster_than_its_bound_whatever_the_layers(name):
    graph = microbatch_graph(name, B)
    rng = random.Random(name)
    plans = [planned(graph, "1x2:v100", random_layers(graph, rng, layers)) for layers in (2, 3)]
    check_bounds(*plans, graph)
    check_bounds(*plans[::-1], graph)
