"""Kernels of a device with kernel figures against a second formula, one kernel and one tile shape at a time."""

import math
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from alpa_explore.cluster import Cluster, Device, LogicalMesh, Software
from alpa_explore.cost import tuning
from alpa_explore.cost.kernel_seconds import KernelTable, table_seconds
from alpa_explore.cost.kernels import Kernel, KernelKind
from alpa_explore.cost.model import CostModel
from alpa_explore.models import build
from alpa_explore.tracing.capture import capture

ATTENTION = {
    KernelKind.ATTENTION: (False, False),
    KernelKind.ATTENTION_BACKWARD: (False, True),
    KernelKind.MASKED_ATTENTION: (True, False),
    KernelKind.MASKED_ATTENTION_BACKWARD: (True, True),
}
"""(under a mask, backward)."""


def filled(device: Device, groups: int, m: int, n: int, k: int, depth: float) -> float:
    """The share of the rate of a large product that the best tiles reach; see the docstring of the module."""
    figures, best = device.kernels, 0.0
    for (height, width), parts in product(tuning.TILES, tuning.PARTS_OF_K):
        waves = groups * math.ceil(m / height) * math.ceil(n / width) * parts / figures.processors
        waves = max(waves + figures.wave_loss * (math.ceil(waves) - waves), 1.0)
        steps = k / parts + (depth if parts == 1 else 2 * depth)
        slow = (height * width / tuning.LARGEST_TILE) ** figures.small_tile_exponent
        best = max(best, slow * groups * m * n * k / (waves * figures.processors * height * width * steps))
    return min(best, 1.0)


def plain_seconds(device: Device, kernel: Kernel) -> float:
    figures, (count, m, n, k) = device.kernels, kernel.sizes
    flops, arithmetic = kernel.flops / kernel.steps, 0.0
    if kernel.kind in (KernelKind.PRODUCT, KernelKind.GROUPED_PRODUCT):
        peak = device.peak(kernel.dtype)
        depth = figures.product_depth * peak / device.peak("bfloat16")
        aligned = all(size % 8 == 0 for size in (m, n, k))
        if kernel.kind is KernelKind.GROUPED_PRODUCT:
            rate = figures.grouped_share * device.software.grouped_factor * filled(device, count, m, n, k, depth)
        elif count > 1:
            rate = figures.batched_share * k / (k + depth) * (1 if aligned else figures.unaligned_batched_share)
        else:
            rate = filled(device, 1, m, n, k, depth) * (1 if aligned else figures.unaligned_share)
        arithmetic = flops / (peak * figures.shares.get(kernel.dtype, device.matmul_efficiency) * rate)
    elif kernel.kind in ATTENTION:
        share = figures.attention_share * device.software.attention_factor
        masked, backward = ATTENTION[kernel.kind]
        share *= (figures.masked_attention if masked else 1) * (figures.attention_backward_share if backward else 1)
        share *= min(1.0, k / 128) ** figures.attention_head_exponent * n / (n + figures.attention_keys)
        share *= min(1.0, math.ceil(m / tuning.ATTENTION_BLOCK) * count / figures.processors)
        arithmetic = flops / (device.peak("bfloat16") * share)
    traffic = device.software.traffic_factor if kernel.kind is KernelKind.MEMORY else 1.0
    memory = kernel.bytes_accessed / kernel.steps * traffic / (device.memory_bandwidth * device.memory_efficiency)
    q = tuning.ROOFLINE_SHARPNESS
    return kernel.steps * ((arithmetic**q + memory**q) ** (1 / q) + device.launch_seconds)


@given(
    st.sampled_from([KernelKind.PRODUCT, KernelKind.GROUPED_PRODUCT, *ATTENTION, KernelKind.MEMORY]),
    st.tuples(st.sampled_from([1, 3, 64]), *[st.sampled_from([8, 100, 1024, 8192])] * 3),
    st.sampled_from(["bfloat16", "float16", "float8_e4m3fn"]),
    st.sampled_from([1e3, 1e8]),
    st.sampled_from([1, 7]),
)
def test_a_kernel_takes_what_its_formula_says(
    kind: KernelKind, sizes: tuple[int, int, int, int], dtype: str, size: float, steps: int
) -> None:
    device = Cluster.parse(
        "1x8:h100", software=Software(traffic_factor=1.7, attention_factor=0.6, grouped_factor=0.7)
    ).device
    kernel = Kernel(
        flops=2.0 * math.prod(sizes),
        bytes_accessed=size,
        dtype=dtype,
        matrix=kind is not KernelKind.MEMORY,
        kind=kind,
        sizes=sizes,
        steps=steps,
    )
    other = Kernel(flops=1.0, bytes_accessed=1e6, dtype="float32", matrix=False)
    found = table_seconds(device, KernelTable.of([other, kernel]))
    assert found[1] == pytest.approx(plain_seconds(device, kernel), rel=1e-6)


def test_queries_with_a_window_meet_the_keys_of_two_windows():
    """As many as queries of a causal kernel that sees half of its keys; blocks without a window have all 32."""
    module, inputs = build("gpt-oss-tiny", 1, device="meta")  # windows of 8 in every second block
    graph = capture(module, inputs)
    model = CostModel(Cluster.parse("1x1:h100", software="megatron").device, LogicalMesh((), (), ()))
    seen = {KernelKind.ATTENTION: [], KernelKind.ATTENTION_BACKWARD: []}
    for operator in graph.operators:
        if "attention" in operator.kind:
            (strategy,) = model.operator(graph, operator.index).strategies
            kernel = model.kernel(operator, graph.tensors, strategy)
            seen[kernel.kind].append(kernel.sizes[1:3])
    assert seen[KernelKind.ATTENTION] == [(32, 16), (32, 32)] * 2
    assert seen[KernelKind.ATTENTION_BACKWARD] == [(32, 32), (32, 16)] * 2
