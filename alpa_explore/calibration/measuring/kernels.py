"""Time kernels of one device: matrix products, fused attention, a memory-bound kernel."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
import torch.nn.functional as F
from torch import Tensor

from alpa_explore.calibration import tuning
from alpa_explore.calibration.measurements import AttentionTime, Point, Product
from alpa_explore.calibration.measuring.clock import Clock

DTYPES = {"cpu": ("float32", "bfloat16", "float64"), "cuda": ("float16", "bfloat16", "float32", "float64")}
"""The dtypes of square products; the first is that of the kept curve."""
SHAPED = {"cpu": ("float32",), "cuda": ("bfloat16", "float16", "float32", "float8_e4m3fn")}
"""The dtypes of products of other shapes."""
ATTENDING = {"cpu": ("float32",), "cuda": ("bfloat16", "float16")}


def square_products(clock: Clock, dtype: str) -> list[Point]:
    """Square products with doubling sides; size is FLOPs."""
    points, side = [], 32
    while side <= tuning.LARGEST_SIDE[clock.kind]:
        a = torch.randn(side, side, device=clock.kind).to(getattr(torch, dtype))
        out = torch.empty_like(a)

        def kernel(a: Tensor = a, out: Tensor = out) -> None:
            torch.mm(a, a, out=out)

        seconds = clock(kernel)
        points.append(Point(size=2.0 * side**3, seconds=seconds))
        if 8 * seconds > tuning.SLOWEST_SECONDS:
            break
        side *= 2
    return points


def shapes(kind: str) -> Iterator[tuple[int, ...]]:
    """(m, n, k), and count where it is not 1, of products as in transformer layers, in units of a width: rows of few
    and many tokens, wide and narrow weights (what tensor parallelism leaves), short inner dims, dims that do not fill
    the tiles, and the batches of spelled-out attention."""
    unit = tuning.PRODUCT_UNIT[kind]
    for m in (unit // 4, unit, 4 * unit):
        for n, k in ((1, 1), (3, 1), (4, 1), (1, 4), (4, 4), (0.125, 1), (1, 0.125)):
            yield m, int(n * unit), int(k * unit)
    for k in (16, 32, 64, 128, 256):
        yield unit, unit, k
    for extra in (16, 64, 128, 192):
        yield unit, unit + extra, unit
    for m, n, k in ((0, 1, 0), (1, 0, 0), (0, 0, 1), (0, 4, 0), (0, 0, 8)):
        yield unit + m, unit + n, unit + k
    for m, n, k in ((unit // 4, unit // 4, 64), (unit // 4, 64, unit // 4)):
        yield m, n, k, 32
    if kind == "cuda":
        yield from ((4096, 50257, 1024), (4096, 50304, 1024), (8192, 8192, 8192), (8192, 16384, 8192))


def products(clock: Clock, dtype: str) -> list[Product]:
    """Products of `shapes`; none where the device has no such product. A shape that it refuses is left out."""
    found: list[Product] = []
    for m, n, k, *batched in shapes(clock.kind):
        count = batched[0] if batched else 1
        kernel = _product(clock.kind, dtype, m, n, k, count)
        if kernel is not None:
            found.append(Product(dtype=dtype, m=m, n=n, k=k, count=count, seconds=clock(kernel)))
    return found


def attention(clock: Clock, dtype: str) -> list[AttentionTime]:
    """Attention over samples · heads, sequence, head dim and mask, forward and backward."""
    found: list[AttentionTime] = []
    for heads, sequence, head in tuning.ATTENTION_SHAPES[clock.kind]:
        for causal in (True, False):
            shape = (1, heads, sequence, head)
            q, k, v = (_random(clock.kind, dtype, *shape).requires_grad_() for _ in range(3))

            def forward(q: Tensor = q, k: Tensor = k, v: Tensor = v, causal: bool = causal) -> object:
                with torch.no_grad():
                    return F.scaled_dot_product_attention(q, k, v, is_causal=causal)

            out = F.scaled_dot_product_attention(q, k, v, is_causal=causal)
            gradient = torch.ones_like(out)

            def backward(
                out: Tensor = out, gradient: Tensor = gradient, inputs: tuple[Tensor, ...] = (q, k, v)
            ) -> object:
                return torch.autograd.grad(out, inputs, gradient, retain_graph=True)

            found.append(
                AttentionTime(
                    dtype=dtype,
                    batch_heads=heads,
                    sequence=sequence,
                    head=head,
                    causal=causal,
                    forward_seconds=clock(forward),
                    backward_seconds=clock(backward),
                )
            )
    return found


def memory(clock: Clock) -> list[Point]:
    """An elementwise sum of growing size; size is bytes read and written. Small tensors take turns, so that a cache
    holds none of them."""
    points = []
    for exponent in range(6, tuning.LARGEST_BYTES[clock.kind].bit_length() - 2, 2):
        copies = max(1, min(tuning.CACHE_BYTES[clock.kind] // (8 * 2**exponent), tuning.MOST_COPIES))
        pairs = [(a, torch.empty_like(a)) for a in torch.ones(copies, 2**exponent, device=clock.kind)]
        turn = 0

        def kernel(pairs: list[tuple[Tensor, Tensor]] = pairs) -> None:
            nonlocal turn
            a, out = pairs[turn]
            turn = (turn + 1) % len(pairs)
            torch.add(a, a, out=out)

        seconds = clock(kernel)
        points.append(Point(size=2.0 * 4 * 2**exponent, seconds=seconds))
        if 4 * seconds > tuning.SLOWEST_SECONDS:
            break
    return points


def _random(kind: str, dtype: str, *shape: int) -> Tensor:
    """Random numbers: a GPU runs products of zeros faster, because it draws less power."""
    return torch.randn(shape, device=kind).to(getattr(torch, dtype))


def _product(kind: str, dtype: str, m: int, n: int, k: int, count: int) -> Callable[[], object] | None:
    if count > 1:
        if dtype.startswith("float8"):
            return None
        many, others = _random(kind, dtype, count, m, k), _random(kind, dtype, count, n, k)
        results = torch.empty(count, m, n, dtype=many.dtype, device=kind)
        return lambda: torch.bmm(many, others.transpose(1, 2), out=results)
    a, b = _random(kind, dtype, m, k), _random(kind, dtype, n, k)
    if not dtype.startswith("float8"):
        out = torch.empty(m, n, dtype=a.dtype, device=kind)
        return lambda: torch.mm(a, b.t(), out=out)
    one = torch.ones((), device=kind)

    def scaled() -> Tensor:
        result: Tensor = torch._scaled_mm(a, b.t(), scale_a=one, scale_b=one, out_dtype=torch.bfloat16)
        return result

    try:
        scaled()
    except RuntimeError:  # no such units, or dims that they refuse
        return None
    return scaled
