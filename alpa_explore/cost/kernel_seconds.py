"""Seconds of many kernels at once, from their local sizes: products by tiles and waves, attention, memory traffic.

A product [m, k] × [k, n] is computed in tiles of the output, as many at once as the device has processors. With the
best of a few tile shapes it takes

    2·m·n·k / (peak × share × fill),    fill = s · m·n·k / (waves · processors · tile · (k / parts + depth)),

where the last wave of tiles may be partly empty, the start and end of a tile cost `depth` of its k, smaller tiles run
at a lower rate s, and k may be divided into parts that different processors compute. Attention takes its FLOPs /
(peak × share), where the share falls with small heads and few keys. Every kernel also takes its memory traffic; the
slower of the two counts (a soft maximum), and a fixed time is added, but to updates. Sizes of a mebibyte and more are
assumed: nothing is read from caches.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from alpa_explore.cluster import Device, Software
from alpa_explore.cluster.kernel_figures import KernelFigures
from alpa_explore.cost import tuning
from alpa_explore.cost.kernels import Kernel, KernelKind
from alpa_explore.numerics.arrays import Flags, Floats, Ints


class KernelTable(NamedTuple):
    """Kernels as columns, each of shape [kernels]."""

    kind: Ints
    """Position in KernelKind."""
    flops: Floats
    """Of one step, as `bytes_accessed`."""
    bytes_accessed: Floats
    counts: Floats
    m: Floats
    n: Floats
    k: Floats
    dtype: Ints
    """Position in `dtypes`."""
    dtypes: tuple[str, ...]
    steps: Floats
    """Kernels in sequence."""

    @classmethod
    def of(cls, kernels: Sequence[Kernel]) -> KernelTable:
        """The table of some kernels."""
        kinds = list(KernelKind)
        dtypes = {name: place for place, name in enumerate(dict.fromkeys(kernel.dtype for kernel in kernels))}
        sizes = np.array([kernel.sizes for kernel in kernels], dtype=np.float64).reshape(-1, 4)
        steps = np.array([kernel.steps for kernel in kernels], dtype=np.float64)
        return cls(
            np.array([kinds.index(kernel.kind) for kernel in kernels], dtype=np.int64),
            np.array([kernel.flops for kernel in kernels], dtype=np.float64) / steps,
            np.array([kernel.bytes_accessed for kernel in kernels], dtype=np.float64) / steps,
            sizes[:, 0],
            sizes[:, 1],
            sizes[:, 2],
            sizes[:, 3],
            np.array([dtypes[kernel.dtype] for kernel in kernels], dtype=np.int64),
            tuple(dtypes),
            steps,
        )


def table_seconds(device: Device, table: KernelTable) -> Floats:
    """Seconds of every kernel on a device that has kernel figures, shape [kernels]; 0 for views."""
    figures = device.kernels
    assert figures is not None, "a device with kernel figures"
    kinds = list(KernelKind)
    arithmetic = np.zeros(len(table.flops))
    grouped = table.kind == kinds.index(KernelKind.GROUPED_PRODUCT)
    unaligned = table.kind == kinds.index(KernelKind.UNALIGNED_PRODUCT)
    product = (table.kind == kinds.index(KernelKind.PRODUCT)) | grouped | unaligned
    if product.any():
        dtypes = [device.computes_in(dtype) for dtype in table.dtypes]
        peaks = np.array([device.peak(dtype) for dtype in dtypes])
        reached = peaks * [figures.shares.get(dtype, device.matmul_efficiency) for dtype in dtypes]
        # Start and end of a tile take as long in any precision.
        depths = figures.product_depth * (peaks / device.peak("bfloat16"))
        arithmetic[product] = (table.flops / reached[table.dtype])[product] / product_rate(
            figures,
            *(column[product] for column in (table.counts, table.m, table.n, table.k, depths[table.dtype])),
            grouped=grouped[product],
            # Of plain PyTorch `plain_kernels` knows how operands lie in memory.
            loose=(
                np.array([dtype in tuning.LOOSE for dtype in dtypes])[table.dtype]
                | (device.software.plain_loop & (table.counts == 1))
            )[product],
        )
        arithmetic[grouped] /= device.software.grouped_factor
        arithmetic[unaligned] /= figures.unaligned_share
    for kind, factor in (
        (KernelKind.ATTENTION, 1.0),
        (KernelKind.ATTENTION_BACKWARD, figures.attention_backward_share),
        (KernelKind.MASKED_ATTENTION, figures.masked_attention),
        (KernelKind.MASKED_ATTENTION_BACKWARD, figures.masked_attention * figures.attention_backward_share),
    ):
        chosen = table.kind == kinds.index(kind)
        if not chosen.any():
            continue
        rate = attention_rate(
            figures, device.software, table.counts[chosen], table.m[chosen], table.n[chosen], table.k[chosen]
        )
        share = figures.attention_share * device.software.attention_factor * factor
        arithmetic[chosen] = table.flops[chosen] / (device.peak("bfloat16") * share) / rate
    traffic = np.where(table.kind == kinds.index(KernelKind.MEMORY), device.software.traffic_factor, 1.0)
    memory = table.bytes_accessed * traffic / (device.memory_bandwidth * device.memory_efficiency)
    # One kernel updates all weights, so it is not launched for each of them.
    launched = np.where(table.kind == kinds.index(KernelKind.UPDATE), 0.0, device.launch_seconds)
    seconds = soft_maximum(arithmetic, memory, tuning.ROOFLINE_SHARPNESS) + launched
    return np.asarray(np.where((table.flops == 0) & (table.bytes_accessed == 0), 0.0, seconds * table.steps))


def product_rate(
    figures: KernelFigures,
    count: Floats,
    m: Floats,
    n: Floats,
    k: Floats,
    depth: Floats,
    *,
    grouped: Flags | None = None,
    loose: Flags | None = None,
) -> Floats:
    """Share, above 0 and at most 1, of the rate of a large product; `depth` is the k that start and end of a tile cost.

    Products without known sizes have the whole rate. Of `grouped` ones the tiles of all groups fill the device
    together, and the rate is `grouped_share` of that of one product. `loose` ones have no rate of their own for sizes
    that are no multiples of 8.
    """
    known = k > 0
    m, n, k = (np.where(known, size, 1.0) for size in (m, n, k))
    unaligned = np.where(count > 1, figures.unaligned_batched_share, figures.unaligned_share)
    batched = figures.batched_share * k / (k + depth)
    if grouped is None or not grouped.any():
        fill = np.where(count > 1, batched, tile_fill(figures, m, n, k, depth))
    else:
        groups = np.where(grouped, count, 1.0)
        fill = tile_fill(figures, m, n, k, depth, groups) * np.where(grouped, figures.grouped_share, 1.0)
        fill = np.where((count > 1) & ~grouped, batched, fill)
        unaligned = np.where(grouped, 1.0, unaligned)  # their rows are padded
    is_aligned = (m % 8 == 0) & (n % 8 == 0) & (k % 8 == 0)
    aligned = np.where(is_aligned if loose is None else is_aligned | loose, 1.0, unaligned)
    return np.asarray(np.where(known, fill * aligned, 1.0))


def tile_fill(
    figures: KernelFigures, m: Floats, n: Floats, k: Floats, depth: Floats, groups: Floats | None = None
) -> Floats:
    """Share of the rate of a large product with the best tile shape and the best number of parts of k; of so many
    products at once, of which none shares a tile with another, where `groups` are given."""
    count = np.ones(len(m)) if groups is None else groups
    best = np.zeros(len(m))
    for height, width in tuning.TILES:
        small = (height * width / tuning.LARGEST_TILE) ** figures.small_tile_exponent
        tiles = count * np.ceil(m / height) * np.ceil(n / width)
        for parts in tuning.PARTS_OF_K:
            waves = tiles * parts / figures.processors
            waves = np.maximum(waves + figures.wave_loss * (np.ceil(waves) - waves), 1.0)
            steps = k / parts + depth * (1 if parts == 1 else 2)  # parts are summed at the end
            best = np.maximum(best, small * count * m * n * k / (waves * figures.processors * height * width * steps))
    return np.minimum(best, 1.0)


def attention_rate(
    figures: KernelFigures, software: Software, count: Floats, queries: Floats, keys: Floats, head: Floats
) -> Floats:
    """Share of the rate of attention with heads of 128 and many keys."""
    rows, columns = (np.ceil(size / tuning.ATTENTION_BLOCK) for size in (queries, keys))
    if software.attention_keys:
        heads = np.minimum(1.0, head / 128) ** software.attention_head_exponent
        whole = rows * columns * tuning.ATTENTION_BLOCK**2
        filled = keys / (keys + software.attention_keys) * np.maximum(queries * keys, 1.0) / np.maximum(whole, 1.0)
    else:
        heads = np.minimum(1.0, head / 128) ** figures.attention_head_exponent
        filled = keys / (keys + figures.attention_keys)
    blocks = rows * count / figures.processors
    return np.asarray(np.where(head > 0, heads * filled * np.minimum(1.0, blocks), 1.0))


def soft_maximum(a: Floats, b: Floats, sharpness: float) -> Floats:
    """(a^q + b^q)^(1/q), without overflow."""
    high, low = np.maximum(np.maximum(a, b), 1e-30), np.minimum(a, b)
    return np.asarray(high * (1 + (low / high) ** sharpness) ** (1 / sharpness))
