"""Stages of small captured models for the tests of the formulations."""

import random

import numpy as np
import torch
from torch import nn

from alpa_explore.cluster import Cluster, Submesh, logical_mesh
from alpa_explore.cost.model import CostModel
from alpa_explore.graph import TrainingGraph
from alpa_explore.intra_op.problem.sharding_problem import ShardingProblem
from alpa_explore.intra_op.stage.build_problem import build_stage_problem
from alpa_explore.intra_op.stage.layered_graph import assign_layers
from alpa_explore.intra_op.stage.stage_graph import StageGraph, slice_stages
from alpa_explore.intra_op.stage.stage_problem import StageProblem
from alpa_explore.layering import manual_layers
from alpa_explore.layering.blocks import repeated_modules
from alpa_explore.planner.microbatch_graph import microbatch_graph
from alpa_explore.tracing.capture import capture


class Chain(nn.Module):
    """Linear layers of random widths with a residual where widths agree, and a norm: all kinds of edges, few nodes."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        draw = random.Random(seed)
        widths = [draw.choice([16, 32, 64, 256]) for _ in range(3)] + [64]
        self.linears = nn.ModuleList(nn.Linear(a, b) for a, b in zip([64, *widths], widths, strict=False))
        self.norm = nn.LayerNorm(64)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = x
        for linear in self.linears:
            y = torch.relu(linear(y))
        return (x + self.norm(y)).square().sum()


def chain(seed: int) -> TrainingGraph:
    """A captured Chain; the batch is drawn too."""
    with torch.device("meta"):
        return capture(Chain(seed), (torch.empty(random.Random(-seed).choice([4, 32, 512]), 64),))


def block_of(model: str, num_microbatches: int) -> StageGraph:
    """The middle repeated module of a catalogue model."""
    graph = microbatch_graph(model, num_microbatches)
    blocks = repeated_modules(graph)
    layered = assign_layers(graph, manual_layers(graph, blocks[1:]).layer_of_forward)
    return slice_stages(layered)(len(blocks) // 2, len(blocks) // 2)


def whole(graph: TrainingGraph) -> StageGraph:
    """All of a graph as one stage."""
    return slice_stages(assign_layers(graph, manual_layers(graph, ()).layer_of_forward))(0, 0)


def on_mesh(stage: StageGraph, shape: tuple[int, ...], inverse_b: float) -> tuple[StageProblem, ShardingProblem]:
    """The problem of `stage` on a mesh of V100s, eight a node."""
    devices = int(np.prod(shape))
    cluster = Cluster.parse(f"{max(1, devices // 8)}x{min(8, devices)}:v100")
    mesh = logical_mesh(cluster, Submesh(cluster.nodes, cluster.devices_per_node), shape).squeezed()
    problem = build_stage_problem(stage, CostModel(cluster.device, mesh))
    return problem, problem.at(inverse_b=inverse_b, memory_price=0.0, microbatches_held=1)
