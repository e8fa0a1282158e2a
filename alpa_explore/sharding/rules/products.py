"""Matrix products, convolutions, pooling and resampling. The products are heavy: replicated only if nothing else is
legal.

Of a matrix product M, N and batch dims are spatial, K is reduced. Of a convolution batch and channels are sharded,
never height and width: that would need halo exchanges.
"""

from dataclasses import replace
from typing import cast

from alpa_explore.graph import Operator
from alpa_explore.sharding.rules.factors import (
    Splits,
    Tensors,
    each_plane,
    einsum,
    elementwise,
    from_factors,
    kinds,
    nonempty,
)
from alpa_explore.sharding.spec import PARTIAL, REPLICATE
from alpa_explore.sharding.strategy import Split
from alpa_explore.units import DTYPE_BYTES

_BATCH = "bcdefg"


def matmul(operator: Operator, inputs: Tensors, outputs: Tensors) -> Splits:
    """(…, M, K) × (…, K, N) with equal batch dims (bmm, and the 4-D products of attention)."""
    batch = _BATCH[: len(outputs[0].shape) - 2]
    return from_factors(f"{batch}mk,{batch}kn->{batch}mn", inputs, outputs)


_GROUPED = {(2, 3): ".k,.kn,.->.n", (3, 2): ".mk,k.,.->m.", (2, 2): "m.,.n,.->.mn", (3, 3): "bmk,bkn->bmn"}
"""Ranks of the two operands -> equation. The third input holds the end of each expert's rows; which rows belong to an
expert depends on its values, so that dim is never sharded. The product of two rank-3 operands has no such input."""
_ALIGNMENT_BYTES = 16


def aten_grouped_mm(operator: Operator, inputs: Tensors, outputs: Tensors) -> Splits:
    """torch's own grouped product, forward and backward. The kernel requires strides that are multiples of 16 bytes, so
    shards of a dim are multiples of that too. With a bias (which torch does not support yet) it is not sharded."""
    equation = _GROUPED[len(inputs[0].shape), len(inputs[1].shape)]
    if equation.count(",") + 1 != len(inputs):
        return ()
    elements_together = _ALIGNMENT_BYTES // DTYPE_BYTES[inputs[0].dtype]
    splits = from_factors(equation, inputs, outputs)
    return tuple(
        s if s.factor == "b" else replace(s, size=s.size // elements_together)
        for s in splits
        if s.factor == "b" or (s.size % elements_together == 0 and s.size > elements_together)
    )


def convolution(operator: Operator, inputs: Tensors, outputs: Tensors) -> Splits:
    """(x, weight, bias?): batch and output channels are spatial, input channels are reduced (ungrouped only).

    As in addmm only the first device adds the bias when input channels are sharded. Groups (depthwise: one per channel)
    are spatial. A transposed convolution is sharded along the batch only.
    """
    x, weight = inputs[:2]
    bias = len(inputs) > 2
    batch = Split("batch", x.shape[0], (0, *(REPLICATE,) * (len(inputs) - 1)), (0,))
    transposed, groups = operator.arguments[6], cast(int, operator.arguments[8])
    if transposed is True:
        return nonempty(batch)
    if groups > 1:
        return nonempty(batch, Split("groups", groups, (1, 0, *((0,) if bias else ())), (1,)))
    out = Split("out", weight.shape[0], (REPLICATE, 0, *((0,) if bias else ())), (1,))
    into = Split("in", weight.shape[1], (1, 1, *((REPLICATE,) if bias else ())), (PARTIAL,))
    return nonempty(batch, out, into)


def convolution_backward(operator: Operator, inputs: Tensors, outputs: Tensors) -> Splits:
    """(dy, x, weight) -> those of (dx, dweight, dbias) that the mask selects."""
    mask = cast("tuple[bool, ...]", operator.arguments[10])
    x, weight = inputs[1], inputs[2]

    def of_outputs(dx: int, dweight: int, dbias: int) -> tuple[int, ...]:
        return tuple(p for p, selected in zip((dx, dweight, dbias), mask, strict=True) if selected)

    batch = Split("batch", x.shape[0], (0, 0, REPLICATE), of_outputs(0, PARTIAL, PARTIAL))
    groups = cast(int, operator.arguments[9])
    if operator.arguments[7] is True:
        return nonempty(batch)
    if groups > 1:
        return nonempty(batch, Split("groups", groups, (1, 1, 0), of_outputs(1, 0, 0)))
    out = Split("out", weight.shape[0], (1, REPLICATE, 0), of_outputs(PARTIAL, 0, 0))
    into = Split("in", weight.shape[1], (REPLICATE, 1, 1), of_outputs(1, 1, REPLICATE))
    # With an `in` split every device computes the whole bias gradient: legal, and only that small work is replicated.
    return nonempty(batch, out, into)


def resampled(operator: Operator, inputs: Tensors, outputs: Tensors) -> Splits:
    """Samples and channels of images of one, two or three dims."""
    return elementwise(inputs, outputs, uncut=range(2, len(outputs[0].shape)))


_NEAREST = " ".join(f"upsample_nearest{n}d _upsample_nearest_exact{n}d" for n in (1, 2, 3))
_WEIGHTED = "upsample_linear1d upsample_bilinear2d upsample_trilinear3d upsample_bicubic2d _upsample_bilinear2d_aa"
RESAMPLING = f"{_NEAREST} {_WEIGHTED} _upsample_bicubic2d_aa"
RESAMPLING_BACKWARD = " ".join(f"{name}_backward" for name in RESAMPLING.split())
_PRODUCTS = {
    **kinds("mm", einsum("mk,kn->mn")),
    **kinds("bmm matmul", matmul),
    # With K sharded only the first device of the axis adds the bias (sharding.local).
    **kinds("addmm", einsum("mn,mk,kn->mn")),
    **kinds("baddbmm", einsum("bmn,bmk,bkn->bmn")),
    **kinds("_grouped_mm", aten_grouped_mm),
    # Each expert's rows times its matrix. Which rows belong to which expert depends on values, so neither is sharded.
    **kinds("grouped_mm_fallback", einsum(".k,.kn,.->.n"), "transformers"),
    **kinds("grouped_mm_fallback_backward", einsum(".k,.kn,.,.n->.k,.kn"), "transformers"),
    **kinds("convolution", convolution),
    **kinds("convolution_backward", convolution_backward),
}
RULES = {
    **_PRODUCTS,
    **kinds("max_pool2d_with_indices max_pool2d_with_indices_backward avg_pool2d avg_pool2d_backward", each_plane),
    **kinds("_adaptive_avg_pool2d _adaptive_avg_pool2d_backward", each_plane),
    **kinds(f"{RESAMPLING} {RESAMPLING_BACKWARD}", resampled),
}
HEAVY = frozenset(_PRODUCTS)
