"""Topologies of several levels: their links against a count of the rings that pass each of them."""

import json
import math
from itertools import pairwise
from pathlib import Path

import pytest

from alpa_explore.cluster import Cluster, Submesh, logical_mesh, logical_meshes, submeshes
from alpa_explore.cluster.device import Link
from alpa_explore.cluster.group import device_group
from alpa_explore.cluster.levels import Level
from alpa_explore.cost.group_collectives import group_seconds
from alpa_explore.errors import ClusterError
from alpa_explore.sharding.reshard import StepKind

PODS = """device = "h100"
[[levels]]
name = "node"
of = {node}
[[levels]]
name = "pod"
of = {pod}
[[levels]]
name = "spine"
of = {pods}
oversubscription = 4
"""


def pods(tmp_path: Path, node: int = 8, pod: int = 4, pods: int = 2, text: str = PODS) -> Cluster:
    path = tmp_path / "pods.toml"
    path.write_text(text.format(node=node, pod=pod, pods=pods))
    return Cluster.parse(str(path))


def test_a_file_gives_the_levels_and_what_a_pod_can_send(tmp_path):
    cluster = pods(tmp_path)
    assert (cluster.nodes, cluster.devices_per_node, cluster.devices) == (8, 8, 64)
    nic = cluster.between_nodes.bandwidth
    assert [(t.name, t.devices, t.link.bandwidth) for t in cluster.tiers] == [
        ("node", 8, cluster.inside_node.bandwidth),
        ("pod", 32, nic),
        ("spine", 64, 4 * nic / 4),
    ]


def test_a_link_of_a_pod_can_be_given(tmp_path):
    cluster = pods(tmp_path, text=PODS + "bandwidth = 1e11\nlatency_seconds = 3e-5\n")
    assert cluster.tiers[2].link.bandwidth == 1e11 / 4
    assert cluster.tiers[2].link.latency_seconds == 3e-5


def test_two_racks_of_trays_are_two_nodes_of_72():
    cluster = Cluster.parse("2x72:gb200")
    assert [(level.name, level.of) for level in cluster.levels] == [("tray", 4), ("rack", 18), ("cluster", 2)]
    assert [tier.devices for tier in cluster.tiers] == [72, 144]
    assert cluster.devices_per_host == 4
    assert cluster.between_nodes.bandwidth == 72 * 50e9
    assert Cluster.parse("2x72:gb200", nodes=4).levels[-1].of == 4
    assert Cluster.parse("4x8:h100").devices_per_host == 8


@pytest.mark.parametrize(
    ("levels", "message"),
    [
        ((Level(name="node", of=8), Level(name="pod", of=3)), "do not multiply.*8 × 3 = 24, and 4 × 8 = 32"),
        ((Level(name="a", of=16), Level(name="b", of=2)), "No level of the topology is a node"),
    ],
)
def test_levels_that_do_not_multiply_are_refused_with_the_reason(levels, message):
    cluster = Cluster.parse("4x8:h100")
    with pytest.raises(ClusterError, match=message):
        cluster.with_changes(levels=levels)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"nodes": 4, "devices_per_node": 8}, "do not multiply"),
        ({"levels": []}, "levels"),
        ({"levels": [{"name": "node", "of": 0}]}, r"levels\[0\].of"),
        ({"levels": [{"of": 8}, {"of": 2, "bandwidth": 1e9}]}, "between_nodes"),
        ({"levels": [{"of": 8}, {"of": 2}, {"of": 2, "inside": True}]}, "Only the first levels"),
        ({"levels": [{"of": 8}, {"of": 2, "oversubscription": 0.5}]}, "1 or more"),
        ({"levels": [{"of": 8}, {"of": 2, "speed": 3}]}, "unknown key"),
    ],
)
def test_a_file_with_faulty_levels_is_refused(change, message, tmp_path):
    body = {"device": "h100", "levels": [{"name": "node", "of": 8}, {"name": "pod", "of": 2}]}
    path = tmp_path / "c.json"
    path.write_text(json.dumps(body | change))
    with pytest.raises(ClusterError, match=message):
        Cluster.parse(str(path))


def unit_of(device: int, size: int) -> int:
    return device // size


