"""Reductions, norms, scans and losses. Over a sharded dim a sum or a mean is a pending sum; a softmax exchanges two
numbers a row; a maximum or a scan needs the whole dim.

Over a sharded batch the sum of a loss is pending; its divisor counts the targets of all shards. With the classes
sharded (a divided vocabulary) each device adds the losses of the targets among its own classes, and backwards writes
the gradient of its own classes (sharding.local).

Dims that a norm normalises are not sharded; a batch norm over a sharded batch sums its statistics.
"""

from dataclasses import replace
from typing import cast

from alpa_explore.graph import Operator
from alpa_explore.sharding.rules.factors import (
    Rule,
    Splits,
    Tensors,
    along,
    each_other_dim,
    einsum,
    elementwise,
    kinds,
    nonempty,
    pending_sum,
)
from alpa_explore.sharding.spec import PARTIAL, REPLICATE, is_floating
from alpa_explore.sharding.strategy import NUMBER_BYTES, Split, all_reduced


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
        return nonempty(
            Split("batch", shape[0], (*(0,) * read, *(REPLICATE,) * vectors), over_batch, summed),
            Split("channels", shape[1], (*(1,) * read, *(0,) * vectors), over_channels),
        )

    return rule


_NORMS = {
    **kinds("native_layer_norm", _rows(1)),
    **kinds("native_layer_norm_backward", _rows(4)),
    **kinds("rms_norm", _rows(1), "alpa_explore"),
    **kinds("rms_norm_backward", _rows(3), "alpa_explore"),
    **kinds("native_group_norm", _rows(1, samples=True)),
    **kinds("native_group_norm_backward", _rows(4, samples=True)),
    **kinds("_native_batch_norm_legit.no_stats _native_batch_norm_legit_functional", _batch_norm(1, -3)),
    **kinds("native_batch_norm_backward", _batch_norm(2, 7)),
}


_NONE = 0
"""torch's code of the reduction that keeps one loss per target (1: their mean, 2: their sum)."""


def _reduced(operator: Operator, rank: int) -> tuple[set[int], bool]:
    """(reduced dims, whether they are kept with size 1)."""
    given = operator.arguments[1] if len(operator.arguments) > 1 else None
    dims = given if isinstance(given, tuple) else () if given is None else (given,)
    numbers = {cast(int, d) % rank for d in dims} if rank else set()
    keep = operator.arguments[2:3] == (True,) or dict(operator.keywords).get("keepdim") is True
    return numbers or set(range(rank)), keep


def _reduce(operator: Operator, inputs: Tensors, outputs: Tensors, *, adds: bool) -> Splits:
    shape = inputs[0].shape
    reduced, keep = _reduced(operator, len(shape))
    rows = []
    place = 0
    for dim, size in enumerate(shape):
        if dim in reduced:
            place += keep
            if adds:
                rows.append(((dim,), (PARTIAL,) * len(outputs), size))
        else:
            rows.append(((dim,), (place,) * len(outputs), size))
            place += 1
    return along(inputs, outputs, rows)


def summation(operator: Operator, inputs: Tensors, outputs: Tensors) -> Splits:
    """sum: linear."""
    passes = is_floating(inputs[0].dtype)
    return (*_reduce(operator, inputs, outputs, adds=True), *(pending_sum(inputs, outputs) if passes else ()))


def mean(operator: Operator, inputs: Tensors, outputs: Tensors) -> Splits:
    """mean: linear; a local mean divided by the number of shards is an addend of a pending sum (sharding.local)."""
    return (*_reduce(operator, inputs, outputs, adds=True), *pending_sum(inputs, outputs))


def whole_dims(operator: Operator, inputs: Tensors, outputs: Tensors) -> Splits:
    """amax, max.dim, argmax, any, all, var: the reduced dims are not sharded."""
    return _reduce(operator, inputs, outputs, adds=False)


def histogram(operator: Operator, inputs: Tensors, outputs: Tensors) -> Splits:
    """histc(x, bins, low, high): counts add up. Equal bounds mean the minimum and maximum of the data: not sharded
    then."""
    low, high = (*operator.arguments[2:4], 0, 0)[:2]
    if low == high:
        return ()
    return along(inputs, outputs, [((d,), (PARTIAL,), size) for d, size in enumerate(inputs[0].shape)])


