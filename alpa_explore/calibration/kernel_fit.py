"""Fit the figures of kernels to measured points: a few physical figures for all shapes of a kind.

    product     flops / (peak · share · fill(m, n) · k / (k + half_k) · alignment), or its traffic where that is slower
    attention   flops / (peak · share · s / (s + half_sequence) · (d / 128) ^ head_exponent)
                with 2.5 times the FLOPs in the backward pass
    memory      bytes / (bandwidth · share)

each plus the fixed seconds of a kernel. `fill` is the share of useful work in what is computed when tiles cover the
result and the processors work through the tiles in waves. Each fit minimises the squared logarithm of predicted over
measured seconds by a pattern search from fixed starting values, so that it gives the same figures every time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from alpa_explore.calibration import tuning
from alpa_explore.calibration.measurements import AttentionTime, Measurements, Point, Product
from alpa_explore.numerics.arrays import Floats

TILES = ((256, 128, 1.0), (128, 256, 1.0), (128, 128, 0.92), (128, 64, 0.75), (64, 64, 0.5))
"""(rows, columns, relative rate) of the tiles among which libraries choose: smaller tiles reuse less."""
CORE_TILES = ((16, 16, 1.0),)
"""The same of a CPU core, whose registers hold small tiles and whose caches need no choice here."""
ITEM_BYTES = {"float64": 8, "float32": 4, "float16": 2, "bfloat16": 2, "float8_e4m3fn": 1}


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """The figures of one kind of kernel, and how well they tell the points."""

    figures: Mapping[str, float]
    points: int
    mean_error: float
    """Mean of |predicted / measured − 1|."""
    worst_error: float


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelFits:
    """The fits of a device; `peak` and `bandwidth` are those to which the shares relate."""

    products: Mapping[str, Fit]
    """dtype -> share, half_k, wave, unaligned."""
    attention: Mapping[str, Fit]
    """dtype -> share, half_sequence, head_exponent, backward."""
    memory: Fit
    """share, kernel_seconds."""


def fit_kernels(measured: Measurements, *, peaks: Mapping[str, float], bandwidth: float) -> KernelFits:
    """Fit all kinds of kernels that were measured. `peaks` maps dtype to FLOP/s, `bandwidth` is bytes per second."""
    processors = measured.processors
    memory = fit_memory(measured.memory, bandwidth)
    rate, fixed = bandwidth * memory.figures["share"], memory.figures["kernel_seconds"]
    squares = [
        Product(dtype=dtype, m=side, n=side, k=side, seconds=p.seconds)
        for dtype, points in measured.matmul.items()
        for p in points
        for side in [round((p.size / 2) ** (1 / 3))]
    ]
    shaped = {p.dtype for p in measured.products}
    return KernelFits(
        products={
            dtype: fit_products(
                [p for p in (*measured.products, *squares) if p.dtype == dtype], peaks[dtype], rate, fixed, processors
            )
            for dtype in dict.fromkeys(p.dtype for p in measured.products)
            if dtype in peaks and dtype in shaped
        },
        attention={
            dtype: fit_attention([a for a in measured.attention if a.dtype == dtype], peaks[dtype], fixed, processors)
            for dtype in dict.fromkeys(a.dtype for a in measured.attention)
            if dtype in peaks
        },
        memory=memory,
    )


def fit_memory(points: Sequence[Point], bandwidth: float) -> Fit:
    """Share of the bandwidth, and fixed seconds of a kernel."""
    sizes, seconds = np.array([p.size for p in points]), np.array([p.seconds for p in points])

    def predicted(x: Floats) -> Floats:
        return np.asarray(x[1] + sizes / (bandwidth * x[0]), dtype=np.float64)

    return _fitted(
        predicted, seconds, {"share": (0.8, 0.01, 1.0), "kernel_seconds": (float(seconds.min()), 1e-8, 1e-3)}
    )


def fit_products(
    points: Sequence[Product], peak: float, memory_rate: float, kernel_seconds: float, processors: int
) -> Fit:
    """share, half_k, wave (what is lost of a last wave that is not full), unaligned (factor of a side that is no
    multiple of 8)."""
    m, n, k = (np.array([getattr(p, side) for p in points], dtype=np.float64) for side in "mnk")
    item = np.array([ITEM_BYTES[p.dtype] for p in points])
    stored = np.where(item == 1, 2, item)  # products of 8 bits are stored in 16
    traffic = (item * (m * k + n * k) + stored * m * n) / memory_rate
    crooked = (m % 8 > 0) | (n % 8 > 0) | (k % 8 > 0)
    seconds = np.array([p.seconds for p in points])

    def predicted(x: Floats) -> Floats:
        share, half_k, wave, unaligned = x
        rate = peak * share * fill(m, n, processors, wave) * k / (k + half_k) * np.where(crooked, unaligned, 1.0)
        return np.asarray(kernel_seconds + np.maximum(2 * m * n * k / rate, traffic), dtype=np.float64)

    start = {
        "share": (0.7, 0.01, 1.0),
        "half_k": (100.0, 1.0, 4096.0),
        "wave": (0.5, 0.01, 1.0),
        "unaligned": (0.8, 0.05, 1.0),
    }
    return _fitted(predicted, seconds, start)


def fit_attention(points: Sequence[AttentionTime], peak: float, kernel_seconds: float, processors: int) -> Fit:
    """share, half_sequence, head_exponent, backward (share of the backward pass relative to the forward pass)."""
    flops, s, d, heads = (
        np.array([getattr(p, name) for p in points], dtype=np.float64)
        for name in ("flops", "sequence", "head", "batch_heads")
    )
    blocks = np.ceil(s / 128) * heads / processors
    idle = np.maximum(blocks, 1) / blocks
    seconds = np.array([p.forward_seconds for p in points] + [p.backward_seconds for p in points])

    def predicted(x: Floats) -> Floats:
        share, half_sequence, head_exponent, backward = x
        rate = peak * share * s / (s + half_sequence) * np.minimum(1, d / 128) ** head_exponent
        forward = flops / rate * idle
        return np.concatenate([forward, 2.5 * forward / backward]) + kernel_seconds

    start = {
        "share": (0.5, 0.01, 1.0),
        "half_sequence": (300.0, 1.0, 8192.0),
        "head_exponent": (0.5, 0.01, 2.0),
        "backward": (0.8, 0.1, 1.5),
    }
    return _fitted(predicted, seconds, start)


def fill(m: Floats, n: Floats, processors: int, wave: float) -> Floats:
    """The share of useful work for an m × n result: the best of the tiles. On one processor only edges are lost."""
    best = np.zeros_like(m)
    for rows, columns, relative in TILES if processors > 1 else CORE_TILES:
        tiles = np.ceil(m / rows) * np.ceil(n / columns)
        waves = tiles / processors
        waves = waves + wave * (np.ceil(waves) - waves)
        best = np.maximum(best, relative * m * n / (waves * processors * rows * columns))
    return best


def document(fits: KernelFits) -> dict[str, Any]:
    """The fits as the section `fitted` of a device file, beside the raw points."""
    return {
        "form": "alpa_explore.calibration.kernel_fit",
        "products": {dtype: asdict(fit) for dtype, fit in fits.products.items()},
        "attention": {dtype: asdict(fit) for dtype, fit in fits.attention.items()},
        "memory": asdict(fits.memory),
    }


def _fitted(
    predicted: Callable[[Floats], Floats], seconds: Floats, start: Mapping[str, tuple[float, float, float]]
) -> Fit:
    """Pattern search: every figure is multiplied and divided by a step that shrinks where nothing gets better."""
    least, most = (np.array([bounds[i] for bounds in start.values()]) for i in (1, 2))
    x = np.clip(np.array([bounds[0] for bounds in start.values()]), least, most)

    def error(at: Floats) -> float:
        return float((np.log(predicted(at) / seconds) ** 2).mean())

    best, step = error(x), tuning.FIRST_STEP
    while step > tuning.LAST_STEP:
        before = best
        for place in range(len(x)):
            for factor in (1 + step, 1 / (1 + step)):
                tried = x.copy()
                tried[place] = min(max(x[place] * factor, least[place]), most[place])
                if (found := error(tried)) < best:
                    x, best = tried, found
        if best >= before * (1 - 1e-6):
            step /= 2
    errors = np.abs(predicted(x) / seconds - 1)
    return Fit(
        figures=dict(zip(start, x.tolist(), strict=True)),
        points=len(seconds),
        mean_error=float(errors.mean()),
        worst_error=float(errors.max()),
    )
