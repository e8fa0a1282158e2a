"""Pairs that are computed when they are asked for cost the same as those that are kept."""

import numpy as np
import pytest

from alpa_explore.cluster import Cluster, Submesh, logical_mesh
from alpa_explore.cost.model import CostModel
from alpa_explore.intra_op.solve import solve
from alpa_explore.intra_op.stage import tuning
from alpa_explore.intra_op.stage.build_problem import build_stage_problem
from alpa_explore.intra_op.stage.layered_graph import assign_layers
from alpa_explore.intra_op.stage.stage_graph import slice_stages
from alpa_explore.layering import cluster_operators
from tests.programs.cases import captured

CLUSTERS = {
    "paper": Cluster.parse("2x2:h100"),
    "software": Cluster.parse("2x2:h100", software="megatron"),
    "user": Cluster.parse("2x2:v100", collective_overlap=0.5, gradient_overlap=0.7),
}


@pytest.mark.parametrize("name", CLUSTERS)
def test_an_edge_of_many_pairs_costs_what_one_of_few_does(name, monkeypatch) -> None:
    graph, cluster = captured("mlp-tiny", 4, 0, ())[0], CLUSTERS[name]
    layered = assign_layers(graph, cluster_operators(graph, 2, delta=1.0).layer_of_forward, software=cluster.software)
    stage, mesh = slice_stages(layered)(0, 1), logical_mesh(cluster, Submesh(2, 2), (2, 2)).squeezed()
    few = build_stage_problem(stage, CostModel(cluster.device, mesh))
    monkeypatch.setattr(tuning, "MOST_PAIRS_KEPT", 0)
    many = build_stage_problem(stage, CostModel(cluster.device, mesh))
    assert all(e.exposed.kept is None for e in many.edges)
    launches = [e.launches is not None for e in few.edges if not e.each_iteration and not e.stored]
    assert all(launches) if mesh.call_seconds else not any(launches)
    for one, other in zip(few.edges, many.edges, strict=True):
        rows, columns = np.arange(0, one.exposed.shape[0], 2), np.arange(0, one.exposed.shape[1], 3)
        np.testing.assert_array_equal(other.seconds, one.seconds)
        np.testing.assert_array_equal(other.exposed.between(rows, columns), one.seconds[np.ix_(rows, columns)])
        assert other.exposed.at(0, 0) == one.seconds[0, 0]
        np.testing.assert_array_equal(other.unhidden.whole, one.unhidden.whole)
        if one.launches is not None:
            np.testing.assert_array_equal(other.launches.whole, one.launches.whole)
    prices = {"inverse_b": 0.5, "memory_price": 0.0, "microbatches_held": 1}
    choices = solve(few.at(**prices)).choices
    assert many.totals(choices) == few.totals(choices)


def test_a_problem_of_some_strategies_has_their_costs() -> None:
    graph, cluster = captured("mlp-tiny", 4, 0, ())[0], CLUSTERS["paper"]
    layered = assign_layers(graph, cluster_operators(graph, 2, delta=1.0).layer_of_forward)
    mesh = logical_mesh(cluster, Submesh(2, 2), (2, 2)).squeezed()
    problem = build_stage_problem(slice_stages(layered)(0, 1), CostModel(cluster.device, mesh))
    kept = [np.arange(v % 2, len(n.microbatch_seconds), 2) for v, n in enumerate(problem.nodes)]
    kept = [k if len(k) else np.array([0]) for k in kept]
    prices = {"inverse_b": 0.5, "memory_price": 1e-9, "microbatches_held": 2}
    whole, some = problem.at(**prices), problem.at(**prices, kept=kept)
    draw = np.random.default_rng(0)
    for _ in range(20):
        of_kept = tuple(int(draw.integers(len(k))) for k in kept)
        assert some.evaluate(of_kept) == whole.evaluate(tuple(int(k[c]) for k, c in zip(kept, of_kept, strict=True)))
