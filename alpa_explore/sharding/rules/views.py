"""Views and other data movement: a dim that is not split, merged or sliced keeps its sharding."""

from collections.abc import Sequence
from typing import cast

from alpa_explore.graph import Operator, Tensor
from alpa_explore.sharding.rules.factors import Splits, along, is_floating, pending_sum, regrouped
from alpa_explore.sharding.spec import REPLICATE
from alpa_explore.sharding.strategy import Split


def _with_sum(splits: Splits, inputs: Sequence[Tensor], outputs: Sequence[Tensor]) -> Splits:
    passes = inputs and all(is_floating(t) for t in (*inputs, *outputs))
    return (*splits, *(pending_sum(inputs, outputs) if passes else ()))


def _integers(value: object) -> tuple[int, ...]:
    return cast("tuple[int, ...]", value) if isinstance(value, tuple) else (cast(int, value),)


def _argument(operator: Operator, place: int, default: int) -> int:
    return cast(int, operator.arguments[place]) if len(operator.arguments) > place else default


def _same_dims(inputs: Sequence[Tensor], outputs: Sequence[Tensor], uncut: Sequence[int]) -> Splits:
    """All tensors have the same rank, and each dim except `uncut` is sharded alike in all of them."""
    rank = len(outputs[0].shape)
    kept = {d % rank for d in uncut} if rank else set()
    rows = [((d,) * len(inputs), (d,) * len(outputs), outputs[0].shape[d]) for d in range(rank) if d not in kept]
    return along(inputs, outputs, rows)


def reshape(operator: Operator, inputs: tuple[Tensor, ...], outputs: tuple[Tensor, ...]) -> Splits:
    """view, reshape, squeeze, unsqueeze: dims are regrouped, elements stay in order."""
    rows = [((i,), (o,), size) for i, o, size in regrouped(inputs[0].shape, outputs[0].shape)]
    splits = (*along(inputs, outputs, rows), *_inner(inputs[0].shape, outputs[0].shape))
    return _with_sum(splits, inputs, outputs)


def _inner(source: tuple[int, ...], target: tuple[int, ...]) -> Splits:
    """Leading dims [samples, positions] merged to rows, or the other way round, whatever becomes of the other dims:
    positions are divided too where samples are divided to single ones. Software says from how many positions on this
    is offered."""
    for two, one, merges in ((source, target, True), (target, source, False)):
        if len(two) > 1 and one and min(two[:2]) > 1 and two[0] * two[1] == one[0]:
            ins, outs = ((1,), (0,)) if merges else ((0,), (1,))
            return (Split("inner-dim1", two[1], ins, outs, inner_of="dim0"),)
    return ()


def permute(operator: Operator, inputs: tuple[Tensor, ...], outputs: tuple[Tensor, ...]) -> Splits:
    """Output dim j is input dim order[j]."""
    rank = len(inputs[0].shape)
    order = list(range(rank))
    if operator.kind == "aten.transpose.int":
        a, b = (cast(int, d) % rank for d in operator.arguments[1:3])
        order[a], order[b] = b, a
    elif operator.kind == "aten.t.default":
        order.reverse()
    else:
        order = [d % rank for d in _integers(operator.arguments[1])]
    rows = [((i,), (o,), inputs[0].shape[i]) for o, i in enumerate(order)]
    return _with_sum(along(inputs, outputs, rows), inputs, outputs)


def expand(operator: Operator, inputs: tuple[Tensor, ...], outputs: tuple[Tensor, ...]) -> Splits:
    """A dim of size 1 (or a new one) that is repeated is replicated in the input, however the output is sharded."""
    offset = len(outputs[0].shape) - len(inputs[0].shape)
    rows = []
    for o, size in enumerate(outputs[0].shape):
        i = o - offset
        same = i >= 0 and inputs[0].shape[i] == size
        rows.append(((i if same else REPLICATE,), (o,), size))
    return _with_sum(along(inputs, outputs, rows), inputs, outputs)


def split(operator: Operator, inputs: tuple[Tensor, ...], outputs: tuple[Tensor, ...]) -> Splits:
    """The dim that is split is not sharded: the parts would not lie on the devices that hold their shards."""
    uncut = [_argument(operator, 2, 0)]
    return _with_sum(_same_dims(inputs, outputs, uncut), inputs, outputs)


def cat(operator: Operator, inputs: tuple[Tensor, ...], outputs: tuple[Tensor, ...]) -> Splits:
    """The concatenated dim is not sharded. An empty operand of rank 1 (a legacy form) is replicated."""
    dim = _argument(operator, 1, 0)
    rank = len(outputs[0].shape)
    rows = [
        (tuple(d if len(t.shape) == rank else REPLICATE for t in inputs), (d,), outputs[0].shape[d])
        for d in range(rank)
        if d != dim % rank
    ]
    return _with_sum(along(inputs, outputs, rows), inputs, outputs)


def stack(operator: Operator, inputs: tuple[Tensor, ...], outputs: tuple[Tensor, ...]) -> Splits:
    """Dims after the new one move by one; the new one is not sharded."""
    new = _argument(operator, 1, 0) % len(outputs[0].shape)
    rows = [((d,) * len(inputs), (d if d < new else d + 1,), size) for d, size in enumerate(inputs[0].shape)]
    return _with_sum(along(inputs, outputs, rows), inputs, outputs)


