"""Operators whose devices sum something halfway through: batch norm, softmax and losses over class scores.

Each function returns None where its strategy needs no sum: the operator then runs unchanged.

Batch norm over a sharded batch: x̂ = (x − μ)·r with μ = Σx / n, r = 1 / sqrt(Σ(x − μ)² / n + ε), all over the whole
batch of n = N·H·W entries a channel; y = w·x̂ + b. Backwards, with s₁ = Σdy and s₂ = Σdy·x̂: dx = w·r·(dy − s₁/n −
x̂·s₂/n), dw = s₂, db = s₁. Deviations are taken from the global mean (two all-reduces of one number a channel) because
Σx² − n·μ² cancels.

Losses: with the batch sharded the loss is a pending sum over the rows of all devices; its divisor, the total weight of
the targets that are not ignored, is all-reduced. With the classes sharded a device adds the losses of the targets among
its own classes: the loss is a pending sum again, and backwards a device writes the gradient of its own classes only.

Softmax and log-softmax along a sharded dim need a maximum and a sum over devices for every row. With m = max x and
s = Σ exp(x − m), both over the whole row: softmax is exp(x − m) / s, log-softmax x − m − log s. The maximum of the
whole row is subtracted before the sum, so that nothing overflows: two all-reduces of one number a row. Backwards one
suffices: dx = (dy − Σ dy·y)·y for y a softmax, dx = dy − exp(y)·Σ dy for y a log-softmax. It is how Megatron-LM's
cross-entropy runs over a divided vocabulary (Shoeybi et al. 2019, arXiv 1909.08053, §3).
"""

from typing import TypeAlias, cast

from alpa_explore.graph import Argument, Ref, Symbol
from alpa_explore.sharding.local.steps import LocalCall, Reduction, Shard, StepWriter, accumulator


def _channel_sum(steps: StepWriter, value: Argument, rank: int, axes: tuple[int, ...]) -> Ref:
    """Sum over all dims but the channels (dim 1) and over the devices along `axes`."""
    local = steps.call("aten.sum.dim_IntList", value, tuple(d for d in range(rank) if d != 1), False)
    return steps.all_reduce(local, axes)


class _Channels:
    """Arithmetic of a tensor [N, C, …] with vectors [C], one entry a channel."""

    def __init__(self, shard: Shard, steps: StepWriter, x: int) -> None:
        self.steps, self.tensor = steps, shard.inputs[x]
        self.rank = len(self.tensor.shape)
        self.count = self.tensor.elements // self.tensor.shape[1]
        self.row = (1, shard.input_shape(x)[1], *(1,) * (self.rank - 2))

    def with_vector(self, kind: str, value: Ref, vector: Ref) -> Ref:
        """`value` sub, mul or add (`kind`) a vector [C], broadcast over the other dims."""
        return self.steps.call(f"aten.{kind}.Tensor", value, self.steps.call("aten.view.default", vector, self.row))


def _wide(shard: Shard, steps: StepWriter, value: Argument, width: str) -> Ref:
    """An argument of the operator, cast to the accumulator dtype `width`."""
    assert isinstance(value, Ref)
    return steps.cast(value, shard.inputs[value.tensor].dtype, width)


def batch_norm(shard: Shard, steps: StepWriter) -> LocalCall | None:
    """(x, weight?, bias?, [running mean, running variance,] training, momentum, ε) with statistics of all devices."""
    axes = shard.synced_axes()
    if not axes:
        return None
    x, weight, bias = steps.arguments[:3]
    momentum, epsilon = (cast(float, a) for a in steps.arguments[-2:])
    width = accumulator(shard.inputs[0].dtype)
    channels = _Channels(shard, steps, 0)
    wide = _wide(shard, steps, x, width)
    mean = steps.call("aten.div.Scalar", _channel_sum(steps, wide, channels.rank, axes), channels.count)
    centred = channels.with_vector("sub", wide, mean)
    squares = _channel_sum(steps, steps.call("aten.mul.Tensor", centred, centred), channels.rank, axes)
    variance = steps.call("aten.div.Scalar", squares, channels.count)
    rstd = steps.call("aten.rsqrt.default", steps.call("aten.add.Scalar", variance, epsilon))
    y = channels.with_vector("mul", centred, rstd)
    if weight is not None:
        y = channels.with_vector("mul", y, _wide(shard, steps, weight, width))
    if bias is not None:
        y = channels.with_vector("add", y, _wide(shard, steps, bias, width))
    made = [y, mean, rstd]
    if len(shard.outputs) > 3:
        # The running variance is the unbiased one.
        unbiased = steps.call("aten.div.Scalar", squares, max(channels.count - 1, 1))
        for old, new in zip(steps.arguments[3:5], (mean, unbiased), strict=True):
            kept = steps.call("aten.mul.Scalar", _wide(shard, steps, old, width), 1 - momentum)
            made.append(steps.call("aten.add.Tensor", kept, steps.call("aten.mul.Scalar", new, momentum)))
    return steps.finish([steps.cast(v, width, t.dtype) for v, t in zip(made, shard.outputs, strict=True)])


