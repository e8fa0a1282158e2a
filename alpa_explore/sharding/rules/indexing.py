"""Lookups by index: embedding, gather, scatter, index. A dim that indices point into is whole, or looked up masked."""

from __future__ import annotations

from typing import cast

from alpa_explore.graph import Operator, Ref, Tensor
from alpa_explore.sharding.rules.factors import Splits, along
from alpa_explore.sharding.spec import PARTIAL, REPLICATE
from alpa_explore.sharding.strategy import Split


def embedding(operator: Operator, inputs: tuple[Tensor, ...], outputs: tuple[Tensor, ...]) -> Splits:
    """(weight V×H, indices): index dims and H are spatial. V can be cut: each device looks up the indices that lie in
    its rows and gives zeros for the others (sharding.local), so the output is a pending sum."""
    weight, indices = inputs
    rank = len(indices.shape)
    rows = [((REPLICATE, d), (d,), size) for d, size in enumerate(indices.shape)]
    rows.append(((1, REPLICATE), (rank,), weight.shape[1]))
    return (*along(inputs, outputs, rows), Split("vocabulary", weight.shape[0], (0, REPLICATE), (PARTIAL,)))


def embedding_backward(operator: Operator, inputs: tuple[Tensor, ...], outputs: tuple[Tensor, ...]) -> Splits:
    """(dy, indices) -> V×H: index dims are summed, H is spatial; V cut: only indices of the own rows count."""
    gradient, indices = inputs
    rank = len(indices.shape)
    rows: list[tuple[tuple[int, ...], tuple[int, ...], int]] = [
        ((d, d), (PARTIAL,), size) for d, size in enumerate(indices.shape)
    ]
    rows.append(((rank, REPLICATE), (1,), gradient.shape[-1]))
    vocabulary = Split("vocabulary", outputs[0].shape[0], (REPLICATE, REPLICATE), (0,), divides=True)
    return (*along(inputs, outputs, rows), vocabulary)


def gather(operator: Operator, inputs: tuple[Tensor, ...], outputs: tuple[Tensor, ...]) -> Splits:
    """gather(x, dim, index), scatter(x, dim, index, source): dims of equal extent in all tensors, but not `dim`."""
    dim = cast(int, operator.arguments[1])
    rank = len(outputs[0].shape)
    rows = []
    for d in range(rank):
        sizes = {t.shape[d] for t in (*inputs, *outputs)}
        if d != dim % rank and len(sizes) == 1:
            rows.append(((d,) * len(inputs), (d,) * len(outputs), outputs[0].shape[d]))
    return along(inputs, outputs, rows)


def index(operator: Operator, inputs: tuple[Tensor, ...], outputs: tuple[Tensor, ...]) -> Splits:
    """x[i, j, …] with index tensors for the first dims of x and none (or whole slices) for the rest.

    The indexed dims stay whole. Trailing dims are spatial; so are the dims of the indices, broadcast together.
    """
    given = cast("tuple[object, ...]", operator.arguments[1])
    if not all(isinstance(i, Ref) for i in given):
        return ()
    indexed = len(given)
    width = len(outputs[0].shape) - (len(inputs[0].shape) - indexed)
    rows = []
    for o, size in enumerate(outputs[0].shape):
        if o >= width:
            rows.append(((o - width + indexed, *(REPLICATE,) * indexed), (o,), size))
            continue
        placed = []
        for tensor in inputs[1:]:
            here = o - (width - len(tensor.shape))
            placed.append(here if here >= 0 and tensor.shape[here] == size else REPLICATE)
        rows.append(((REPLICATE, *placed), (o,), size))
    return along(inputs, outputs, rows)


RULES = {
    "aten.embedding.default": embedding,
    "aten.embedding_dense_backward.default": embedding_backward,
    **dict.fromkeys(
        ("aten.gather.default", "aten.scatter.src", "aten.scatter.value", "aten.scatter_add.default"), gather
    ),
    "aten.index.Tensor": index,
}
