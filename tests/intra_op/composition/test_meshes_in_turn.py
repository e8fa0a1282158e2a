"""Meshes solved one after another in one process give the same as each alone: no cache leaks between them."""

import subprocess
import sys

import pytest

SCRIPT = """
import sys
import torch
import alpa_explore as ax
from alpa_explore.cluster import Cluster, logical_meshes, submeshes
from alpa_explore.cost.model import CostModel
from alpa_explore.intra_op.stage.layered_graph import assign_layers
from alpa_explore.intra_op.solve import solve
from alpa_explore.intra_op.stage.stage_graph import slice_stages
from alpa_explore.intra_op.stage.build_problem import build_stage_problem
from alpa_explore.layering import cluster_operators
from alpa_explore.models.catalog import build

model, inputs = build("gpt-tiny", 8)
graph = ax.capture(model, inputs, name="gpt-tiny")
layered = assign_layers(graph, cluster_operators(graph, 1).layer_of_forward)
cluster = Cluster.parse("2x4:a100")
for name in sys.argv[1:]:
    shape = tuple(map(int, name.split("x")))
    mesh = next(m for s in submeshes(cluster) for m in logical_meshes(cluster, s) if tuple(m.shape) == shape)
    problem = build_stage_problem(slice_stages(layered)(0, 0), CostModel(cluster.device, mesh.squeezed()))
    solution = solve(problem.at(inverse_b=0.25, memory_price=0.0, microbatches_held=1))
    print(name, solution.objective.hex(), problem.totals(solution.choices))
"""


def run(*meshes):
    done = subprocess.run([sys.executable, "-c", SCRIPT, *meshes], capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


@pytest.mark.sweep(kept=0)
@pytest.mark.slow
def test_the_order_of_meshes_does_not_matter():
    alone = [line for mesh in ("2x4", "1x4") for line in run(mesh)]
    assert len(set(alone)) == 2
    assert run("2x4", "1x4") == alone
    assert run("1x4", "2x4") == alone[::-1]
