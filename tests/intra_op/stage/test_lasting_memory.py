"""Everything that lives on a device has its bytes in the plan: frozen weights, buffers, constants, views, inputs."""

import random
from itertools import pairwise

import pytest
import torch
from torch import nn

import alpa_explore as ax
from alpa_explore.errors import InfeasiblePlanError
from alpa_explore.graph import GIVEN_KINDS, TrainingGraph
from alpa_explore.intra_op.stage.layered_graph import assign_layers
from alpa_explore.intra_op.stage.stage_graph import Holding, slice_stages
from alpa_explore.layering import manual_layers
from alpa_explore.plans.plan import Plan
from alpa_explore.programs.execution.rehearsal import live_bytes
from alpa_explore.programs.lowering.lower import lower
from alpa_explore.search.bounds.least_bytes import least_weight_bytes
from alpa_explore.tracing.capture import capture


class Adapters(nn.Module):
    """Frozen products with adapters of low rank: LoRA."""

    def __init__(self, blocks: int, width: int, dtype: torch.dtype, rank: int = 16) -> None:
        super().__init__()

        def linears(*sizes: int) -> nn.ModuleList:
            return nn.ModuleList(nn.Linear(*sizes, bias=False, dtype=dtype) for _ in range(blocks))

        self.frozen, self.downs, self.ups = linears(width, width), linears(width, rank), linears(rank, width)
        self.frozen.requires_grad_(False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for frozen, down, up in zip(self.frozen, self.downs, self.ups, strict=True):
            x = torch.relu(frozen(x) + up(down(x)))
        return x.float().mean()


def adapters(blocks: int, width: int, dtype: torch.dtype = torch.bfloat16) -> TrainingGraph:
    with torch.device("meta"):
        return capture(Adapters(blocks, width, dtype), (torch.empty(8, width, dtype=dtype),))


def planned(graph: TrainingGraph, cluster: str, **options: object) -> Plan:
    return ax.plan(graph, cluster, num_microbatches=2, scheduler="serial", **options)


def test_frozen_weights_do_not_fit_where_they_do_not_fit_and_two_devices_hold_a_half_each() -> None:
    graph, frozen = adapters(40, 16384), 40 * 2 * 16384**2  # 21.5 GB
    assert least_weight_bytes(graph, ax.Cluster.parse("1x1:v100").software) >= frozen
    with pytest.raises(InfeasiblePlanError):
        planned(graph, "1x1:v100", num_layers=4)
    plan = planned(graph, "1x2:v100", num_layers=4)
    assert sum(s.weight_bytes * len(s.devices) for s in plan.stages) >= frozen
    assert plan.predicted.peak_bytes_per_device >= frozen / 2


def test_a_frozen_weight_has_neither_gradient_nor_optimizer_state() -> None:
    graph = adapters(2, 64)
    trained = sum(graph.tensors[p.tensor].elements for p in graph.parameters)
    (stage,) = planned(graph, "1x1:v100").stages
    assert stage.weight_bytes == 2 * 2 * 64**2 + (2 + 2 + 12) * trained


@pytest.mark.parametrize("kind", ["data-parallel", "zero-1", "zero-3"])
def test_baselines_store_frozen_weights_as_they_store_weights(kind: str) -> None:
    graph = adapters(2, 64)
    frozen, trained = 2 * 2 * 64**2, sum(graph.tensors[p.tensor].elements for p in graph.parameters)
    (stage,) = ax.baseline(graph, "1x4:v100", kind, num_microbatches=2, num_layers=1).stages
    expected = {
        "data-parallel": frozen + 16 * trained,
        "zero-1": frozen + (4 + 12 / 4) * trained,
        "zero-3": (frozen + 16 * trained) / 4,
    }
    assert stage.weight_bytes == expected[kind]
    gathered = {line.split(":")[0] for o in stage.operators for line in o.communication if "all-gather" in line}
    assert any("frozen" in name for name in gathered) == (kind == "zero-3")


class Mixed(nn.Module):
    """Linear layers in turn frozen and trained, scaled by a buffer or by a constant of the code, in one dtype."""

    def __init__(self, seed: int, dtype: torch.dtype) -> None:
        super().__init__()
        draw = random.Random(seed)
        sizes = [8 * draw.randint(1, 4) for _ in range(5)]
        self.layers = nn.ModuleList(nn.Linear(a, b, dtype=dtype) for a, b in pairwise(sizes))
        for number, layer in enumerate(self.layers):
            layer.requires_grad_(number == 3 or draw.random() < 0.5)
            self.register_buffer(f"scale_{number}", torch.rand(sizes[number + 1], 4).to(dtype))
        self.given, self.width = [draw.choice(("buffer", "constant", "")) for _ in self.layers], sizes[0]
        self.constants = [torch.rand(16, b).to(dtype) for b in sizes[1:]]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for number, layer in enumerate(self.layers):
            x = torch.tanh(layer(x))
            if self.given[number] == "buffer":
                x = x + (x @ getattr(self, f"scale_{number}")).sum(1, keepdim=True)
            elif self.given[number] == "constant":
                x = x * self.constants[number]
        return x.square().sum().abs()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.complex64], ids=str)
@pytest.mark.parametrize("seed", range(3))
def test_the_weights_of_a_plan_are_what_its_program_keeps(seed: int, dtype: torch.dtype) -> None:
    module = Mixed(seed, dtype)
    graph = capture(module, (torch.rand(16, module.width).to(dtype),))
    plan = planned(graph, "1x1:v100", num_layers=1)
    (rank,) = live_bytes(lower(plan)).values()
    assert plan.stages[0].weight_bytes == rank.lasting_bytes + rank.optimizer_bytes
    kept = sum(t.bytes for t in graph.tensors if t.kind in GIVEN_KINDS and t.index in graph.readers)
    trained = sum(graph.tensors[p.tensor].bytes for p in graph.parameters)
    moments = {torch.bfloat16: 6}.get(dtype, 2)  # beside it a master copy; all of 4 bytes
    assert plan.stages[0].weight_bytes == kept + (2 + moments) * trained


class Reshaped(nn.Module):
    """Reads a view of what its first layer makes."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(8, 8), nn.Linear(16, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(torch.relu(self.first(x)).view(-1, 16)).square().sum()


def test_a_stage_holds_the_view_that_it_receives_for_its_backward_pass() -> None:
    graph = capture(Reshaped(), (torch.randn(8, 8),))
    cut = next(o.index for o in graph.forward_operators if "view" in o.kind) + 1
    stage_of = slice_stages(assign_layers(graph, manual_layers(graph, [cut, cut + 2]).layer_of_forward))
    whole, part = stage_of(1, 2), stage_of(1, 2, (1, 1))
    assert set(part.operators) < set(whole.operators)
    for stage in (whole, part):
        assert stage.holdings()[graph.operators[cut - 1].outputs[0]] is Holding.EACH_MICROBATCH


def test_an_input_that_only_the_forward_pass_reads_takes_memory() -> None:
    with torch.device("meta"):
        frozen = nn.Linear(4096, 8).requires_grad_(False)
        graph = capture(nn.Sequential(frozen, nn.Linear(8, 8)), (torch.empty(512, 4096),), loss=lambda y: y.sum())
    (stage,) = planned(graph, "1x1:v100", num_layers=1).stages
    assert stage.activation_bytes >= 4 * 512 * 4096
