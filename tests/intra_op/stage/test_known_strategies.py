"""The choices that people make by hand come out by themselves: data parallel, Megatron's column-then-row, ZeRO."""

import pytest
import torch
from torch import nn

import alpa_explore as ax
from alpa_explore.cluster import Cluster, logical_meshes, submeshes
from alpa_explore.cost.model import CostModel
from alpa_explore.intra_op.solve import solve
from alpa_explore.intra_op.stage.build_problem import build_stage_problem
from alpa_explore.intra_op.stage.layered_graph import assign_layers
from alpa_explore.intra_op.stage.stage_graph import slice_stages
from alpa_explore.intra_op.stage.stage_problem import NodeKind
from alpa_explore.layering import cluster_operators
from alpa_explore.plans.describe import describe_stage


class Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.qkv, self.out = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width, bias=False)

    def forward(self, x):
        batch, length, width = x.shape
        q, k, v = self.qkv(x).view(batch, length, self.heads, -1).transpose(1, 2).chunk(3, dim=-1)
        scores = (q @ k.transpose(-1, -2) / (width // self.heads) ** 0.5).softmax(-1)
        return self.out((scores @ v).transpose(1, 2).reshape(batch, length, width))


def mlp(width):
    with torch.device("meta"):  # its 2 GiB of random weights would take most of a test
        return nn.Sequential(
            nn.Linear(width, 4 * width, bias=False), nn.ReLU(), nn.Linear(4 * width, width, bias=False)
        )


def best(model, x, memory_price=0.0):
    """(products of the forward pass, bytes of a device for weights and optimizer, all lines about communication)."""
    graph = ax.capture(model, (x,), loss=lambda y: y.square().mean(), precision="float16")
    layered = assign_layers(graph, cluster_operators(graph, 1).layer_of_forward)
    cluster = Cluster.parse("1x4:v100")
    mesh = next(m for s in submeshes(cluster) for m in logical_meshes(cluster, s) if m.squeezed().shape == (4,))
    problem = build_stage_problem(slice_stages(layered)(0, 0), CostModel(cluster.device, mesh.squeezed()))
    solution = solve(problem.at(inverse_b=1.0, memory_price=memory_price, microbatches_held=1))
    operators = describe_stage(problem, solution.choices)
    products = [o for o in operators if o.phase == "forward" and o.op in ("aten.mm.default", "aten.bmm.default")]
    kept = {
        kind: [n.weight_bytes[k] for n, k in zip(problem.nodes, solution.choices, strict=True) if n.kind is kind]
        for kind in (NodeKind.WEIGHT, NodeKind.UPDATE)
    }
    whole = {
        kind: [n.weight_bytes.max() for n in problem.nodes if n.kind is kind]
        for kind in (NodeKind.WEIGHT, NodeKind.UPDATE)
    }
    shares = {kind: sum(kept[kind]) / sum(whole[kind]) for kind in kept}
    return products, shares, [line for o in operators for line in o.communication]


def test_a_large_batch_is_divided_and_the_optimizer_with_it():
    products, shares, _ = best(mlp(512), torch.empty(65536, 512, device="meta"))
    assert [(o.strategy, o.inputs[1]) for o in products] == [("m", "RR")] * 2
    assert shares[NodeKind.WEIGHT] == 1.0, "the weights stay whole"
    assert shares[NodeKind.UPDATE] == pytest.approx(0.25), "ZeRO-1: each device updates its quarter"


@pytest.mark.slow
def test_large_weights_are_divided_by_columns_then_by_rows():
    products, shares, communication = best(mlp(8192), torch.empty(64, 8192, device="meta"))
    assert [o.strategy for o in products] == ["n", "k"]
    assert products[0].output == products[1].inputs[0] == "RS0", "nothing moves between the two"
    assert products[1].output == "RR+P0"
    assert shares == {NodeKind.WEIGHT: pytest.approx(0.25), NodeKind.UPDATE: pytest.approx(0.25)}
    moved = {line.split(":")[0] for line in communication}
    assert not any("weight" in name for name in moved), "no weight and no gradient is ever moved"


def test_where_memory_is_expensive_weights_are_stored_in_pieces_and_gathered_when_needed():
    products, shares, communication = best(mlp(512), torch.empty(65536, 512, device="meta"), memory_price=1e-9)
    assert [(o.strategy, o.inputs[1]) for o in products] == [("m", "RR")] * 2, "the work is still divided by the batch"
    assert shares == {NodeKind.WEIGHT: pytest.approx(0.25), NodeKind.UPDATE: pytest.approx(0.25)}, "ZeRO-3"
    assert any("weight: S0R → RR, all-gather" in line for line in communication)
    assert any("reduce-scatter" in line for line in communication), "gradients are summed into their pieces"


@pytest.mark.slow
def test_attention_divides_the_batch_where_it_is_large_and_heads_where_weights_are():
    products, _, _ = best(Attention(256, 8), torch.empty(256, 64, 256, device="meta"))
    assert all(o.output.startswith("S0") for o in products), "the batch, in every product"
    products, shares, communication = best(Attention(8192, 8), torch.empty(1, 64, 8192, device="meta"))
    first, *inside, last = products
    assert (first.strategy, last.strategy) == ("n", "k")
    assert last.output == "RR+P0", "one sum at the end"
    assert all("S0" in o.output and "+P" not in o.output for o in inside), "whole heads"
    assert shares[NodeKind.WEIGHT] == pytest.approx(0.25)
    assert not any(line.split(":")[0].endswith("weight") for line in communication)
