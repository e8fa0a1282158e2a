"""Software profiles: by name, in a cluster's text, in files."""

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from alpa_explore.cluster import Cluster, Software, load_software, software_names
from alpa_explore.cluster.group import call_seconds, expert_seconds
from alpa_explore.cluster.levels import Level
from alpa_explore.cluster.mesh import Submesh, logical_mesh
from alpa_explore.cluster.presets import default_software, load_preset, preset_names
from alpa_explore.errors import ClusterError, UnknownNameError


@pytest.mark.parametrize("name", software_names())
def test_every_profile_has_a_source_and_figures_in_range(name: str) -> None:
    profile = load_software(name)
    assert profile.name == name
    assert profile.label
    assert len(profile.source) > 20
    assert load_software(name.upper()) == profile


def test_a_cluster_names_its_software() -> None:
    assert Cluster.parse("1x8:h100").software.name == "megatron"
    assert Cluster.parse("1x8:v100").software == load_software("alpa")
    named = Cluster.parse("2x8:a100@fsdp")
    assert named.software.name == "fsdp"
    assert Cluster.parse(str(named)) == named
    assert str(Cluster.parse("1x8:h100@megatron")) == "1x8:h100"
    assert Cluster.parse("1x8:h100", software="nanotron") == Cluster.parse("1x8:h100@nanotron")


def test_measured_figures_stay_where_the_software_that_they_belong_to_is_named() -> None:
    measured = replace(load_software("eager"), forward_launch_seconds=1e-3)
    cluster = Cluster.parse("1x8:h100").with_changes(software=measured)
    assert cluster.with_changes(software="PyTorch").software == measured
    assert cluster.with_changes(software="compiled").software == load_software("compiled")
    # A device file of `calibrate`, whose software is eager with measured launches.
    file = Path(__file__).parents[1] / "validation/data/on_gpu/device.json"
    calibrated = Cluster.parse(f"1x8:{file}").software
    assert calibrated.forward_launch_seconds != load_software("eager").forward_launch_seconds
    for text in (f"1x8:{file}@eager", f"1x8:{file}+1x8:h100@eager"):
        assert Cluster.parse(text).software == calibrated


@pytest.mark.parametrize(
    ("figures", "found"),
    [
        ({"tensor_overlap": 1.5}, "tensor_overlap=1.5"),
        ({"forward_launch_seconds": -1.0}, "forward_launch_seconds=-1.0"),
        ({"reserve_bytes": "much"}, "reserve_bytes='much'"),
        ({"reserve_bytes": float("inf")}, "reserve_bytes=inf"),
        ({"gradient_sync": "sometimes"}, "'sometimes'"),
    ],
)
def test_a_figure_out_of_range_is_refused(figures, found) -> None:
    with pytest.raises(ClusterError, match=re.escape(found)):
        Software(**figures)


def test_a_device_file_names_one(tmp_path) -> None:
    path = tmp_path / "mine.json"
    path.write_text(json.dumps({"device": "h100", "software": "eager"}))
    assert Cluster.parse(f"1x2:{path}").software.name == "eager"
    path.write_text(json.dumps({"device": "h100", "software": "eagre"}))
    with pytest.raises(UnknownNameError, match="eager"):
        Cluster.parse(f"1x2:{path}")


@pytest.mark.parametrize(
    ("cluster", "precision", "nearest"),
    [
        ("1x8:a100", "fp8", "bf16"),
        ("1x8:v100", "nvfp4", "bf16"),
        ("1x8:h100", "mxfp8", "fp8"),
        ("1x8:h100", "nvfp4", "fp8"),
        ("1x8:mi355x", "nvfp4", "mxfp8"),
        ("1x2:cpu", "fp8-current", "bf16"),
    ],
)
def test_a_precision_that_a_device_lacks_is_refused_with_the_nearest(cluster, precision, nearest) -> None:
    with pytest.raises(ClusterError, match=rf"The nearest that it has: {nearest}\."):
        Cluster.parse(cluster).in_precision(precision)
    Cluster.parse(cluster).in_precision(nearest)


def test_a_precision_stays_where_the_software_changes() -> None:
    low = Cluster.parse("1x8:b200").in_precision("NVFP4")
    assert low.software.low_precision == "nvfp4"
    assert low.with_changes(software="fsdp").software.low_precision == "nvfp4"
    assert low.in_precision("bf16") == low.in_precision(None) == low
    with pytest.raises(ClusterError, match="fp8"):
        Software(low_precision="fp9")
    with pytest.raises(ClusterError, match="mxfp8, nvfp4"):
        Cluster.parse("1x8:h100", block_formats=("mxfp4",))


@pytest.mark.parametrize(
    ("name", "rack"),
    [("1x8:gb300", True), ("1x4:gb200", True), ("1x72:gb200", True), ("1x8:b300", False), ("2x16:h100", False)],
)
def test_experts_are_dispatched_as_in_a_rack_by_the_link_not_by_the_number_of_devices(name: str, rack: bool) -> None:
    cluster = Cluster.parse(name)
    software = cluster.software
    assert software.expert_rack_host_seconds < software.expert_host_seconds
    assert expert_seconds(cluster) == (software.expert_rack_host_seconds if rack else software.expert_host_seconds)


def test_a_collective_across_nodes_takes_the_host_longer_for_each_rank_with_nanotron() -> None:
    cluster = Cluster.parse("4x8:h100@nanotron")
    software = cluster.software
    inside, across = (call_seconds(cluster, ranks, 1, pipeline=False) for ranks in (8, 16))
    assert inside == software.collective_launch_seconds
    assert across == pytest.approx(inside + 16 * software.spread_rank_seconds)
    assert call_seconds(cluster, 4, 8, pipeline=False) == pytest.approx(inside + 4 * software.spread_rank_seconds)
    mesh = logical_mesh(cluster, Submesh(4, 8), (2, 16))
    assert mesh.call_seconds == pytest.approx((call_seconds(cluster, 2, 16, pipeline=False), across))


def test_trays_of_a_file_are_a_rack() -> None:
    cluster = replace(Cluster.parse("1x8:h100"), levels=(Level(name="tray", of=4), Level(name="rack", of=2)))
    assert expert_seconds(cluster) == cluster.software.expert_rack_host_seconds


def test_clusters_for_training_run_real_software_by_default() -> None:
    """No kernel at its peak and no free overlap, unless the paper's setting is asked for."""
    ideal = {name for name in preset_names() if default_software(name) == "alpa"}
    assert {load_preset(name)[0].name for name in ideal} == {"v100", "cpu"}
    assert Cluster.parse("1x8:a100").software.name == Cluster.parse("1x8:a100-40gb").software.name == "megatron"
    assert str(Cluster.parse("1x8:a100@alpa")) == "1x8:a100-80gb@alpa"


@pytest.mark.parametrize("name", ["a100", "h100", "h200", "b200", "b300", "gb200", "gb300"])
def test_no_large_product_is_faster_than_cards_sustain(name: str) -> None:
    """Public sweeps of matrix products reach 87 % of the peak of A100 at the best shape, 80 % on H100, 78 % on B200."""
    assert load_preset(name)[0].matmul_efficiency <= {"a100": 0.87, "h100": 0.80, "h200": 0.80}.get(name, 0.78)
