"""What was found within memory at a larger B bounds a smaller one, and is found for the same problem alone."""

import pytest

import alpa_explore as ax
from alpa_explore.cluster import logical_meshes, submeshes
from alpa_explore.intra_op.stage.layered_graph import assign_layers
from alpa_explore.layering import cluster_operators
from alpa_explore.planner.microbatch_graph import microbatch_graph
from alpa_explore.pricing import cache_entries
from alpa_explore.pricing.mesh_tasks import MemoryTask, bound_within_memory, compose_mesh, compose_within_memory
from alpa_explore.search.eager.known_within_memory import KnownWithinMemory
from alpa_explore.store.cache import SolveCache
from tests.search.eager.test_known_meshes import LAYERS, _task

CLUSTER, LARGER, SMALLER = "1x4:v100", 64, 16
COUNTS = (1, 2, 3, 4)


@pytest.fixture(scope="module")
def layered():
    graph = microbatch_graph("gpt-tiny", 8)
    return assign_layers(graph, cluster_operators(graph, LAYERS, delta=2.0).layer_of_forward)


def _within(mesh, device, b):
    return MemoryTask(range=(0, LAYERS - 1), counts=COUNTS, mesh=mesh, device=device, inverse_b=1 / b)


@pytest.mark.slow
def test_a_bound_at_a_larger_b_is_below_every_choice_that_fits_at_a_smaller_one(layered):
    cluster = ax.Cluster.parse(CLUSTER, memory_bytes=1_700_000)
    compared = 0
    for mesh in {m.squeezed() for s in submeshes(cluster, "power_of_two") for m in logical_meshes(cluster, s)}:
        whole = (0, LAYERS - 1)
        points = list(compose_mesh(layered, _task(mesh, cluster.device, 1 / SMALLER))[whole].points)
        points += compose_within_memory(layered, _within(mesh, cluster.device, SMALLER))[whole].points
        for search in (bound_within_memory, compose_within_memory):
            for held, bound in search(layered, _within(mesh, cluster.device, LARGER))[whole].bounds_within:
                fitting = [p for p in points if p.totals.peak_bytes(held) <= cluster.device.memory_bytes]
                compared += len(fitting)
                assert all(bound <= p.totals.latency_at(1 / SMALLER) * (1 + 1e-9) for p in fitting)
    assert compared > 20


def test_the_nearest_larger_b_is_found_and_no_smaller_one(layered, tmp_path):
    cluster = ax.Cluster.parse(CLUSTER, memory_bytes=1_700_000)
    device, (mesh,) = cluster.device, logical_meshes(cluster, submeshes(cluster, "power_of_two")[0])
    store = SolveCache(tmp_path)
    known = KnownWithinMemory(store)
    of_b = {b: bound_within_memory(layered, _within(mesh.squeezed(), device, b)) for b in (16, 64, 256)}
    for b, found in of_b.items():
        store.put(f"of {b}", cache_entries.dump(found))
        known.add("problem", _within(mesh.squeezed(), device, b), f"of {b}")
    memory = device.memory_bytes
    for asked, nearest in ((300, None), (256, 256), (100, 256), (64, 64), (20, 64), (2, 16)):
        expected = [] if nearest is None else list(of_b[nearest].values())
        assert known.find("problem", memory, 1 / asked) == expected
    assert known.find("another problem", memory, 1 / 64) == []
    assert known.find("problem", memory + 1, 1 / 64) == []
    assert KnownWithinMemory(None).find("problem", memory, 1 / 64) == []
