"""Losses over class scores, with the batch or the classes sharded.

With the batch sharded the loss is a pending sum over the rows of all devices; its divisor, the total weight of the
targets that are not ignored, is all-reduced. With the classes sharded a device adds the losses of the targets among its
own classes: the loss is a pending sum again, and backwards a device writes the gradient of its own classes only.

Softmax and log-softmax along a sharded dim need a maximum and a sum over devices for every row. With m = max x and
s = Σ exp(x − m), both over the whole row: softmax is exp(x − m) / s, log-softmax x − m − log s. The maximum of the
whole row is subtracted before the sum, so that nothing overflows: two all-reduces of one number a row. Backwards one
suffices: dx = (dy − Σ dy·y)·y for y a softmax, dx = dy − exp(y)·Σ dy for y a log-softmax. It is how Megatron-LM's
cross-entropy runs over a divided vocabulary (Shoeybi et al. 2019, arXiv 1909.08053, §3). The functions return None
where the strategy leaves the dim whole: the operator then runs unchanged.
"""

from dataclasses import dataclass
from typing import cast

from alpa_explore.graph import Argument, Ref, Symbol
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


_CLASSES = 1
"""The dim of the classes in scores [N, C, …]."""
_FOREIGN = -100
"""The target that a device with a shard of the classes ignores; no class has a negative number."""
_NONE, _MEAN = 0, 1
"""torch's codes of the reductions: a loss per target, their mean; 2 is their sum."""


@dataclass(frozen=True, slots=True)
class _Targets:
    """The targets as a device reads them."""

    local: Argument
    """Relative to the device's first class; those of other devices and the ignored ones have the number `ignored`."""
    ignored: Argument


def nll_forward(shard: Shard, steps: StepWriter) -> LocalCall | None:
    """(scores, targets, weight?, reduction, ignored) -> (loss of this device, total weight of all devices).

    None where its strategy needs nothing more than the operator itself.
    """
    kind, dtype, axes = shard.operator.kind, shard.inputs[0].dtype, shard.synced_axes()
    scores, targets, weight, reduction, ignored = steps.arguments
    if not axes and not _divided(shard, 0):
        return None
    own = _own_targets(shard, steps, 0, targets, ignored)
    if reduction == _NONE:
        return steps.finish(steps.call_all(kind, (scores, own.local, weight, _NONE, own.ignored), {}, 2))
    width = accumulator(dtype)
    loss = _nll_sum(steps, kind, own, width)
    if weight is None:
        counted = steps.call("aten.ne.Scalar", targets, ignored)
        local = steps.call("aten.sum.default", counted, dtype=Symbol("dtype", width))
    else:
        weights = steps.call_all(kind, (scores, own.local, weight, 2, own.ignored), {}, 2)[1]
        local = steps.cast(weights, dtype, width)
    total = steps.all_reduce(local, axes)
    if reduction == _MEAN:
        loss = steps.call("aten.div.Tensor", loss, total)
    return steps.finish([steps.cast(loss, width, dtype), steps.cast(total, width, dtype)])


def nll_over(shard: Shard, steps: StepWriter) -> LocalCall:
    """The same mean, divided by a total weight that is one more input after the operator's own."""
    total = steps.one_more_input()
    dtype, (_, targets, _, _, ignored) = shard.inputs[0].dtype, steps.arguments
    own = _own_targets(shard, steps, 0, targets, ignored)
    width = accumulator(dtype)
    loss = steps.call("aten.div.Tensor", _nll_sum(steps, shard.operator.kind, own, width), total)
    return steps.finish([steps.cast(loss, width, dtype), total])


def nll_backward(shard: Shard, steps: StepWriter) -> LocalCall | None:
    """(dloss, scores, targets, weight?, reduction, ignored, total weight) -> dscores, of the local classes.

    None where the classes are whole.
    """
    if not _divided(shard, 1):
        return None
    gradient, scores, targets, weight, reduction, ignored, total = steps.arguments
    own = _own_targets(shard, steps, 1, targets, ignored)
    arguments = (gradient, scores, own.local, weight, reduction, own.ignored, total)
    return steps.finish([steps.call(shard.operator.kind, *arguments)])


def _divided(shard: Shard, scores: int) -> bool:
    """Whether the classes are sharded; `scores` is the place of the scores among the inputs."""
    return _CLASSES in shard.strategy.inputs[scores]


def _own_targets(shard: Shard, steps: StepWriter, scores: int, targets: Argument, ignored: Argument) -> _Targets:
    if not _divided(shard, scores):
        return _Targets(targets, ignored)
    count = shard.input_shape(scores)[_CLASSES]
    first = shard.block(shard.strategy.inputs[scores], _CLASSES) * count
    shifted = steps.call("aten.sub.Tensor", targets, first)
    before, after = steps.call("aten.lt.Scalar", shifted, 0), steps.call("aten.ge.Scalar", shifted, count)
    foreign = steps.call("aten.bitwise_or.Tensor", before, after)
    if cast(int, ignored) >= 0:  # a class; a negative number is foreign to every device already
        foreign = steps.call("aten.bitwise_or.Tensor", foreign, steps.call("aten.eq.Scalar", targets, ignored))
    return _Targets(steps.call("aten.masked_fill.Scalar", shifted, foreign, _FOREIGN), _FOREIGN)


def _nll_sum(steps: StepWriter, kind: str, own: _Targets, width: str) -> Ref:
    """The sum of the losses of the local targets, in dtype `width`."""
    scores, _, weight = steps.arguments[:3]
    losses, _ = steps.call_all(kind, (scores, own.local, weight, _NONE, own.ignored), {}, 2)
    return steps.call("aten.sum.default", losses, dtype=Symbol("dtype", width))