def batch_norm_backward(shard: Shard, steps: StepWriter) -> LocalCall | None:
    """(dy, x, weight?, running…, mean, rstd, training, ε, mask) -> those of (dx, dw, db) that the mask selects."""
    axes = shard.synced_axes()
    if not axes:
        return None
    dy, x, weight, _, _, mean, rstd = steps.arguments[:7]
    mask = cast("tuple[bool, ...]", steps.arguments[9])
    width = accumulator(shard.inputs[1].dtype)
    channels = _Channels(shard, steps, 1)
    gradient, scale = _wide(shard, steps, dy, width), _wide(shard, steps, rstd, width)
    centred = channels.with_vector("sub", _wide(shard, steps, x, width), _wide(shard, steps, mean, width))
    normal = channels.with_vector("mul", centred, scale)
    total = _channel_sum(steps, gradient, channels.rank, axes)
    product = _channel_sum(steps, steps.call("aten.mul.Tensor", gradient, normal), channels.rank, axes)
    if weight is not None:
        scale = steps.call("aten.mul.Tensor", scale, _wide(shard, steps, weight, width))
    level = channels.with_vector("sub", gradient, steps.call("aten.div.Scalar", total, channels.count))
    slope = channels.with_vector("mul", normal, steps.call("aten.div.Scalar", product, channels.count))
    dx = channels.with_vector("mul", steps.call("aten.sub.Tensor", level, slope), scale)
    made = [value for value, selected in zip((dx, product, total), mask, strict=True) if selected]
    return steps.finish([steps.cast(v, width, t.dtype) for v, t in zip(made, shard.outputs, strict=True)])


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
_Targets: TypeAlias = tuple[Argument, Argument]
"""As a device reads them, relative to its first class, with a number for those of other devices and ignored ones;
that number."""


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
        return steps.finish(steps.call_all(kind, (scores, own[0], weight, _NONE, own[1]), {}, 2))
    width = accumulator(dtype)
    loss = _nll_sum(steps, kind, own, width)
    if weight is None:
        counted = steps.call("aten.ne.Scalar", targets, ignored)
        local = steps.call("aten.sum.default", counted, dtype=Symbol("dtype", width))
    else:
        weights = steps.call_all(kind, (scores, own[0], weight, 2, own[1]), {}, 2)[1]
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
    local, left_out = _own_targets(shard, steps, 1, targets, ignored)
    arguments = (gradient, scores, local, weight, reduction, left_out, total)
    return steps.finish([steps.call(shard.operator.kind, *arguments)])


def _divided(shard: Shard, scores: int) -> bool:
    """Whether the classes are sharded; `scores` is the place of the scores among the inputs."""
    return _CLASSES in shard.strategy.inputs[scores]


def _own_targets(shard: Shard, steps: StepWriter, scores: int, targets: Argument, ignored: Argument) -> _Targets:
    if not _divided(shard, scores):
        return targets, ignored
    count = shard.input_shape(scores)[_CLASSES]
    first = shard.block(shard.strategy.inputs[scores], _CLASSES) * count
    shifted, foreign = steps.relative(targets, first, count)
    if cast(int, ignored) >= 0:  # a class; a negative number is foreign to every device already
        foreign = steps.call("aten.bitwise_or.Tensor", foreign, steps.call("aten.eq.Scalar", targets, ignored))
    return steps.call("aten.masked_fill.Scalar", shifted, foreign, _FOREIGN), _FOREIGN


def _nll_sum(steps: StepWriter, kind: str, own: _Targets, width: str) -> Ref:
    """The sum of the losses of the local targets, in dtype `width`."""
    scores, _, weight = steps.arguments[:3]
    losses, _ = steps.call_all(kind, (scores, own[0], weight, _NONE, own[1]), {}, 2)
    return steps.call("aten.sum.default", losses, dtype=Symbol("dtype", width))
