"""Batch norm over a sharded batch: it needs two sums over devices halfway through.

x̂ = (x − μ)·r with μ = Σx / n, r = 1 / sqrt(Σ(x − μ)² / n + ε), all over the whole batch of n = N·H·W entries a channel;
y = w·x̂ + b. Backwards, with s₁ = Σdy and s₂ = Σdy·x̂: dx = w·r·(dy − s₁/n − x̂·s₂/n), dw = s₂, db = s₁. Deviations are
taken from the global mean (two all-reduces of one number a channel) because Σx² − n·μ² cancels.

Each function returns None where its strategy needs no sum: the operator then runs unchanged.
"""

from typing import cast

from alpa_explore.graph import Argument, Ref
from alpa_explore.sharding.local.shard import Shard
from alpa_explore.sharding.local.steps import LocalCall, StepWriter, accumulator


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
