"""Tasks on one mesh share its block subproblems."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from alpa_explore.cluster import Cluster, logical_meshes, submeshes
from alpa_explore.intra_op.composition import cut_blocks
from alpa_explore.intra_op.stage.layered_graph import assign_layers
from alpa_explore.pricing.mesh_tasks import MeshTask, compose_mesh, fastest_on_mesh
from tests.programs.cases import Case

CLUSTER = Cluster.parse("2x2:v100")


def layered_anew():
    """A graph that shares nothing with another: what tasks share is kept by the identity of the graph."""
    case = Case("gpt of 2", num_layers=3)
    return assign_layers(case.graph, case.layer_of_forward)


@pytest.fixture
def layered():
    return layered_anew()


@pytest.fixture
def task():
    whole = max(submeshes(CLUSTER), key=lambda submesh: submesh.devices)
    mesh = max(logical_meshes(CLUSTER, whole), key=lambda mesh: len(mesh.squeezed().shape))
    ranges = tuple(((first, last), 4) for first in range(3) for last in range(first, 3))
    return MeshTask(ranges=ranges, least_held=1, mesh=mesh, device=CLUSTER.device, inverse_b=1 / 8)


@pytest.mark.slow
def test_the_second_task_on_a_mesh_builds_no_block(layered, task, monkeypatch) -> None:
    builds = []
    build = cut_blocks.build_stage_problem
    monkeypatch.setattr(cut_blocks, "build_stage_problem", lambda *given: builds.append(given) or build(*given))
    alone = fastest_on_mesh(layered, task)
    assert builds
    assert alone
    builds.clear()
    composed = compose_mesh(layered, task)
    assert not builds
    assert fastest_on_mesh(layered, task) == alone
    assert compose_mesh(layered_anew(), task) == composed


@pytest.mark.slow
def test_tasks_that_run_together_on_a_mesh_find_what_they_find_alone(layered, task) -> None:
    with ThreadPoolExecutor(3) as pool:
        together = list(pool.map(lambda _: compose_mesh(layered, task), range(3)))
    assert together == [compose_mesh(layered_anew(), task)] * 3
