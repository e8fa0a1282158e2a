"""Grouped products and the all-to-all of rows, against counts by hand."""

import math
from dataclasses import replace

import numpy as np
import pytest

from alpa_explore.cluster import Cluster
from alpa_explore.cluster.group import device_group
from alpa_explore.cost.compute import compute_seconds
from alpa_explore.cost.group_collectives import group_seconds, rows_seconds
from alpa_explore.cost.kernels import Kernel, KernelKind
from alpa_explore.sharding.reshard import StepKind

H100 = Cluster.parse("4x8:h100", software="megatron")


def test_grouped_products_fill_the_device_together() -> None:
    """Many small products at once are faster than one after the other, and as fast as one large product of all rows
    but for their share of its rate."""

    def product(kind: KernelKind, count: int, m: int) -> Kernel:
        sizes = (count, m, 2048, 4096)
        return Kernel(
            flops=2.0 * math.prod(sizes), bytes_accessed=1.0, dtype="bfloat16", matrix=True, kind=kind, sizes=sizes
        )

    device, share = H100.device, H100.software.grouped_factor
    one = compute_seconds(device, product(KernelKind.PRODUCT, 1, 256))
    together = compute_seconds(device, product(KernelKind.GROUPED_PRODUCT, 32, 256))
    large = compute_seconds(device, product(KernelKind.PRODUCT, 1, 32 * 256))
    assert together * share < 0.6 * 32 * one
    assert together == pytest.approx(large / share, rel=0.03)


def test_rows_of_a_token_for_one_node_cross_the_network_once() -> None:
    """The expected number of other nodes that k experts, drawn evenly, are on."""
    group = device_group(H100, 32, 1)
    fast = replace(group, inside_bandwidth=1e18, wait_seconds=0.0, hop_seconds=0.0, hop_inside_seconds=0.0)
    drawn = np.random.default_rng(0).integers(0, 4, size=(20000, 8))
    others = np.array([len(set(row) - {0}) for row in drawn.tolist()]).mean()
    each = rows_seconds(8e6, fast, 1) / (8 * 3 / 4)
    assert rows_seconds(8e6, fast, 8) / each == pytest.approx(others, rel=0.01)
    assert rows_seconds(8e6, fast, 1) == pytest.approx(0.75 * 8e6 / (fast.network_bandwidth / 8))
    assert rows_seconds(8e6, device_group(H100, 8, 1), 8) == group_seconds(
        StepKind.ALL_TO_ALL, 8e6, device_group(H100, 8, 1)
    )
