"""Convolutions and pooling. Batch and channels are sharded, never height and width: that would need halo exchanges."""

from typing import cast

from alpa_explore.graph import Operator
from alpa_explore.sharding.rules.factors import Splits, Tensors, each_plane, kinds
from alpa_explore.sharding.spec import PARTIAL, REPLICATE
from alpa_explore.sharding.strategy import Split


def _nonempty(*splits: Split) -> Splits:
    return tuple(s for s in splits if s.size > 1)


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
        return _nonempty(batch)
    if groups > 1:
        return _nonempty(batch, Split("groups", groups, (1, 0, *((0,) if bias else ())), (1,)))
    out = Split("out", weight.shape[0], (REPLICATE, 0, *((0,) if bias else ())), (1,))
    into = Split("in", weight.shape[1], (1, 1, *((REPLICATE,) if bias else ())), (PARTIAL,))
    return _nonempty(batch, out, into)


def convolution_backward(operator: Operator, inputs: Tensors, outputs: Tensors) -> Splits:
    """(dy, x, weight) -> those of (dx, dweight, dbias) that the mask selects."""
    mask = cast("tuple[bool, ...]", operator.arguments[10])
    x, weight = inputs[1], inputs[2]

    def of_outputs(dx: int, dweight: int, dbias: int) -> tuple[int, ...]:
        return tuple(p for p, selected in zip((dx, dweight, dbias), mask, strict=True) if selected)

    batch = Split("batch", x.shape[0], (0, 0, REPLICATE), of_outputs(0, PARTIAL, PARTIAL))
    groups = cast(int, operator.arguments[9])
    if operator.arguments[7] is True:
        return _nonempty(batch)
    if groups > 1:
        return _nonempty(batch, Split("groups", groups, (1, 1, 0), of_outputs(1, 0, 0)))
    out = Split("out", weight.shape[0], (1, REPLICATE, 0), of_outputs(PARTIAL, 0, 0))
    into = Split("in", weight.shape[1], (REPLICATE, 1, 1), of_outputs(1, 1, REPLICATE))
    # With an `in` split every device computes the whole bias gradient: legal, and only that small work is replicated.
    return _nonempty(batch, out, into)


RULES = {
    **kinds("convolution", convolution),
    **kinds("convolution_backward", convolution_backward),
    **kinds("max_pool2d_with_indices max_pool2d_with_indices_backward avg_pool2d avg_pool2d_backward", each_plane),
    **kinds("_adaptive_avg_pool2d _adaptive_avg_pool2d_backward", each_plane),
}
HEAVY = frozenset(("aten.convolution.default", "aten.convolution_backward.default"))
