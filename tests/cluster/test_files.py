"""Clusters and devices from a user's file."""

import json
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from alpa_explore.cluster import Cluster, preset_names
from alpa_explore.errors import AlpaExploreError, ClusterError
from alpa_explore.plans.plan import load_plan
from tests.plans.example import example_plan

TOML = """
nodes = 2
devices_per_node = 4
[device]
like = "v100"
name = "my-gpu"
memory_bytes = 34359738368
[inside_node]
bandwidth = 1.3e11
latency_seconds = 5e-6
"""


def write(folder: Path, text: str, name: str = "a.toml") -> str:
    (folder / name).write_text(text)
    return str(folder / name)


def test_a_cluster_file_takes_missing_fields_from_a_preset(tmp_path: Path) -> None:
    cluster, v100 = Cluster.parse(write(tmp_path, TOML)), Cluster.parse("1x1:v100")
    assert str(cluster) == "2x4:my-gpu"
    assert cluster.device.memory_bytes == 2**35
    assert cluster.device.peak_flops == v100.device.peak_flops
    assert cluster.inside_node.bandwidth == 1.3e11
    assert cluster.between_nodes == v100.between_nodes


@pytest.mark.parametrize("name", preset_names())
def test_a_preset_written_to_a_file_is_read_back_unchanged(name: str, tmp_path: Path) -> None:
    preset = Cluster.parse(f"2x4:{name}")
    body = {
        "nodes": 2,
        "devices_per_node": 4,
        "device": asdict(preset.device),
        "inside_node": asdict(preset.inside_node),
        "between_nodes": asdict(preset.between_nodes),
    }
    assert Cluster.parse(write(tmp_path, json.dumps(body), "b.json")) == preset


def test_a_device_file_is_used_like_a_preset(tmp_path: Path) -> None:
    preset = Path("alpa_explore/cluster/presets/a100-80gb.json").read_text()
    path = write(tmp_path, preset, "mine.json")
    assert Cluster.parse(f"2x8:{path}") == Cluster.parse("2x8:a100")
    assert Cluster.parse(f"2x8:{path}", memory_bytes=7).device.memory_bytes == 7
    named = write(tmp_path, 'nodes = 3\ndevices_per_node = 2\ndevice = "mine.json"')
    preset, network = Cluster.parse("3x2:a100"), Cluster.parse("3x8:a100").between_nodes
    assert Cluster.parse(named) == replace(preset, between_nodes=network), "beside the cluster's file, with its network"


def test_a_device_can_be_a_preset_by_name(tmp_path: Path) -> None:
    assert Cluster.parse(write(tmp_path, 'nodes = 1\ndevices_per_node = 8\ndevice = "h100"')) == Cluster.parse(
        "1x8:h100"
    )


def test_figures_of_an_earlier_model_in_an_old_file_are_ignored(tmp_path: Path) -> None:
    path = write(tmp_path, TOML)
    new = Cluster.parse(path)
    write(tmp_path, TOML + '[megatron]\nsource = "fitted"\n[megatron.software]\nmatmul_efficiency = 0.5\n')
    assert Cluster.parse(path) == new


def test_a_measured_curve_is_kept_unless_the_peak_changes(tmp_path: Path) -> None:
    curve = '{"like": "cpu", "matmul_curve": [[1e6, 0.2], [1e9, 0.8]]'
    links = '"nodes": 1, "devices_per_node": 1'
    cluster = Cluster.parse(write(tmp_path, f'{{{links}, "device": {curve}}}}}', "c.json"))
    assert cluster.device.matmul_curve == ((1e6, 0.2), (1e9, 0.8))
    faster = '{"nodes": 1, "devices_per_node": 1, "device": {"like": "cpu", "matmul_efficiency": 0.9}}'
    assert Cluster.parse(write(tmp_path, faster, "d.json")).device.matmul_curve == ()


def test_overlap_is_a_field_of_the_device_and_0_by_default(tmp_path: Path) -> None:
    text = TOML.replace("name =", "collective_overlap = 0.5\ngradient_overlap = 0\nname =")
    device = Cluster.parse(write(tmp_path, text)).device
    assert (device.collective_overlap, device.gradient_overlap) == (0.5, 0.0)
    assert Cluster.parse("1x8:h100").device.collective_overlap == 0.0


