"""Layer, RMS, group and batch norm. Normalised dims are not sharded; a batch norm over a sharded batch sums its
statistics."""

from typing import cast

from alpa_explore.graph import Operator, Tensor
from alpa_explore.sharding.rules.factors import Splits, along
from alpa_explore.sharding.spec import PARTIAL, REPLICATE
from alpa_explore.sharding.strategy import Split, all_reduced


def layer_norm(operator: Operator, inputs: tuple[Tensor, ...], outputs: tuple[Tensor, ...]) -> Splits:
    """(x, normalised shape, weight?, bias?, eps) -> (y, mean, rstd): the leading dims are rows."""
    rows = len(inputs[0].shape) - len(cast("tuple[int, ...]", operator.arguments[1]))
    rest = (REPLICATE,) * (len(inputs) - 1)
    pairs = [((d, *rest), (d,) * len(outputs), inputs[0].shape[d]) for d in range(rows)]
    return along(inputs, outputs, pairs)


def layer_norm_backward(operator: Operator, inputs: tuple[Tensor, ...], outputs: tuple[Tensor, ...]) -> Splits:
    """(dy, x, shape, mean, rstd, weight?, bias?, mask) -> (dx?, dweight?, dbias?): weights' gradients sum over rows."""
    shape = inputs[1].shape
    rows = len(shape) - len(cast("tuple[int, ...]", operator.arguments[2]))
    rest = (REPLICATE,) * (len(inputs) - 4)
    pairs = [
        ((d, d, d, d, *rest), tuple(d if o.shape == shape else PARTIAL for o in outputs), shape[d]) for d in range(rows)
    ]
    return along(inputs, outputs, pairs)


def rms_norm(operator: Operator, inputs: tuple[Tensor, ...], outputs: tuple[Tensor, ...]) -> Splits:
    """(x, weight?) -> (y, rstd): the leading dims are rows; the others are of size 1 in rstd."""
    rest = (REPLICATE,) * (len(inputs) - 1)
    return along(inputs, outputs, [((d, *rest), (d, d), size) for d, size in enumerate(outputs[1].shape)])


def rms_norm_backward(operator: Operator, inputs: tuple[Tensor, ...], outputs: tuple[Tensor, ...]) -> Splits:
    """(dy, x, rstd, weight?) -> (dx, dweight?): the weight's gradient sums over rows."""
    rest, summed = (REPLICATE,) * (len(inputs) - 3), (PARTIAL,) * (len(outputs) - 1)
    return along(inputs, outputs, [((d, d, d, *rest), (d, *summed), size) for d, size in enumerate(inputs[2].shape)])


def group_norm(operator: Operator, inputs: tuple[Tensor, ...], outputs: tuple[Tensor, ...]) -> Splits:
    """Samples are independent; the size arguments N, C, H·W, groups follow the local shape (sharding.local)."""
    rest = (REPLICATE,) * (len(inputs) - 1)
    return along(inputs, outputs, [((0, *rest), (0,) * len(outputs), inputs[0].shape[0])])


def group_norm_backward(operator: Operator, inputs: tuple[Tensor, ...], outputs: tuple[Tensor, ...]) -> Splits:
    """(dy, x, mean, rstd, weight?, sizes…) -> (dx, dweight?, dbias?)."""
    rest = (REPLICATE,) * (len(inputs) - 4)
    shape = inputs[1].shape
    placed = tuple(0 if o.shape == shape else PARTIAL for o in outputs)
    return along(inputs, outputs, [((0, 0, 0, 0, *rest), placed, shape[0])])


def _statistics_bytes(channels: int) -> int:
    """Two float32 sums for each channel."""
    return 2 * 4 * channels


def batch_norm(operator: Operator, inputs: tuple[Tensor, ...], outputs: tuple[Tensor, ...]) -> Splits:
    """(x, weight?, bias?, running…) -> (y, mean, rstd, …): channels are independent. With the batch sharded two sums
    a channel are all-reduced, and every device has the statistics of the whole batch; in eval mode none are."""
    batch, channels = inputs[0].shape[:2]
    vectors = len(inputs) - 1
    over_batch = Split(
        "batch",
        batch,
        (0, *(REPLICATE,) * vectors),
        tuple(0 if o.shape == inputs[0].shape else REPLICATE for o in outputs),
        all_reduced(_statistics_bytes(channels) if operator.arguments[-3] is True else 0),
    )
    over_channels = Split(
        "channels", channels, (1, *(0,) * vectors), tuple(1 if o.shape == inputs[0].shape else 0 for o in outputs)
    )
    return tuple(s for s in (over_batch, over_channels) if s.size > 1)


def batch_norm_backward(operator: Operator, inputs: tuple[Tensor, ...], outputs: tuple[Tensor, ...]) -> Splits:
    """(dy, x, vectors…) -> (dx, dweight, dbias): the two sums that dx needs are dweight and dbias, so these
    are all-reduced inside the operator and replicated. In eval mode dx needs no sum and they stay pending."""
    batch, channels = inputs[1].shape[:2]
    vectors = len(inputs) - 2
    shape = inputs[1].shape
    training = operator.arguments[7] is True
    over_batch = Split(
        "batch",
        batch,
        (0, 0, *(REPLICATE,) * vectors),
        tuple(0 if o.shape == shape else REPLICATE if training else PARTIAL for o in outputs),
        all_reduced(_statistics_bytes(channels) if training else 0),
    )
    over_channels = Split(
        "channels", channels, (1, 1, *(0,) * vectors), tuple(1 if o.shape == shape else 0 for o in outputs)
    )
    return tuple(s for s in (over_batch, over_channels) if s.size > 1)


RULES = {
    "aten.native_layer_norm.default": layer_norm,
    "aten.native_layer_norm_backward.default": layer_norm_backward,
    "alpa_explore.rms_norm.default": rms_norm,
    "alpa_explore.rms_norm_backward.default": rms_norm_backward,
    "aten.native_group_norm.default": group_norm,
    "aten.native_group_norm_backward.default": group_norm_backward,
    **dict.fromkeys(
        ("aten._native_batch_norm_legit.no_stats", "aten._native_batch_norm_legit_functional.default"), batch_norm
    ),
    "aten.native_batch_norm_backward.default": batch_norm_backward,
}
