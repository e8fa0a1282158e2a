"""Layer, RMS, group and batch norm. Normalised dims are not sharded; a batch norm over a sharded batch sums its
statistics."""

from alpa_explore.graph import Operator
from alpa_explore.sharding.rules.factors import Rule, Splits, Tensors, along, kinds
from alpa_explore.sharding.spec import PARTIAL, REPLICATE
from alpa_explore.sharding.strategy import Split, all_reduced


def _rows(read: int, *, samples: bool = False) -> Rule:
    """Rows are independent: the dims that statistics have (others are of size 1 there), or samples alone.

    The first `read` inputs have them: x forwards, and backwards dy, x and the statistics, where the gradients of the
    weights are sums over rows. What of the arguments is a size follows the local shape (sharding.local).
    """

    def rule(operator: Operator, inputs: Tensors, outputs: Tensors) -> Splits:
        backward = read > 1
        shape = inputs[backward].shape
        statistics = inputs[2] if backward else outputs[-1]
        rest = (REPLICATE,) * (len(inputs) - read)
        rows = [
            ((*(d,) * read, *rest), tuple(d if not backward or o.shape == shape else PARTIAL for o in outputs), size)
            for d, size in enumerate(shape[:1] if samples else statistics.shape)
        ]
        return along(inputs, outputs, rows)

    return rule


def _batch_norm(read: int, training: int) -> Rule:
    """(x, weight?, bias?, running…) -> (y, mean, rstd, …) or (dy, x, vectors…) -> (dx, dweight, dbias): channels are
    independent.

    With the batch sharded two sums a channel are all-reduced, and every device has the statistics of the whole batch;
    backwards these sums are dweight and dbias, so they are replicated. In eval mode (the argument at `training`)
    nothing is summed, and dweight and dbias stay pending. The first `read` inputs are no vectors.
    """

    def rule(operator: Operator, inputs: Tensors, outputs: Tensors) -> Splits:
        shape, trains = inputs[read - 1].shape, operator.arguments[training] is True
        others = PARTIAL if read > 1 and not trains else REPLICATE
        summed = all_reduced(2 * 4 * shape[1] if trains else 0)  # two float32 for each channel
        vectors = len(inputs) - read
        over_batch = tuple(0 if o.shape == shape else others for o in outputs)
        over_channels = tuple(1 if o.shape == shape else 0 for o in outputs)
        splits = (
            Split("batch", shape[0], (*(0,) * read, *(REPLICATE,) * vectors), over_batch, summed),
            Split("channels", shape[1], (*(1,) * read, *(0,) * vectors), over_channels),
        )
        return tuple(s for s in splits if s.size > 1)

    return rule


RULES = {
    **kinds("native_layer_norm", _rows(1)),
    **kinds("native_layer_norm_backward", _rows(4)),
    **kinds("rms_norm", _rows(1), "alpa_explore"),
    **kinds("rms_norm_backward", _rows(3), "alpa_explore"),
    **kinds("native_group_norm", _rows(1, samples=True)),
    **kinds("native_group_norm_backward", _rows(4, samples=True)),
    **kinds("_native_batch_norm_legit.no_stats _native_batch_norm_legit_functional", _batch_norm(1, -3)),
    **kinds("native_batch_norm_backward", _batch_norm(2, 7)),
}
