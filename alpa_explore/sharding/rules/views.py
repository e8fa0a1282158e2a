"""Views and other data movement: a dim that is not split, merged or sliced keeps its sharding."""

from typing import cast

from alpa_explore.graph import Operator
from alpa_explore.graph.operator import permutation
from alpa_explore.sharding.rules.factors import (
    Splits,
    Tensors,
    along,
    each_other_dim,
    kinds,
    regrouped,
    with_pending_sum,
)
from alpa_explore.sharding.spec import REPLICATE
from alpa_explore.sharding.strategy import Split


def _integers(value: object) -> tuple[int, ...]:
    return cast("tuple[int, ...]", value) if isinstance(value, tuple) else (cast(int, value),)


def reshape(operator: Operator, inputs: Tensors, outputs: Tensors) -> Splits:
    """view, reshape, squeeze, unsqueeze: dims are regrouped, elements stay in order."""
    rows = [((i,), (o,), size) for i, o, size in regrouped(inputs[0].shape, outputs[0].shape)]
    splits = (*along(inputs, outputs, rows), *_inner(inputs[0].shape, outputs[0].shape))
    return with_pending_sum(splits, inputs, outputs)


def _inner(source: tuple[int, ...], target: tuple[int, ...]) -> Splits:
    """Leading dims [samples, positions] merged to rows, or the other way round, whatever becomes of the other dims:
    positions are divided too where samples are divided to single ones. Software says from how many positions on this
    is offered."""
    for two, one, merges in ((source, target, True), (target, source, False)):
        if len(two) > 1 and one and min(two[:2]) > 1 and two[0] * two[1] == one[0]:
            ins, outs = ((1,), (0,)) if merges else ((0,), (1,))
            return (Split("inner-dim1", two[1], ins, outs, inner_of="dim0"),)
    return ()


def permute(operator: Operator, inputs: Tensors, outputs: Tensors) -> Splits:
    """Output dim j is input dim order[j]."""
    order = permutation(operator.kind, operator.arguments, len(inputs[0].shape))
    rows = [((i,), (o,), inputs[0].shape[i]) for o, i in enumerate(order)]
    return with_pending_sum(along(inputs, outputs, rows), inputs, outputs)


def expand(operator: Operator, inputs: Tensors, outputs: Tensors) -> Splits:
    """A dim of size 1 (or a new one) that is repeated is replicated in the input, however the output is sharded."""
    offset = len(outputs[0].shape) - len(inputs[0].shape)
    rows = []
    for o, size in enumerate(outputs[0].shape):
        i = o - offset
        same = i >= 0 and inputs[0].shape[i] == size
        rows.append(((i if same else REPLICATE,), (o,), size))
    return with_pending_sum(along(inputs, outputs, rows), inputs, outputs)


def pad(operator: Operator, inputs: Tensors, outputs: Tensors) -> Splits:
    """Pairs of pads from the last dim backwards; a padded dim is not sharded (nor one that is only shifted, by 1 and
    −1)."""
    pads = _integers(operator.arguments[1])
    rank = len(inputs[0].shape)
    padded = {rank - 1 - place // 2 for place, width in enumerate(pads) if width}
    return along(inputs, outputs, [((d,), (d,), inputs[0].shape[d]) for d in range(rank) if d not in padded])


def repeat(operator: Operator, inputs: Tensors, outputs: Tensors) -> Splits:
    """Dims that are not repeated keep their sharding; new dims come first."""
    times = _integers(operator.arguments[1])
    new = len(outputs[0].shape) - len(inputs[0].shape)
    rows = [((d,), (d + new,), size) for d, size in enumerate(inputs[0].shape) if times[d + new] == 1]
    return along(inputs, outputs, rows)


RULES = {
    **kinds("view _unsafe_view reshape squeeze.dim squeeze.dims squeeze unsqueeze", reshape),
    **kinds("permute transpose.int t", permute),
    **kinds("expand", expand),
    # The parts of a dim would not lie on the devices that hold their shards.
    **kinds(
        "split.Tensor split_with_sizes slice_backward slice_scatter select_backward select_scatter", each_other_dim(2)
    ),
    **kinds("cat stack unbind.int select.int slice.Tensor flip", each_other_dim(1)),
    **kinds("constant_pad_nd", pad),
    **kinds("repeat", repeat),
}
