"""Softmax and log-softmax whose dim is sharded: every row needs a maximum and a sum over devices.

With m = max x and s = Σ exp(x − m), both over the whole row: softmax is exp(x − m) / s, log-softmax x − m − log s. The
maximum of the whole row is subtracted before the sum, so that nothing overflows: two all-reduces of one number a row.
Backwards one suffices: dx = (dy − Σ dy·y)·y for y a softmax, dx = dy − exp(y)·Σ dy for y a log-softmax. It is how
Megatron-LM's cross-entropy runs over a divided vocabulary (Shoeybi et al. 2019, arXiv 1909.08053, §3).

Each function returns None where its strategy leaves the dim whole: the operator then runs unchanged.
"""

from __future__ import annotations

from typing import cast

from alpa_explore.graph import Ref
from alpa_explore.sharding.local.shard import Shard
from alpa_explore.sharding.local.steps import LocalCall, Reduction, StepWriter, accumulator

_LOWEST = float("-inf")


def softmax(shard: Shard, steps: StepWriter) -> LocalCall | None:
    """(x, dim, …) -> softmax, safe softmax (0 where a whole row is −inf) or log-softmax of x along `dim`."""
    axes = shard.synced_axes()
    if not axes:
        return None
    x, given = shard.inputs[0], shard.outputs[0].dtype
    dim = cast(int, steps.arguments[1]) % len(x.shape)
    width = accumulator(given)
    wide = steps.cast(cast(Ref, steps.arguments[0]), x.dtype, width)
    largest = steps.all_reduce(steps.call("aten.amax.default", wide, (dim,), True), axes, Reduction.MAXIMUM)
    below = steps.call("aten.sub.Tensor", wide, largest)
    exponential = steps.call("aten.exp.default", below)
    total = steps.all_reduce(steps.call("aten.sum.dim_IntList", exponential, (dim,), True), axes)
    if shard.operator.kind == "aten._log_softmax.default":
        made = steps.call("aten.sub.Tensor", below, steps.call("aten.log.default", total))
    else:
        made = steps.call("aten.div.Tensor", exponential, total)
    if shard.operator.kind == "aten._safe_softmax.default":
        made = steps.call("aten.masked_fill.Scalar", made, steps.call("aten.eq.Scalar", largest, _LOWEST), 0)
    return steps.finish([steps.cast(made, width, given)])


def softmax_backward(shard: Shard, steps: StepWriter) -> LocalCall | None:
    """(dy, y, dim, dtype of x) -> dx, for y a softmax or a log-softmax along `dim`."""
    axes = shard.synced_axes()
    if not axes:
        return None
    gradient, output = shard.inputs
    dim = cast(int, steps.arguments[2]) % len(output.shape)
    width = accumulator(output.dtype)
    dy = steps.cast(cast(Ref, steps.arguments[0]), gradient.dtype, width)
    y = steps.cast(cast(Ref, steps.arguments[1]), output.dtype, width)
    if shard.operator.kind == "aten._log_softmax_backward_data.default":
        total = steps.all_reduce(steps.call("aten.sum.dim_IntList", dy, (dim,), True), axes)
        share = steps.call("aten.mul.Tensor", steps.call("aten.exp.default", y), total)
        dx = steps.call("aten.sub.Tensor", dy, share)
    else:
        product = steps.call("aten.mul.Tensor", dy, y)
        total = steps.all_reduce(steps.call("aten.sum.dim_IntList", product, (dim,), True), axes)
        dx = steps.call("aten.sub.Tensor", product, steps.call("aten.mul.Tensor", y, total))
    return steps.finish([steps.cast(dx, width, shard.outputs[0].dtype)])
