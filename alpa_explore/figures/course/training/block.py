"""A block of Llama-3-8B on p devices of H100: which slice of each weight a device has, and the time of a block, in
bfloat16 and with its products in FP8.

Columns, heads, inner, columns, inner: the first product of a pair is divided by its output columns, the second by its
inner loop, so that a pair needs one sum in the forward pass and one in the backward pass.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from alpa_explore import units
from alpa_explore.cluster import Cluster
from alpa_explore.cluster.group import device_group
from alpa_explore.cluster.precisions import RECIPES, recipe_of
from alpa_explore.cost.compute import compute_seconds
from alpa_explore.cost.group_collectives import group_seconds
from alpa_explore.cost.kernels import Kernel, KernelKind
from alpa_explore.figures.course.interactive import Control, with_controls
from alpa_explore.figures.marks import at, axis, bars, note
from alpa_explore.figures.style import OKABE_ITO, Drawing, Trace, ink, stage_color
from alpa_explore.models.catalog import llama
from alpa_explore.sharding.reshard import StepKind

DEGREES = (1, 2, 4, 8, 16)
"""Degrees of tensor parallelism: sixteen devices are two nodes."""
SUMS = ("all-reduce", "sequence parallelism")
"""How the sum of a pair is made: at once, or as a reduce-scatter and, before the next pair, an all-gather."""
Parts: TypeAlias = Sequence[tuple[str, Sequence[float], str, str]]
"""Name, milliseconds of every bar, colour and hatch."""
_BYTES = 2
"""Of an element in bfloat16."""
_PRODUCTS = (
    ("q, k, v", "columns"),
    ("attention", "columns"),
    ("output", "inner"),
    ("gate, up", "columns"),
    ("down", "inner"),
)
"""Name, and the loop that is divided; attention is divided by heads."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockTimes:
    """Seconds of a block, forward and backward, for one microbatch."""

    products_seconds: float
    attention_seconds: float
    sums_seconds: float
    """Four sums of activations, if nothing hides them."""
    casts_seconds: float = 0.0
    """Of what products read, to FP8: a tensor once in each pass."""

    @property
    def seconds(self) -> float:
        """All of it."""
        return self.products_seconds + self.attention_seconds + self.sums_seconds + self.casts_seconds


def block_times(degree: int, sums: str, tokens: int, precision: str = "bf16") -> BlockTimes:
    """By the kernels and collectives of the cost model, on `2x8:h100`; `precision` is that of products, "fp8" or
    "bf16"."""
    recipe = RECIPES.get(recipe_of(precision))
    dtype, read = (recipe.dtype, 1) if recipe else ("bfloat16", _BYTES)
    config, cluster = llama("llama-3-8b"), Cluster.parse("2x8:h100")
    hidden, inner, head = config.hidden, config.ffn // degree, config.hidden // config.heads
    heads, keys = config.heads // degree, max(config.kv_heads // degree, 1)

    def product(n: float, k: float) -> float:
        flops, moved = 2.0 * tokens * n * k, float(read * (tokens * k + k * n) + _BYTES * tokens * n)
        sizes = (1, tokens, n, k)
        return kernel_seconds(cluster, KernelKind.PRODUCT, flops, moved, sizes, dtype)

    def cast(width: int) -> float:
        if recipe is None:
            return 0.0
        moved = recipe.cast_bytes(_BYTES) * tokens * width
        kernel = Kernel(flops=1.0, bytes_accessed=moved, dtype="bfloat16", matrix=False)
        return compute_seconds(cluster.device, kernel)

    def attention(kind: KernelKind, products: int) -> float:
        pairs = heads * tokens * tokens / 2
        moved = float(_BYTES * tokens * head * products * (heads + keys))
        return kernel_seconds(cluster, kind, 2.0 * products * pairs * head, moved, (heads, tokens, tokens, head))

    reads = hidden, heads * head, hidden, inner
    writes = (heads + 2 * keys) * head, hidden, 2 * inner, hidden
    forward = sum(map(product, writes, reads))
    group, size = device_group(cluster, degree, 1), float(_BYTES * tokens * hidden)
    halves = (StepKind.REDUCE_SCATTER, StepKind.ALL_GATHER) if sums == SUMS[1] else (StepKind.ALL_REDUCE,)
    return BlockTimes(
        products_seconds=3 * forward,
        attention_seconds=attention(KernelKind.ATTENTION, 2) + attention(KernelKind.ATTENTION_BACKWARD, 5),
        sums_seconds=4 * sum(group_seconds(half, size, group) for half in halves),
        casts_seconds=sum(map(cast, (*reads, *writes))),
    )


