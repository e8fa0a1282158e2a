"""Matrix products, convolutions, pooling, resampling."""

import torch

from alpa_explore.sharding.rules.products import RESAMPLING, RESAMPLING_BACKWARD
from tests.sharding.call import Call, real


def convolution(*, x=(8, 8, 6, 6), weight=(16, 8, 3, 3), bias=True, groups=1, transposed=False, factors):
    return Call(
        "aten.convolution.default",
        real(*x),
        real(*weight),
        real(weight[0]) if bias else None,
        [1, 1],
        [1, 1],
        [1, 1],
        transposed,
        [0, 0],
        groups,
        factors=factors,
    )


def convolution_backward(
    *, x=(8, 8, 6, 6), weight=(16, 8, 3, 3), groups=1, mask=(True, True, True), transposed=False, factors
):
    dy = real(x[0], weight[0], *x[2:])
    return Call(
        "aten.convolution_backward.default",
        dy,
        real(*x),
        real(*weight),
        [weight[0]],
        [1, 1],
        [1, 1],
        [1, 1],
        transposed,
        [0, 0],
        groups,
        list(mask),
        factors=factors,
    )


_ends = torch.tensor([3, 3, 10, 16], dtype=torch.int32)


def grouped(a, b, *ends, factors):
    single = (real(*shape, dtype=torch.float32) for shape in (a, b))
    return Call("aten._grouped_mm.default", *single, *ends, factors=factors)


def _resampled(name):
    """Of an image with this many dims, to one that is 3 times as large."""
    rank = next(n for n in (1, 2, 3) if f"{n}d" in name)
    small, large = [4] * rank, [12] * rank
    given = (large, [4, 8, *small]) if name.endswith("_backward") else (large,)
    corners = () if "nearest" in name else (False,)
    image = real(4, 8, *(large if name.endswith("_backward") else small))
    return Call(f"aten.{name}.default", image, *given, *corners, factors="dim0 dim1")


_image = real(4, 8, 8, 8)
_pooled, _places = torch.ops.aten.max_pool2d_with_indices(_image, [2, 2])

CALLS = (
    Call("aten.mm.default", real(8, 16), real(16, 24), factors="m k n"),
    Call("aten.mm.default", real(8, 16, dtype=torch.bfloat16), real(16, 8, dtype=torch.bfloat16), factors="m k n"),
    Call("aten.mm.default", real(1, 16), real(16, 24), factors="k n"),
    Call("aten.bmm.default", real(8, 4, 8), real(8, 8, 16), factors="b m k n"),
    Call("aten.matmul.default", real(4, 8, 4, 8), real(4, 8, 8, 4), factors="b c m k n"),
    Call("aten.addmm.default", real(24), real(8, 16), real(16, 24), factors="n m k"),
    Call("aten.addmm.default", real(8, 24), real(8, 16), real(16, 24), factors="m n k", beta=0.5, alpha=2.0),
    Call("aten.addmm.default", real(1, 24), real(8, 16), real(16, 24), factors="m n k"),
    Call("aten.baddbmm.default", real(8, 4, 8), real(8, 4, 8), real(8, 8, 8), factors="b m n k"),
    Call("aten.baddbmm.default", real(4, 8), real(8, 4, 8), real(8, 8, 8), factors="m n b k", beta=2),
    grouped((16, 32), (4, 32, 64), _ends, factors="k n"),
    grouped((32, 16), (16, 64), _ends, factors="m n"),
    grouped((4, 32, 64), (64, 16), _ends, factors="m k"),
    grouped((8, 32, 32), (8, 32, 64), factors="b m k n"),
    convolution(factors="batch out in"),
    convolution(bias=False, factors="batch out in"),
    convolution(weight=(8, 1, 3, 3), groups=8, factors="batch groups"),
    convolution(weight=(16, 4, 3, 3), groups=2, factors="batch groups"),
    convolution(weight=(8, 8, 3, 3), transposed=True, factors="batch"),
    convolution_backward(factors="batch out in"),
    convolution_backward(mask=(True, True, False), factors="batch out in"),
    convolution_backward(mask=(False, True, True), factors="batch out in"),
    convolution_backward(weight=(8, 1, 3, 3), groups=8, factors="batch groups"),
    convolution_backward(weight=(8, 8, 3, 3), transposed=True, factors="batch"),
    Call("aten.max_pool2d_with_indices.default", _image, [2, 2], factors="dim0 dim1"),
    Call("aten.max_pool2d_with_indices.default", real(8, 6, 6), [3, 3], [2, 2], [1, 1], factors="dim0"),
    Call(
        "aten.max_pool2d_with_indices_backward.default",
        real(4, 8, 4, 4),
        _image,
        [2, 2],
        [2, 2],
        [0, 0],
        [1, 1],
        False,
        _places,
        factors="dim0 dim1",
    ),
    Call("aten.avg_pool2d.default", _image, [2, 2], factors="dim0 dim1"),
    Call(
        "aten.avg_pool2d_backward.default",
        real(4, 8, 4, 4),
        _image,
        [2, 2],
        [],
        [0, 0],
        False,
        True,
        None,
        factors="dim0 dim1",
    ),
    Call("aten._adaptive_avg_pool2d.default", _image, [1, 1], factors="dim0 dim1"),
    Call("aten._adaptive_avg_pool2d_backward.default", real(4, 8, 1, 1), _image, factors="dim0 dim1"),
    *(_resampled(name) for name in f"{RESAMPLING} {RESAMPLING_BACKWARD}".split()),
)

GROUPED = (
    Call("transformers.grouped_mm_fallback.default", real(16, 8), real(4, 8, 24), _ends, factors="k n"),
    Call(
        "transformers.grouped_mm_fallback_backward.default",
        real(16, 8),
        real(4, 8, 24),
        _ends,
        real(16, 24),
        factors="k n",
    ),
)
"""These kinds are known to torch only after transformers was imported."""
