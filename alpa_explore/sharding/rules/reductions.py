"""Reductions and scans. Over a sharded dim a sum or a mean is a pending sum; a softmax exchanges two numbers a row; a
maximum or a scan needs the whole dim."""

from dataclasses import replace
from typing import cast

from alpa_explore.graph import Operator, Tensor
from alpa_explore.sharding.rules.factors import Splits, along, elementwise, is_floating, pending_sum
from alpa_explore.sharding.spec import PARTIAL
from alpa_explore.sharding.strategy import Split, all_reduced

_NUMBER_BYTES = 4
"""A maximum or a sum is a float32."""


def _reduced(operator: Operator, rank: int) -> tuple[set[int], bool]:
    """(reduced dims, whether they are kept with size 1)."""
    given = operator.arguments[1] if len(operator.arguments) > 1 else None
    dims = given if isinstance(given, tuple) else () if given is None else (given,)
    numbers = {cast(int, d) % rank for d in dims} if rank else set()
    keep = operator.arguments[2:3] == (True,) or dict(operator.keywords).get("keepdim") is True
    return numbers or set(range(rank)), keep


def _reduce(operator: Operator, inputs: tuple[Tensor, ...], outputs: tuple[Tensor, ...], *, adds: bool) -> Splits:
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


def summation(operator: Operator, inputs: tuple[Tensor, ...], outputs: tuple[Tensor, ...]) -> Splits:
    """sum: linear."""
    passes = is_floating(inputs[0])
    return (*_reduce(operator, inputs, outputs, adds=True), *(pending_sum(inputs, outputs) if passes else ()))


def mean(operator: Operator, inputs: tuple[Tensor, ...], outputs: tuple[Tensor, ...]) -> Splits:
    """mean: linear; a local mean divided by the number of shards is an addend of a pending sum (sharding.local)."""
    return (*_reduce(operator, inputs, outputs, adds=True), *pending_sum(inputs, outputs))


def whole_dims(operator: Operator, inputs: tuple[Tensor, ...], outputs: tuple[Tensor, ...]) -> Splits:
    """amax, max.dim, argmax, any, all, var: the reduced dims are not sharded."""
    return _reduce(operator, inputs, outputs, adds=False)


def histogram(operator: Operator, inputs: tuple[Tensor, ...], outputs: tuple[Tensor, ...]) -> Splits:
    """histc(x, bins, low, high): counts add up. Equal bounds mean the minimum and maximum of the data: not sharded
    then."""
    low, high = (*operator.arguments[2:4], 0, 0)[:2]
    if low == high:
        return ()
    return along(inputs, outputs, [((d,), (PARTIAL,), size) for d, size in enumerate(inputs[0].shape)])


def _dim_argument(operator: Operator, rank: int, place: int) -> int:
    """The dim argument at position `place`, counted from 0; it defaults to the last dim, and is 0 for a scalar."""
    dim = cast(int, operator.arguments[place]) if len(operator.arguments) > place else -1
    return dim % rank if rank else 0


def scan(operator: Operator, inputs: tuple[Tensor, ...], outputs: tuple[Tensor, ...]) -> Splits:
    """cumsum(x, dim): that dim is not sharded."""
    return elementwise(inputs, outputs, uncut={_dim_argument(operator, len(inputs[0].shape), 1)})


def softmax(operator: Operator, inputs: tuple[Tensor, ...], outputs: tuple[Tensor, ...]) -> Splits:
    """softmax, log_softmax (dim is the second argument): with that dim sharded the maximum and the sum of every row
    are all-reduced (sharding.local)."""
    return _over_rows(inputs, outputs, _dim_argument(operator, len(inputs[0].shape), 1), statistics=2)


def _over_rows(
    inputs: tuple[Tensor, ...], outputs: tuple[Tensor, ...], dim: int, *, statistics: int
) -> tuple[Split, ...]:
    """Every dim is spatial; with `dim` sharded, so many numbers a row are all-reduced."""
    rows = outputs[0].elements // max(outputs[0].shape[dim], 1) if outputs[0].shape else 1
    own = f"dim{dim}"
    return tuple(
        replace(s, exchanges=all_reduced(statistics * _NUMBER_BYTES * rows)) if s.factor == own else s
        for s in elementwise(inputs, outputs)
    )


def topk(operator: Operator, inputs: tuple[Tensor, ...], outputs: tuple[Tensor, ...]) -> Splits:
    """topk(x, k, dim = −1)."""
    return elementwise(inputs, outputs, uncut={_dim_argument(operator, len(inputs[0].shape), 2)})


def sort(operator: Operator, inputs: tuple[Tensor, ...], outputs: tuple[Tensor, ...]) -> Splits:
    """sort(x, dim = −1)."""
    return elementwise(inputs, outputs, uncut={_dim_argument(operator, len(inputs[0].shape), 1)})


def softmax_backward(operator: Operator, inputs: tuple[Tensor, ...], outputs: tuple[Tensor, ...]) -> Splits:
    """(gradient, output, dim): with that dim sharded the sum of every row is all-reduced."""
    return _over_rows(inputs, outputs, _dim_argument(operator, len(inputs[0].shape), 2), statistics=1)


RULES = {
    **dict.fromkeys(("aten.sum.default", "aten.sum.dim_IntList"), summation),
    **dict.fromkeys(("aten.mean.default", "aten.mean.dim"), mean),
    **dict.fromkeys(
        (
            "aten.amax.default",
            "aten.amin.default",
            "aten.max.dim",
            "aten.min.dim",
            "aten.argmax.default",
            "aten.argmin.default",
            "aten.any.dim",
            "aten.any.default",
            "aten.all.default",
            "aten.all.dim",
            "aten.max.default",
            "aten.min.default",
            "aten.logsumexp.default",
            "aten.any.dims",
            "aten.all.dims",
            "aten.prod.default",
            "aten.prod.dim_int",
            "aten.var.correction",
            "aten.std.correction",
            "aten.var_mean.correction",
        ),
        whole_dims,
    ),
    **dict.fromkeys(("aten._softmax.default", "aten._log_softmax.default", "aten._safe_softmax.default"), softmax),
    "aten.cumsum.default": scan,
    **dict.fromkeys(
        ("aten._softmax_backward_data.default", "aten._log_softmax_backward_data.default"), softmax_backward
    ),
    "aten.histc.default": histogram,
    "aten.topk.default": topk,
    "aten.sort.default": sort,
}