def _softmax(place: int, statistics: int) -> Rule:
    """Softmax and log-softmax, forwards and backwards, along the dim that the argument at `place` names: every dim is
    spatial; with that one sharded, so many numbers a row are all-reduced (the maximum and the sum; sharding.local)."""

    def rule(operator: Operator, inputs: Tensors, outputs: Tensors) -> Splits:
        shape = outputs[0].shape
        dim = cast(int, operator.arguments[place]) % len(shape) if shape else 0
        rows = outputs[0].elements // max(shape[dim], 1) if shape else 1
        summed = all_reduced(statistics * NUMBER_BYTES * rows)
        splits = elementwise(inputs, outputs)
        return tuple(replace(s, exchanges=summed) if s.factor == f"dim{dim}" else s for s in splits)

    return rule


def nll_forward(operator: Operator, inputs: Tensors, outputs: Tensors) -> Splits:
    """(scores N×C×…, targets, weight?, reduction, ignored) -> (loss, total weight).

    Over a sharded batch each device adds the losses of its rows; the total weight (the number of targets that are not
    ignored) is all-reduced, and a mean divides by it. Over sharded classes the losses of every device's own targets
    are a pending sum; the total weight needs no sum where all targets weigh 1.
    """
    scores = inputs[0]
    if len(scores.shape) < 2:
        return ()
    each = operator.arguments[3] == _NONE
    weighs = len(inputs) > 2
    loss = 0 if each else PARTIAL
    weight = all_reduced(0 if each else NUMBER_BYTES)
    rows = Split("batch", scores.shape[0], (0, 0, *(REPLICATE,) * weighs), (loss, REPLICATE), weight)
    own = (1, REPLICATE, *(0,) * weighs)
    classes = Split("classes", scores.shape[1], own, (PARTIAL, REPLICATE), weight if weighs else ())
    return nonempty(rows, classes)


def nll_backward(operator: Operator, inputs: Tensors, outputs: Tensors) -> Splits:
    """(dloss, scores, targets, weight?, reduction, ignored, total weight): rows and classes are independent."""
    scores = inputs[1]
    if len(scores.shape) < 2:
        return ()
    weighs = len(inputs) > 4
    gradient = 0 if operator.arguments[4] == _NONE else REPLICATE
    rows = Split("batch", scores.shape[0], (gradient, 0, 0, *(REPLICATE,) * (len(inputs) - 3)), (0,))
    classes = Split("classes", scores.shape[1], (REPLICATE, 1, REPLICATE, *(0,) * weighs, REPLICATE), (1,))
    return nonempty(rows, classes)


_WHOLE_DIMS = """
    amax amin max.dim min.dim argmax argmin any.dim any all all.dim max min logsumexp any.dims all.dims prod
    prod.dim_int var.correction std.correction var_mean.correction
    """

RULES = {
    **_NORMS,
    **kinds("sum sum.dim_IntList", summation),
    **kinds("mean mean.dim", mean),
    **kinds(_WHOLE_DIMS, whole_dims),
    **kinds("_softmax _log_softmax _safe_softmax", _softmax(1, statistics=2)),
    **kinds("_softmax_backward_data _log_softmax_backward_data", _softmax(2, statistics=1)),
    **kinds("cumsum sort", each_other_dim(1, -1, linear=False)),
    **kinds("topk", each_other_dim(2, -1, linear=False)),
    **kinds("histc", histogram),
    # Samples are independent; a path takes all frames, and any class.
    **kinds("ctc_loss", einsum(".n.,n.,n,n->n,n.."), "alpa_explore"),
    **kinds("ctc_loss_backward", einsum("n,.n.,n.,n,n,n,n..->.n."), "alpa_explore"),
    **kinds("nll_loss_forward nll_loss2d_forward", nll_forward),
    **kinds("nll_loss_backward nll_loss2d_backward", nll_backward),
}