def test_a_plan_keeps_the_curve_of_its_device(tmp_path: Path) -> None:
    plan = example_plan()
    device = plan.cluster.with_changes(matmul_curve=((1e6, 0.2), (1e9, 0.8)), gradient_overlap=0.25)
    replace(plan, cluster=device).save(tmp_path / "a.plan.json")
    assert load_plan(tmp_path / "a.plan.json").cluster == device


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("nodes = ", "the text"),
        ("nodes = 2\ndevices_per_node = 2", "device: None.*Name a preset"),
        ("nodes = 2", "devices_per_node: None"),
        ('device = "v100"', "number of nodes.*NODESxDEVICES"),
        ('nodes = "2"\ndevices_per_node = 4\ndevice = "v100"', "nodes: '2'.*whole number"),
        ('nodes = true\ndevices_per_node = 4\ndevice = "v100"', "nodes: True"),
        ('nodes = 2\ndevices_per_node = 4\ndevice = "v101"', "Unknown device.*Did you mean 'v100'"),
        (TOML.replace("memory_bytes", "memory"), "device.memory: an unknown key.*Did you mean 'memory_"),
        (TOML.replace("inside_node", "inside_nodes"), "inside_nodes: an unknown key.*Did you mean 'inside_node'"),
        (TOML.replace("34359738368", "-1"), "device.memory_bytes: -1.*above 0"),
        (TOML.replace("34359738368", "nan"), "device.memory_bytes: nan.*Give a number"),
        (TOML.replace("34359738368", '"32 GB"'), "device.memory_bytes: '32 GB'.*Give a number"),
        (TOML.replace("1.3e11", "0"), "inside_node.bandwidth: 0.*above 0"),
        (TOML.replace("1.3e11", "130"), "inside_node.bandwidth: 130. Give bytes per second: 130 GB/s is 1.3e11"),
        (TOML.replace("5e-6", "5"), "inside_node.latency_seconds: 5. Give seconds"),
        (TOML.replace("34359738368", "32"), "device.memory_bytes: 32. Give bytes: 16 GiB is"),
        (TOML.replace("name =", "peak_flops = {float32 = 15.7}\nname ="), "peak_flops.float32: 15.7. Give FLOP/s"),
        (TOML.replace("bandwidth = 1.3e11\n", ""), "inside_node.bandwidth: nothing"),
        (TOML.replace("my-gpu", "my gpu\\u001b[31m"), "device.name.*short name"),
        (TOML.replace('like = "v100"\n', ""), "device.peak_flops: nothing.*like = a preset"),
        (TOML + "matmul_efficiency = 2\n", "inside_node.matmul_efficiency: an unknown key"),
        (TOML.replace("name =", "matmul_efficiency = 1.5\nname ="), "matmul_efficiency: 1.5.*1 at most"),
        (TOML.replace("name =", "gradient_overlap = 1.1\nname ="), "gradient_overlap: 1.1.*1 at most"),
        (TOML.replace("name =", "matmul_curve = [[2.0, 0.5], [1.0, 0.5]]\nname ="), "matmul_curve.*ascending"),
        (TOML.replace("name =", "peak_flops = {float16 = 1e12}\nname ="), "peak_flops.*float32 among them"),
    ],
)
def test_an_error_in_a_file_names_its_key(text: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(AlpaExploreError, match=f"(?s){message}"):
        Cluster.parse(write(tmp_path, text))


def test_unreadable_files_are_errors(tmp_path: Path) -> None:
    for path in (
        str(tmp_path / "missing.json"),
        write(tmp_path, "[1, 2]", "list.json"),
        write(tmp_path, "{", "d.json"),
    ):
        with pytest.raises(ClusterError, match="cannot be used"):
            Cluster.parse(path)
    (tmp_path / "bytes.toml").write_bytes(b"\xff")
    with pytest.raises(ClusterError, match="the text"):
        Cluster.parse(str(tmp_path / "bytes.toml"))
    with pytest.raises(ClusterError, match="more than 1,048,576 bytes"):
        Cluster.parse(write(tmp_path, "#" * (2**20 + 1), "long.toml"))
    with pytest.raises(ClusterError, match="the text"):
        Cluster.parse(write(tmp_path, "[" * 100_000, "deep.json"))


def test_a_device_file_cannot_name_another_file(tmp_path: Path) -> None:
    write(tmp_path, '{"device": "b.json"}', "a.json")
    path = write(tmp_path, '{"device": "a.json"}', "b.json")
    with pytest.raises(ClusterError, match="holds the figures"):
        Cluster.parse(f"1x1:{path}")
    with pytest.raises(ClusterError, match="holds the figures"):
        Cluster.parse(write(tmp_path, 'nodes = 1\ndevices_per_node = 1\ndevice = "b.json"'))


@pytest.mark.parametrize(("device", "share"), [("h100", 0.5), ("a100-80gb", 0.5), ("v100", 1.0), ("rtx-4090", 1.0)])
def test_half_a_node_has_the_adapters_of_its_devices_however_it_is_named(
    tmp_path: Path, device: str, share: float
) -> None:
    whole, half = (Cluster.parse(f"2x{n}:{device}") for n in (8, 4))
    assert half.between_nodes.bandwidth == share * whole.between_nodes.bandwidth
    (tmp_path / "like.json").write_text(json.dumps({"device": {"like": device, "name": "mine"}}))
    named = {"nodes": 2, "devices_per_node": 4, "device": device}
    (tmp_path / "named.json").write_text(json.dumps(named))
    for same in (
        whole.resized(2, 4),
        Cluster.parse(f"1x8:{device}").with_changes(nodes=2, devices_per_node=4),
        Cluster.parse(f"2x4:{tmp_path / 'like.json'}"),
        Cluster.parse(str(tmp_path / "named.json")),
    ):
        assert same.between_nodes == half.between_nodes
    assert Cluster.parse(f"1x4:{device}").resized(2, 8) == whole


def test_a_network_that_is_given_is_that_of_the_node_whatever_its_size(tmp_path: Path) -> None:
    network = {"bandwidth": 1e11, "latency_seconds": 1e-5}
    (tmp_path / "mine.json").write_text(json.dumps({"device": {"like": "h100"}, "between_nodes": network}))
    clusters = [Cluster.parse(f"2x{n}:{tmp_path / 'mine.json'}") for n in (2, 4, 8)]
    changed = replace(clusters[0].between_nodes, bandwidth=3e10)
    given = Cluster.parse("2x8:h100", between_nodes=changed)
    assert {c.between_nodes.bandwidth for c in (*clusters, clusters[2].resized(2, 4))} == {1e11}
    assert given.resized(2, 4).between_nodes == changed
    assert given.with_changes(devices_per_node=4, between_nodes=changed).between_nodes == changed
