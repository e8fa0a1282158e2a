"""Fit the kernel figures of a device to measured points, by least squares of the planner's own formulas.

The formulas are those of `cost.kernel_seconds`: the squared logarithm of predicted over measured seconds is minimised
by a pattern search from fixed starting values, so that the same points always give the same figures. First the two
figures of memory-bound kernels (share of the bandwidth, fixed time), then those of products of all dtypes together,
then those of attention.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from alpa_explore.calibration.least_squares import Bounds, Fit, pattern_search
from alpa_explore.calibration.measurements import AttentionTime, Measurements, Product
from alpa_explore.cluster import Device
from alpa_explore.cluster.kernel_figures import KernelFigures
from alpa_explore.cost.kernel_seconds import KernelTable, table_seconds
from alpa_explore.cost.kernels import Kernel, KernelKind
from alpa_explore.numerics.arrays import Floats

ITEM_BYTES = {"float64": 8, "float32": 4, "float16": 2, "bfloat16": 2, "float8_e4m3fn": 1}
_SHARE = (0.01, 1.0)


def fit_kernels(measured: Measurements, base: Device) -> tuple[Device, tuple[Fit, ...]]:
    """`base` with the figures that fit the measurements, and the fits; shares relate to the peaks of `base`.

    A kind of kernel that was not measured keeps its figures.
    """
    # What was measured is the device's own: no software's factor on its attention or its memory traffic.
    plain = replace(base.software, attention_factor=1.0, traffic_factor=1.0)
    device = replace(base, kernels=base.kernels or _start(measured.processors), matmul_curve=(), software=plain)
    fits = [_fit_memory(measured, device)]
    device = replace(
        device, memory_efficiency=fits[0].figures["memory_efficiency"], launch_seconds=fits[0].figures["launch_seconds"]
    )
    for fit_next in (_fit_products, _fit_attention):
        fit = fit_next(measured, device)
        if fit is not None:
            device = with_figures(device, fit.figures)
            fits.append(fit)
    return device, tuple(fits)


def with_figures(device: Device, figures: Mapping[str, float]) -> Device:
    """A device with other kernel figures; `share.DTYPE` is that of products of one dtype."""
    assert device.kernels is not None
    shares = {name.removeprefix("share."): value for name, value in figures.items() if name.startswith("share.")}
    others = {name: value for name, value in figures.items() if not name.startswith("share.")}
    changed: Any = {**others, "shares": {**device.kernels.shares, **shares}}
    return replace(device, kernels=replace(device.kernels, **changed))


def product_kernel(product: Product) -> Kernel:
    """The kernel of a measured product, as the planner counts it; products of 8 bits are stored in 16."""
    item = ITEM_BYTES[product.dtype]
    read = product.m * product.k + product.n * product.k
    written = product.m * product.n
    return Kernel(
        flops=product.flops,
        bytes_accessed=product.count * (item * read + max(item, 2) * written),
        dtype=product.dtype,
        matrix=True,
        kind=KernelKind.PRODUCT,
        sizes=(product.count, product.m, product.n, product.k),
    )


def attention_kernel(time: AttentionTime, *, backward: bool) -> Kernel:
    """The kernel of measured attention: queries, keys, values and output once, in the backward pass with gradients."""
    tensor = ITEM_BYTES[time.dtype] * time.batch_heads * time.sequence * time.head
    return Kernel(
        flops=time.flops * (2.5 if backward else 1.0),
        bytes_accessed=tensor * (8 if backward else 4) + 4 * time.batch_heads * time.sequence,
        dtype=time.dtype,
        matrix=True,
        kind=KernelKind.ATTENTION_BACKWARD if backward else KernelKind.ATTENTION,
        sizes=(time.batch_heads, time.sequence, time.sequence, time.head),
    )


def _start(processors: int) -> KernelFigures:
    return KernelFigures(
        processors=processors,
        wave_loss=0.5,
        small_tile_exponent=0.2,
        product_depth=100.0,
        unaligned_share=0.7,
        unaligned_batched_share=0.4,
        batched_share=0.8,
        attention_share=0.5,
        attention_backward_share=0.8,
        attention_head_exponent=0.5,
        attention_keys=300.0,
    )


def _fit_memory(measured: Measurements, device: Device) -> Fit:
    sizes, seconds = (np.array([getattr(p, name) for p in measured.memory]) for name in ("size", "seconds"))

    def predicted(x: Floats) -> Floats:
        return np.asarray(x[1] + sizes / (device.memory_bandwidth * x[0]), dtype=np.float64)

    start = {"memory_efficiency": (0.8, *_SHARE), "launch_seconds": (float(seconds.min()), 1e-8, 1e-3)}
    return pattern_search("memory-bound kernels", predicted, seconds, start)


def _fit_products(measured: Measurements, device: Device) -> Fit | None:
    squares = [
        Product(dtype=dtype, m=side, n=side, k=side, seconds=p.seconds)
        for dtype, points in measured.matmul.items()
        for p in points
        for side in [round((p.size / 2) ** (1 / 3))]
    ]
    shaped = {p.dtype for p in measured.products}
    points = [p for p in (*measured.products, *squares) if p.dtype in shaped and p.dtype in device.peak_flops]
    if not points:
        return None
    start: dict[str, tuple[float, float, float]] = {
        **{f"share.{dtype}": (0.7, *_SHARE) for dtype in dict.fromkeys(p.dtype for p in points)},
        "product_depth": (100.0, 1.0, 4096.0),
        "wave_loss": (0.5, *_SHARE),
        "small_tile_exponent": (0.2, 0.01, 1.0),
        "unaligned_share": (0.7, *_SHARE),
    }
    if any(p.count > 1 for p in points):
        start["batched_share"] = (0.8, *_SHARE)
    table = KernelTable.of([product_kernel(p) for p in points])
    return pattern_search("products", _by_planner(device, table, start), np.array([p.seconds for p in points]), start)


def _fit_attention(measured: Measurements, device: Device) -> Fit | None:
    times = [a for a in measured.attention if a.dtype in device.peak_flops]
    if not times:
        return None
    # Only GPUs have the peak of bfloat16 to which the share relates; elsewhere it may be above 1.
    start = {
        "attention_share": (0.5, 0.001, 10.0),
        "attention_backward_share": (0.8, 0.05, 2.0),
        "attention_head_exponent": (0.5, 0.01, 2.0),
        "attention_keys": (300.0, 1.0, 8192.0),
    }
    table = KernelTable.of([attention_kernel(a, backward=backward) for backward in (False, True) for a in times])
    seconds = np.array([a.forward_seconds for a in times] + [a.backward_seconds for a in times])
    return pattern_search("attention", _by_planner(device, table, start), seconds, start)


def _by_planner(device: Device, table: KernelTable, start: Bounds) -> Callable[[Floats], Floats]:
    def predicted(x: Floats) -> Floats:
        return table_seconds(with_figures(device, dict(zip(start, x.tolist(), strict=True))), table)

    return predicted
