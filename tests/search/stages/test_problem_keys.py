"""Keys of problems: equal figures give equal keys, whatever their names; other figures give others."""

from dataclasses import replace

import pytest

from alpa_explore.cluster import Cluster, logical_meshes, submeshes
from alpa_explore.search.stages.stage_problems import price_key

CLUSTER = Cluster.parse("1x4:v100")
MESH = logical_meshes(CLUSTER, submeshes(CLUSTER)[-1])[0]


def key(device=CLUSTER.device, mesh=MESH, solver="auto"):
    return price_key(mesh, device, solver)


def test_the_name_and_the_source_of_a_device_are_no_part_of_the_key():
    """Fault of 0.1.0: equal devices of another name were solved again."""
    renamed = replace(CLUSTER.device, name="mine", source="measured")
    turned = replace(CLUSTER.device, peak_flops=dict(reversed(CLUSTER.device.peak_flops.items())))
    assert key(renamed) == key(turned) == key()


@pytest.mark.parametrize(
    "changes", [{"matmul_efficiency": 0.5}, {"launch_seconds": 1e-5}, {"peak_flops": {"float32": 1e13}}]
)
def test_every_figure_of_a_device_but_its_memory_is_part_of_the_key(changes):
    assert key(replace(CLUSTER.device, **changes)) != key() == key(replace(CLUSTER.device, memory_bytes=2**30))


def test_of_memory_what_the_software_loses_is_part_of_the_key():
    loses = replace(CLUSTER.device, software=replace(CLUSTER.device.software, fragmentation=0.1))
    assert key(loses) != key(replace(loses, memory_bytes=2**30))


def test_mesh_and_solver_are_part_of_the_key():
    other = logical_meshes(CLUSTER, submeshes(CLUSTER)[0])[0]
    assert len({key(), key(mesh=other), key(solver="highs")}) == 3