@with_controls(
    "The weights of a transformer block in slices, and the time of a block",
    Control("degree", "Devices", DEGREES, 8),
    Control("sums", "Sums by", SUMS, SUMS[0]),
    Control("tokens", "Tokens", (2048, 8192, 32768), 8192),
)
def block_figure(degree: int, sums: str, tokens: int) -> Drawing:
    """Above, the weights of a block in the slices of its devices; below, the time of a block for every degree."""
    times = {p: block_times(p, sums, tokens) for p in DEGREES}
    own, each = times[degree], 1 if sums == SUMS[0] else degree
    between = units.bytes_(_BYTES * tokens * llama("llama-3-8b").hidden / each)
    title = (
        f"{degree} × H100, {tokens:,} tokens: a block takes {units.seconds(own.seconds)}, "
        f"{units.percent(own.sums_seconds / own.seconds)} of it for sums; between pairs a device holds {between}"
    )
    names, widths = [f"{p} device{'s' * (p > 1)}" for p in DEGREES], [3.0 if p == degree else 0.0 for p in DEGREES]
    parts = (
        ("products", [1e3 * t.products_seconds for t in times.values()], OKABE_ITO[0], ""),
        ("attention", [1e3 * t.attention_seconds for t in times.values()], OKABE_ITO[2], "."),
        (f"sums: {sums}", [1e3 * t.sums_seconds for t in times.values()], OKABE_ITO[1], "/"),
    )
    joins = [("Σ", 2.5), ("Σ", 4.5)] if degree > 1 else []
    return Drawing(
        [*_slices(degree), *_stacked(names, parts, edge=(ink, widths), **at(2))],
        title,
        height=560,
        barmode="overlay",
        bargap=0.3,
        xaxis=axis(ticks={x: name for x, (name, _) in enumerate(_PRODUCTS)}, span=(-0.6, 5), side="top"),
        yaxis=axis(span=(0, 1), domain=[0.6, 0.93], showticklabels=False),
        xaxis2=axis(type="category", anchor="y2"),
        yaxis2=axis("ms, forward and backward", domain=[0.0, 0.44], rangemode="tozero"),
        annotations=[note(name, x, 0.5, size=20) for name, x in joins],
    )


def kernel_seconds(
    cluster: Cluster, kind: KernelKind, flops: float, moved: float, sizes: tuple[float, ...], dtype: str = "bfloat16"
) -> float:
    """Of a kernel that moves so many bytes; `sizes` as in `Kernel`."""
    kernel = Kernel(kind=kind, flops=flops, bytes_accessed=moved, dtype=dtype, matrix=True, sizes=sizes)
    return compute_seconds(cluster.device, kernel)


@with_controls(
    "The time of a transformer block in bfloat16 and with its products in FP8",
    Control("tokens", "Tokens", (512, 2048, 8192, 32768), 8192),
)
def precision_figure(tokens: int) -> Drawing:
    """A pair of bars for each number of devices that share the matrices of a block: bfloat16, and FP8 beside it."""
    degrees = DEGREES[:-1]
    times = {(p, name): block_times(p, SUMS[0], tokens, name) for p in degrees for name in ("bf16", "fp8")}
    gains = [times[p, "bf16"].seconds / times[p, "fp8"].seconds for p in degrees]
    said = ", ".join(f"{gain:.2f} on {p}" for p, gain in zip(degrees[1:], gains[1:], strict=True))
    names = [f"{p} × {name.upper()}" for p, name in times]
    parts = (
        ("products", [1e3 * t.products_seconds for t in times.values()], OKABE_ITO[0], ""),
        ("casts", [1e3 * t.casts_seconds for t in times.values()], OKABE_ITO[4], "x"),
        ("attention", [1e3 * t.attention_seconds for t in times.values()], OKABE_ITO[2], "."),
        ("sums", [1e3 * t.sums_seconds for t in times.values()], OKABE_ITO[1], "/"),
    )
    return Drawing(
        _stacked(names, parts),
        f"{tokens:,} tokens: FP8 is {gains[0]:.2f} times as fast on one device, {said}",
        height=420,
        barmode="overlay",
        bargap=0.3,
        xaxis=axis("devices × format of products", type="category"),
        yaxis=axis("ms, forward and backward", rangemode="tozero"),
        meta={"least_width": 540},
    )


def _stacked(names: list[str], parts: Parts, **looks: Any) -> list[Trace]:
    """Bars of parts on one another."""
    found, bases = list[Trace](), [0.0] * len(names)
    for name, milliseconds, color, hatch in parts:
        hover = [f"{name}: {units.seconds(1e-3 * value)}" for value in milliseconds]
        found.append(bars(names, milliseconds, color, hatch, base=bases, hover=hover, name=name, **looks))
        bases = [base + value for base, value in zip(bases, milliseconds, strict=True)]
    return found


def _slices(degree: int) -> list[Trace]:
    """A rectangle for each product, cut in columns or in rows."""
    traces = []
    for device in range(degree):
        share, wide = 1 / degree, 0.8
        columns = [loop == "columns" for _, loop in _PRODUCTS]
        x = [place + (wide * ((device + 0.5) * share - 0.5) if c else 0.0) for place, c in enumerate(columns)]
        hover = [
            f"device {device}: {'heads' if name == 'attention' else loop} {device + 1} of {degree}"
            for name, loop in _PRODUCTS
        ]
        looks = {
            "base": [0.0 if c else 1 - (device + 1) * share for c in columns],
            "width": [wide * share if c else wide for c in columns],
            "listed": False,
        }
        heights = [1.0 if c else share for c in columns]
        traces.append(bars(x, heights, stage_color(device), hover=hover, **looks))
    return traces
