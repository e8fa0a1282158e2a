"""Tables: operators that compute from numbers and vectors alone have one strategy, and nothing else has."""

import pytest
import torch
from torch import nn

from alpa_explore.cluster import Cluster, Submesh, logical_mesh
from alpa_explore.cost.model import CostModel
from alpa_explore.intra_op.composition.chain import chain_of
from alpa_explore.intra_op.stage import tuning
from alpa_explore.intra_op.stage.build_problem import build_stage_problem
from alpa_explore.intra_op.stage.layered_graph import LayeredGraph, assign_layers
from alpa_explore.intra_op.stage.stage_graph import slice_stages
from alpa_explore.intra_op.stage.stage_problem import NodeKind
from alpa_explore.layering import cluster_operators, manual_layers
from alpa_explore.planner.microbatch_graph import microbatch_graph
from alpa_explore.sharding.spec_constraint import constraints_of
from alpa_explore.sharding.zigzag import in_zigzag_order
from alpa_explore.tracing.capture import capture


class Angles(nn.Module):
    """Cosines of positions times a vector, noise, a frozen matrix, and zeros for every token."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(16, 16), nn.Linear(16, 16)
        self.register_buffer("rates", torch.ones(16))
        self.register_buffer("frozen", torch.ones(16, 16))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        angles = torch.arange(32, device=x.device)[:, None] * self.rates
        table = angles.cos()
        x = (
            self.first(x) * table
            + torch.zeros(32, 16, device=x.device)
            + torch.rand(32, device=x.device).sin()[:, None]
        )
        return (self.second(x) * table.sin() @ self.frozen.tanh()).square().sum()


def layered(constraints: dict[str, object] | None = None) -> LayeredGraph:
    with torch.device("meta"):
        graph = capture(Angles(), (torch.empty(32, 16),))
    return assign_layers(graph, manual_layers(graph, ["second"]).layer_of_forward, None, constraints_of(constraints))


def kinds(graph: LayeredGraph) -> set[str]:
    return {graph.graph.operators[o].kind.split(".")[1] for o in graph.tables}


def test_only_what_is_computed_from_numbers_and_vectors_is_a_table() -> None:
    found = kinds(layered())
    assert {"arange", "cos", "mul", "sin"} <= found
    assert found.isdisjoint({"rand", "tanh", "zeros", "addmm", "mm"})
    graph = layered()
    sines = [o for o in graph.graph.operators if o.kind == "aten.sin.default" and o.index in graph.tables]
    assert len(sines) == 1, "the sine of the noise is no table"


def test_a_table_is_whole_on_every_device_in_every_stage_that_computes_it() -> None:
    graph = layered()
    cluster = Cluster.parse("1x4:v100")
    model = CostModel(cluster.device, logical_mesh(cluster, Submesh(1, 4), (2, 2)).squeezed())
    problem = build_stage_problem(slice_stages(graph)(0, 1), model)
    for node in problem.nodes:
        if node.kind is NodeKind.OPERATOR and node.subject in graph.tables:
            assert node.priced is not None
            assert [set(s.factors) for s in node.priced.strategies] == [{"-"}]
            assert len(node.microbatch_seconds) == 1


@pytest.mark.slow
def test_tables_in_zigzag_order_break_no_chain() -> None:
    graph = in_zigzag_order(microbatch_graph("llama-tiny", 4), 4)
    ordered = assign_layers(graph, cluster_operators(graph, 2, delta=1.0).layer_of_forward)
    assert [graph.tensors[graph.operators[o].inputs[0]].name for o in sorted(ordered.tables)] == ["cosines", "sines"]
    assert not chain_of(ordered).breaks


def test_large_tensors_are_computed_in_shards(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuning, "LARGEST_TABLE_BYTES", 32 * 16 * 4 - 1)
    assert "cos" not in kinds(layered())


def test_a_table_for_which_the_user_names_a_spec_is_none_nor_is_what_is_computed_from_it() -> None:
    assert kinds(layered({"cos": "S0R"})).isdisjoint({"cos", "sin"})
    assert "arange" in kinds(layered({"cos": "S0R"}))
