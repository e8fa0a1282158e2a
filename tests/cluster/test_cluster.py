"""Clusters, submeshes, logical meshes and placement."""

import itertools
import math

import pytest

from alpa_explore.cluster import Cluster, Software, Submesh, logical_mesh, logical_meshes, preset_names, submeshes
from alpa_explore.cluster.group import device_group, straggler_factor
from alpa_explore.errors import ClusterError


@pytest.mark.parametrize("name", preset_names())
def test_every_preset_makes_a_cluster_with_sane_figures(name):
    cluster = Cluster.parse(f"2x4:{name}")
    device = cluster.device
    assert cluster.devices == 8
    assert 0 < device.matmul_efficiency <= 1
    assert 0 < device.memory_efficiency <= 1
    assert device.memory_bytes > 2**30
    assert device.source
    assert cluster.inside_node.source
    assert cluster.between_nodes.source
    assert device.peak("float16") > 1e9
    assert device.peak("int64") == device.peak("float32")


@pytest.mark.parametrize("per_node", [1, 4, 8])
def test_groups_side_by_side_share_the_network_of_the_nodes_that_they_span(per_node):
    soft = Software(network_share=0.8, network_decline=0.5, straggler_share=0.1, shared_node_share=0.2)
    cluster = Cluster.parse(f"4x{per_node}:h100", software=soft)
    for ranks, stride in itertools.product((1, 2, 4, 8, 16, 32), repeat=2):
        if ranks * stride > cluster.devices:
            continue
        # The groups of a mesh: device d of each stride is in the group of d % stride.
        groups = [{start + r * stride for r in range(ranks)} for start in range(stride)]
        nodes = {d // per_node for d in groups[0]}
        sharing = sum(0 in {d // per_node for d in group} for group in groups)
        found = device_group(cluster, ranks, stride)
        assert (found.ranks, found.nodes) == (ranks, len(nodes))
        if len(nodes) > 1:
            link = cluster.between_nodes.bandwidth * 0.8 / max(len(nodes) / 2, 1) ** 0.5
            assert found.network_bandwidth == pytest.approx(link / sharing)
        factor = straggler_factor(cluster, devices=cluster.devices, stage_devices=2 * per_node, tensor=ranks)
        assert factor == pytest.approx(1 + 0.1 * math.log2(4) + 0.2 * (2 * ranks <= per_node))


@pytest.mark.parametrize(
    ("name", "bf16_teraflops", "fp8_teraflops", "gigabytes", "terabytes_a_second"),
    [  # as the makers' data sheets print them, dense
        ("b200", 2250, 4500, 192.27, 8.0),
        ("gb300", 2500, 5000, 298.01, 8.0),
        ("h800", 989, 1979, 85.9, 3.35),
        ("h20", 148, 296, 102.63, 4.0),
        ("mi300x", 1307.4, 2614.9, 192, 5.3),
        ("mi325x", 1307.4, 2614.9, 256, 6.0),
        ("mi355x", 2516.6, 5033.2, 288, 8.0),
        ("l40s", 362.05, 733, 48, 0.864),
        ("rtx-4090", 165.2, 330.3, 25.8, 1.008),
    ],
)
def test_presets_have_the_peaks_of_the_data_sheets(name, bf16_teraflops, fp8_teraflops, gigabytes, terabytes_a_second):
    device = Cluster.parse(f"1x8:{name}").device
    assert device.peak("bfloat16") == bf16_teraflops * 1e12
    assert device.peak("float8_e4m3fn") == fp8_teraflops * 1e12
    assert device.memory_bytes / 1e9 == pytest.approx(gigabytes, rel=2e-3)
    assert device.memory_bandwidth == pytest.approx(terabytes_a_second * 1e12)


@pytest.mark.parametrize("name", ["v100", "h100", "rtx-4090"])
def test_complex_numbers_are_computed_at_the_rate_of_their_parts(name):
    device = Cluster.parse(f"1x1:{name}").device
    assert device.peak("complex64") == device.peak("float32")
    assert device.peak("complex128") == device.peak("float64") != device.peak("float32")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        *((text, "2x8:a100") for text in ("4:v100", "1x4", "1x4:", "ax4:v100", "", "1x-4:v100")),
        ("1x0:v100", "1 device or more"),
        ("0x4:v100", "1 node or more"),
    ],
)
def test_a_cluster_text_that_cannot_be_is_an_error_that_says_what_can(text, words):
    with pytest.raises(ClusterError, match=words):
        Cluster.parse(text)


def test_a_cluster_too_large_to_plan_for_is_an_error():
    assert Cluster.parse("2048x8:v100").devices == 2**14
    with pytest.raises(ClusterError, match="799,992 devices"):
        Cluster.parse("99999x8:v100")


def test_changes_apply_to_cluster_and_device():
    cluster = Cluster.parse("1x4:v100", nodes=2, memory_bytes=5)
    assert cluster.nodes == 2
    assert cluster.device.memory_bytes == 5


def test_submeshes_are_powers_of_two_in_a_node_and_whole_nodes():
    assert submeshes(Cluster.parse("3x4:v100")) == (
        Submesh(1, 1),
        Submesh(1, 2),
        Submesh(1, 4),
        Submesh(2, 4),
        Submesh(3, 4),
    )
    assert submeshes(Cluster.parse("1x1:v100")) == (Submesh(1, 1),)


def test_logical_meshes_inside_a_node_omit_transposed_ones():
    cluster = Cluster.parse("1x8:v100")
    assert [m.shape for m in logical_meshes(cluster, Submesh(1, 8))] == [(1, 8), (2, 4)]
    assert [m.shape for m in logical_meshes(cluster, Submesh(1, 1))] == [(1, 1)]


def test_a_ring_across_nodes_shares_the_network_with_the_other_rings_of_its_node():
    cluster = Cluster.parse("2x8:v100")
    network, nvlink = cluster.between_nodes.bandwidth, cluster.inside_node.bandwidth
    natural = logical_mesh(cluster, Submesh(2, 8), (2, 8))
    assert natural.bandwidth == (network / 8, nvlink)
    one_ring = logical_mesh(cluster, Submesh(2, 8), (1, 16)).squeezed()
    assert one_ring.shape == (16,)
    assert one_ring.bandwidth == (network,)
    assert logical_mesh(cluster, Submesh(2, 8), (4, 4)).bandwidth == (network / 4, nvlink)