@pytest.mark.parametrize(("node", "pod", "count"), [(8, 4, 2), (4, 2, 4), (6, 4, 2), (8, 6, 2)])
def test_rings_share_the_link_of_every_unit_that_they_leave(node, pod, count, tmp_path):
    cluster = pods(tmp_path, node, pod, count)
    tiers = cluster.tiers
    for submesh in submeshes(cluster):
        for mesh in logical_meshes(cluster, submesh):
            for axis, size in enumerate(mesh.shape):
                stride = math.prod(mesh.shape[axis + 1 :])
                groups = [
                    [block * size * stride + i * stride + j for i in range(size)]
                    for block in range(submesh.devices // (size * stride))
                    for j in range(stride)
                ]
                if size == 1:
                    continue
                neighbours = any(unit_of(a, node) == unit_of(b, node) for g in groups for a, b in pairwise(g))
                rates = [tiers[0].link.bandwidth] if neighbours else []
                latency = tiers[0].link.latency_seconds
                for inner, tier in pairwise(tiers):
                    leaving = {}
                    for number, group in enumerate(groups):
                        units = {unit_of(d, inner.devices) for d in group}
                        for unit in units if len(units) > 1 else ():
                            leaving.setdefault(unit, set()).add(number)
                    if leaving:
                        rates.append(tier.link.bandwidth / max(map(len, leaving.values())))
                        latency = tier.link.latency_seconds
                assert mesh.bandwidth[axis] == pytest.approx(min(rates)), (submesh, mesh.shape, axis)
                assert mesh.latency_seconds[axis] == latency
                spanned = [max(len({unit_of(d, tier.devices) for d in g}) for g in groups) for tier in tiers[:-1]]
                group = mesh.groups[axis]
                assert (group.nodes, *(s.units for s in group.outer)) == (
                    spanned[0],
                    *(n for n in spanned[1:] if n > 1),
                )


def test_submeshes_are_pieces_of_a_node_of_a_pod_or_whole_pods(tmp_path):
    assert [s.devices for s in submeshes(pods(tmp_path, 8, 6, 3))] == [1, 2, 4, 8, 16, 24, 48, 96, 144]


def test_a_spine_that_is_not_oversubscribed_costs_only_its_latency(tmp_path):
    flat = Cluster.parse("8x8:h100")
    levels = (Level(name="node", of=8), Level(name="pod", of=4), Level(name="spine", of=2))
    full = flat.with_changes(levels=levels)
    narrow = flat.with_changes(levels=(*levels[:2], Level(name="spine", of=2, oversubscription=4)))
    for shape in ((8, 8), (1, 64), (2, 32)):
        submesh = Submesh(8, 8)
        assert logical_mesh(full, submesh, shape).bandwidth == logical_mesh(flat, submesh, shape).bandwidth
    large, latency_share = 1e9, 0.05
    for kind in (StepKind.ALL_GATHER, StepKind.ALL_REDUCE, StepKind.ALL_TO_ALL):
        one, two, four = (group_seconds(kind, large, device_group(c, 64, 1)) for c in (flat, full, narrow))
        assert two == pytest.approx(one, rel=latency_share)
        assert four >= two
    inside_a_pod = [device_group(c, 32, 1) for c in (flat, full, narrow)]
    assert inside_a_pod[0] == inside_a_pod[1] == inside_a_pod[2]


def test_a_narrow_spine_bounds_a_collective_by_its_bandwidth():
    slow = Link(bandwidth=1e9, latency_seconds=0.0)
    levels = (Level(name="node", of=8), Level(name="pod", of=4), Level(name="spine", of=2, link=slow))
    cluster = Cluster.parse("8x8:h100").with_changes(levels=levels)
    group = device_group(cluster, 64, 1)
    software = cluster.software
    bytes_, share = 1e9, software.network_share * (group.nodes / 2) ** -software.network_decline
    seconds = group_seconds(StepKind.ALL_REDUCE, bytes_, group)
    # Half of the tensor must leave each pod, and the other half must come back: 2 (K − 1) / K · S.
    assert seconds == pytest.approx(bytes_ / (1e9 * share), rel=0.1)


@pytest.mark.parametrize("more", [{}, {"foo": 1}])
def test_levels_of_a_file_are_not_left_out_in_silence(more, tmp_path):
    """`2x4:FILE` and `device = FILE` take a device and its links: levels, known keys or not, were ignored there."""
    body = {"device": "h100", "levels": [{"name": "node", "of": 4, **more}, {"name": "pod", "of": 2}]}
    (tmp_path / "pods.json").write_text(json.dumps(body))
    (tmp_path / "other.json").write_text(json.dumps({"device": "pods.json", "nodes": 2, "devices_per_node": 4}))
    for named in (f"2x4:{tmp_path / 'pods.json'}", str(tmp_path / "other.json")):
        with pytest.raises(ClusterError, match="foo: an unknown key" if more else r"levels: levels of 4 × 2 devices"):
            Cluster.parse(named)