def unbind(operator: Operator, inputs: tuple[Tensor, ...], outputs: tuple[Tensor, ...]) -> Splits:
    """unbind(x, dim): the dim disappears, each of its indices is an output; it is not sharded."""
    dim = _argument(operator, 1, 0) % len(inputs[0].shape)
    count = len(outputs)
    rows = [((d,), (d if d < dim else d - 1,) * count, size) for d, size in enumerate(inputs[0].shape) if d != dim]
    return _with_sum(along(inputs, outputs, rows), inputs, outputs)


def select(operator: Operator, inputs: tuple[Tensor, ...], outputs: tuple[Tensor, ...]) -> Splits:
    """The dim from which one index is taken disappears and is not sharded."""
    dim = _argument(operator, 1, 0) % len(inputs[0].shape)
    rows = [((d,), (d if d < dim else d - 1,), size) for d, size in enumerate(inputs[0].shape) if d != dim]
    return _with_sum(along(inputs, outputs, rows), inputs, outputs)


def select_backward(operator: Operator, inputs: tuple[Tensor, ...], outputs: tuple[Tensor, ...]) -> Splits:
    """The backward of select: the gradient is written at one index of a tensor of zeros."""
    dim = _argument(operator, 2, 0) % len(outputs[0].shape)
    rows = [((d if d < dim else d - 1,), (d,), size) for d, size in enumerate(outputs[0].shape) if d != dim]
    return _with_sum(along(inputs, outputs, rows), inputs, outputs)


def slicing(operator: Operator, inputs: tuple[Tensor, ...], outputs: tuple[Tensor, ...]) -> Splits:
    """slice: the sliced dim is not sharded."""
    return _with_sum(_same_dims(inputs, outputs, [_argument(operator, 1, 0)]), inputs, outputs)


def slice_backward(operator: Operator, inputs: tuple[Tensor, ...], outputs: tuple[Tensor, ...]) -> Splits:
    """The backward of slice, and slice_scatter: the dim is the argument after the sizes or the source."""
    return _with_sum(_same_dims(inputs, outputs, [_argument(operator, 2, 0)]), inputs, outputs)


def select_scatter(operator: Operator, inputs: tuple[Tensor, ...], outputs: tuple[Tensor, ...]) -> Splits:
    """(x, source, dim): one index of `dim` is replaced by a source that lacks the dim."""
    dim = _argument(operator, 2, 0) % len(inputs[0].shape)
    rows = [((d, d if d < dim else d - 1), (d,), size) for d, size in enumerate(inputs[0].shape) if d != dim]
    return _with_sum(along(inputs, outputs, rows), inputs, outputs)


def pad(operator: Operator, inputs: tuple[Tensor, ...], outputs: tuple[Tensor, ...]) -> Splits:
    """Pairs of pads from the last dim backwards; a padded dim is not sharded (nor one that is only shifted, by 1 and
    −1)."""
    pads = _integers(operator.arguments[1])
    rank = len(inputs[0].shape)
    padded = {rank - 1 - place // 2 for place, width in enumerate(pads) if width}
    return along(inputs, outputs, [((d,), (d,), inputs[0].shape[d]) for d in range(rank) if d not in padded])


def repeat(operator: Operator, inputs: tuple[Tensor, ...], outputs: tuple[Tensor, ...]) -> Splits:
    """Dims that are not repeated keep their sharding; new dims come first."""
    times = _integers(operator.arguments[1])
    new = len(outputs[0].shape) - len(inputs[0].shape)
    rows = [((d,), (d + new,), size) for d, size in enumerate(inputs[0].shape) if times[d + new] == 1]
    return along(inputs, outputs, rows)


def flip(operator: Operator, inputs: tuple[Tensor, ...], outputs: tuple[Tensor, ...]) -> Splits:
    """flip(x, dims)."""
    return _with_sum(_same_dims(inputs, outputs, _integers(operator.arguments[1])), inputs, outputs)


RULES = {
    **dict.fromkeys(
        (
            "aten.view.default",
            "aten._unsafe_view.default",
            "aten.reshape.default",
            "aten.squeeze.dim",
            "aten.squeeze.dims",
            "aten.squeeze.default",
            "aten.unsqueeze.default",
        ),
        reshape,
    ),
    **dict.fromkeys(("aten.permute.default", "aten.transpose.int", "aten.t.default"), permute),
    "aten.expand.default": expand,
    **dict.fromkeys(("aten.split.Tensor", "aten.split_with_sizes.default"), split),
    "aten.cat.default": cat,
    "aten.stack.default": stack,
    "aten.unbind.int": unbind,
    "aten.select.int": select,
    "aten.select_backward.default": select_backward,
    "aten.slice.Tensor": slicing,
    **dict.fromkeys(("aten.slice_backward.default", "aten.slice_scatter.default"), slice_backward),
    "aten.select_scatter.default": select_scatter,
    "aten.constant_pad_nd.default": pad,
    "aten.repeat.default": repeat,
    "aten.flip.default": flip,
}
