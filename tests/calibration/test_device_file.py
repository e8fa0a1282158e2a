"""From measured curves to a device file: made-up devices are found again, and a cluster is made of the file."""

import json
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from alpa_explore.calibration.device_file import device_file, link_of, matmul_curve
from alpa_explore.calibration.measurements import Measurements, Point
from alpa_explore.cluster import Cluster
from alpa_explore.cluster.presets import load_preset
from alpa_explore.cost.collectives import collective_seconds
from alpa_explore.cost.compute import compute_seconds
from alpa_explore.cost.kernels import Kernel
from alpa_explore.errors import OptionError
from alpa_explore.sharding.reshard import StepKind

LAUNCH, PEAK, HALF, MEMORY = 4e-6, 1e13, 1e8, 5e11
KINDS = ("all-reduce", "all-gather", "reduce-scatter", "all-to-all")


def collectives(bandwidth: float, latency: float, ranks: int) -> dict[str, tuple[Point, ...]]:
    return {
        kind: tuple(
            Point(size=size, seconds=collective_seconds(StepKind(kind), size, ranks, bandwidth, latency))
            for size in (1e3, 1e5, 1e7, 1e9)
        )
        for kind in KINDS
    }


def measurements(ranks: int = 4) -> Measurements:
    """A device whose products take launch + (f + half) / peak."""
    products = [2.0 * side**3 for side in (32, 64, 128, 256, 512, 1024, 2048, 4096)]
    return Measurements(
        device="a made-up device",
        software="none",
        memory_bytes=2**34,
        main_dtype="float32",
        ranks=ranks,
        matmul={"float32": tuple(Point(size=f, seconds=LAUNCH + (f + HALF) / PEAK) for f in products)},
        memory=tuple(Point(size=12.0 * 4**k, seconds=LAUNCH + 12.0 * 4**k / MEMORY) for k in range(3, 14)),
        collectives=collectives(5e10, 1e-5, ranks) if ranks > 1 else {},
    )


def read(body: object, folder: Path) -> Cluster:
    (folder / "mine.json").write_text(json.dumps(body))
    return Cluster.parse(f"1x4:{folder / 'mine.json'}")


def test_a_made_up_device_is_found_again_and_its_file_is_read(tmp_path: Path) -> None:
    cluster = read(device_file(measurements(), name="mine"), tmp_path)
    device = cluster.device
    assert str(cluster) == "1x4:mine"
    assert device.launch_seconds == pytest.approx(LAUNCH, rel=0.01)
    assert device.peak("float32") == pytest.approx(PEAK, rel=0.01)
    assert device.memory_bandwidth * device.memory_efficiency == pytest.approx(MEMORY, rel=0.01)
    assert device.half_efficiency_flops == pytest.approx(HALF, rel=2)
    assert cluster.inside_node.bandwidth == pytest.approx(5e10, rel=1e-6)
    assert cluster.inside_node.latency_seconds == pytest.approx(1e-5, rel=1e-6)
    assert "Not measured" in cluster.between_nodes.source
    for point in measurements().matmul["float32"]:
        found = compute_seconds(device, Kernel(flops=point.size, bytes_accessed=0, dtype="float32", matrix=True))
        assert found == pytest.approx(point.seconds, rel=0.01)


def test_with_a_preset_shares_are_of_its_datasheet_and_links_not_measured_are_its(tmp_path: Path) -> None:
    like = load_preset("v100")
    body = device_file(measurements(ranks=1), name="mine", like=like)
    cluster = read(body, tmp_path)
    assert cluster.device.peak("float32") == like[0].peak("float32")
    assert cluster.device.matmul_curve[-1][1] == pytest.approx(PEAK / like[0].peak("float32"), rel=0.01)
    assert cluster.device.memory_bandwidth == like[0].memory_bandwidth
    assert (cluster.inside_node, cluster.between_nodes) == like[1:]


def test_one_device_without_a_preset_has_no_link() -> None:
    with pytest.raises(OptionError, match="Give more --ranks, or --like"):
        device_file(measurements(ranks=1), name="mine")


def test_what_was_measured_is_in_the_file() -> None:
    found = device_file(measurements(), name="mine")["measured"]
    assert found["ranks"] == 4
    assert [size for size, _ in found["memory"]] == [p.size for p in measurements().memory]
    assert set(found["collectives"]) == set(KINDS)


@given(
    st.floats(1e8, 1e12), st.floats(1e-7, 1e-3), st.sampled_from([2, 3, 8]), st.lists(st.floats(0.9, 1.1), min_size=16)
)
def test_a_link_is_found_again_through_noise(bandwidth: float, latency: float, ranks: int, noise: list[float]) -> None:
    exact = collectives(bandwidth, latency, ranks)
    found = link_of(exact, ranks)
    assert found == (pytest.approx(bandwidth, rel=1e-3), pytest.approx(latency, rel=1e-3))
    factors = iter(noise)
    noisy = {k: tuple(replace(p, seconds=p.seconds * next(factors)) for p in points) for k, points in exact.items()}
    # One of the two may be far off where it hardly shows; what the link says of the messages may not.
    around = collectives(*link_of(noisy, ranks), ranks)
    for kind, points in exact.items():
        assert [p.seconds for p in around[kind]] == pytest.approx([p.seconds for p in points], rel=0.25)


@given(st.lists(st.floats(1e-6, 1.0), min_size=2, max_size=10), st.floats(0, 1e-6))
def test_a_curve_never_says_that_a_larger_product_is_quicker(seconds: list[float], launch: float) -> None:
    points = [Point(size=100.0 * 8**i, seconds=s) for i, s in enumerate(seconds)]
    peak = max(p.size / p.seconds for p in points) * 2
    curve = matmul_curve(points, launch, peak)
    times = [flops / (peak * share) for flops, share in curve]
    assert all(b >= a * (1 - 1e-12) for a, b in pairwise(times))
    assert all(0 < share <= 1 for _, share in curve)


@given(st.lists(st.floats(1e-6, 1.0), min_size=1, max_size=10))
def test_no_share_is_above_one_where_the_peak_is_the_best_rate_seen(seconds: list[float]) -> None:
    points = [Point(size=2.0 * 64**3 * 8**i, seconds=s) for i, s in enumerate(seconds)]
    peak = max(p.size / p.seconds for p in points)
    assert all(0 < share <= 1 for _, share in matmul_curve(points, 0.0, peak))
