"""The roofline and the liveness peak."""

import dataclasses

import numpy as np
import pytest

from alpa_explore.cluster import Cluster
from alpa_explore.cost.compute import compute_seconds, kernels_seconds
from alpa_explore.cost.kernels import Kernel, KernelKind
from alpa_explore.intra_op.stage.liveness import peak_bytes

DEVICE = Cluster.parse("1x1:v100").device


def test_a_view_is_free_and_every_other_kernel_has_a_launch_cost():
    assert compute_seconds(DEVICE, Kernel(flops=0, bytes_accessed=0, dtype="float16", matrix=False)) == 0
    tiny = compute_seconds(DEVICE, Kernel(flops=1, bytes_accessed=4, dtype="float32", matrix=False))
    assert tiny == pytest.approx(DEVICE.launch_seconds, rel=1e-3)


def test_large_products_reach_the_stated_efficiency_and_small_ones_half_of_it():
    device = dataclasses.replace(DEVICE, launch_seconds=0.0)
    large = 1e15
    rate = large / compute_seconds(device, Kernel(flops=large, bytes_accessed=0, dtype="float16", matrix=True))
    assert rate == pytest.approx(device.peak("float16") * device.matmul_efficiency, rel=1e-3)
    half = device.half_efficiency_flops
    rate = half / compute_seconds(device, Kernel(flops=half, bytes_accessed=0, dtype="float16", matrix=True))
    assert rate == pytest.approx(device.peak("float16") * device.matmul_efficiency / 2)


def test_a_measured_curve_gives_the_seconds_of_products():
    curve = ((1e6, 0.01), (1e8, 0.1), (1e10, 0.5))
    device = dataclasses.replace(DEVICE, launch_seconds=0.0, matmul_curve=curve)
    peak = device.peak("float16")

    def seconds(flops):
        return compute_seconds(device, Kernel(flops=flops, bytes_accessed=0, dtype="float16", matrix=True))

    for flops, share in curve:
        assert seconds(flops) == pytest.approx(flops / (peak * share))
    assert seconds(1e3) == seconds(1e6), "nothing is faster than the smallest that was measured"
    assert seconds(1e13) == pytest.approx(1e13 / (peak * 0.5)), "beyond the largest its share stays"
    between = [seconds(f) for f in np.geomspace(1e6, 1e10, 50)]
    assert between == sorted(between)
    assert compute_seconds(
        device, Kernel(flops=1e9, bytes_accessed=0, dtype="float32", matrix=False)
    ) == 1e9 / device.peak("float32")


def test_elementwise_operators_are_bound_by_memory():
    seconds = compute_seconds(DEVICE, Kernel(flops=1e8, bytes_accessed=1.2e9, dtype="float32", matrix=False))
    expected = DEVICE.launch_seconds + 1.2e9 / (DEVICE.memory_bandwidth * DEVICE.memory_efficiency)
    assert seconds == pytest.approx(expected)


def test_the_peak_equals_a_step_by_step_count():
    rng = np.random.default_rng(1)
    for _ in range(50):
        count = int(rng.integers(0, 20))
        starts = rng.integers(0, 30, count)
        ends = starts + rng.integers(0, 10, count)
        rows = rng.integers(1, 100, (3, count)).astype(float)
        slow = [max((sizes[(starts <= t) & (t <= ends)].sum() for t in range(50)), default=0.0) for sizes in rows]
        assert peak_bytes(starts, ends, rows).tolist() == slow


@pytest.mark.parametrize("name", ["v100", "h100"])
def test_a_table_has_the_seconds_of_its_kernels_with_and_without_kernel_figures(name):
    device = Cluster.parse(f"1x1:{name}").device
    kernels = [
        Kernel(flops=1e9, bytes_accessed=1e6, dtype=dtype, matrix=True, kind=KernelKind.PRODUCT)
        for dtype in ("float16", "float32")
    ]
    kernels.append(Kernel(flops=1e6, bytes_accessed=1e7, dtype="float16", matrix=False))
    found = kernels_seconds(device, kernels)
    assert found.tolist() == pytest.approx([compute_seconds(device, kernel) for kernel in kernels])
