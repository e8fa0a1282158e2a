"""Lookups by index: embedding, gather, scatter, index, and by value: bucketize.

A dim that indices point into is not sharded; the exception are the rows of an embedding table, whose lookup is masked.
"""

from typing import cast

from alpa_explore.graph import Operator, Ref, Tensor
from alpa_explore.sharding.rules.factors import Splits, Tensors, along, broadcast_dim, kinds
from alpa_explore.sharding.spec import PARTIAL, REPLICATE
from alpa_explore.sharding.strategy import Split


def embedding(operator: Operator, inputs: Tensors, outputs: Tensors) -> Splits:
    """(weight V×H, indices): index dims and H are spatial. V can be sharded: each device looks up the indices of its
    own rows and gives zeros for the others (sharding.local), so the output is a pending sum."""
    weight, indices = inputs
    rank = len(indices.shape)
    rows = [((REPLICATE, d), (d,), size) for d, size in enumerate(indices.shape)]
    hidden = Split("hidden", weight.shape[1], (1, REPLICATE), (rank,))
    vocabulary = Split("vocabulary", weight.shape[0], (0, REPLICATE), (PARTIAL,))
    return (*along(inputs, outputs, rows), hidden, vocabulary)


def embedding_backward(operator: Operator, inputs: Tensors, outputs: Tensors) -> Splits:
    """(dy, indices, V, padding, by frequency) -> V×H: index dims are reduced, H is spatial; with V sharded each device
    adds only the gradients of its own rows. Scaling by frequency needs the counts of all indices, so then H alone is
    sharded."""
    gradient, indices = inputs
    rank = len(indices.shape)
    hidden = Split("hidden", gradient.shape[-1], (rank, REPLICATE), (1,))
    if operator.arguments[4:5] == (True,):
        return (hidden,)
    rows = [((d, d), (PARTIAL,), size) for d, size in enumerate(indices.shape)]
    vocabulary = Split("vocabulary", outputs[0].shape[0], (REPLICATE, REPLICATE), (0,))
    return (*along(inputs, outputs, rows), hidden, vocabulary)


def gather(operator: Operator, inputs: Tensors, outputs: Tensors) -> Splits:
    """gather(x, dim, index), scatter(x, dim, index, source): dims of equal extent in all tensors, except `dim` of x.

    The entries of a gather's index along `dim` are looked up independently, so index and output can be sharded there.
    """
    rank = len(outputs[0].shape)
    if not rank:
        return ()
    dim = cast(int, operator.arguments[1]) % rank
    rows = []
    for d in range(rank):
        sizes = {t.shape[d] for t in (*inputs, *outputs)}
        if d != dim and len(sizes) == 1:
            rows.append(((d,) * len(inputs), (d,) * len(outputs), outputs[0].shape[d]))
    if operator.kind == "aten.gather.default":
        rows.append(((REPLICATE, dim), (dim,), outputs[0].shape[dim]))
    return along(inputs, outputs, rows)


def index_select(operator: Operator, inputs: Tensors, outputs: Tensors) -> Splits:
    """(x, dim, index): the selected dim of x is not sharded; the index is sharded as that dim of the output."""
    rank = len(inputs[0].shape)
    if not rank or not inputs[1].shape:
        return ()
    dim = cast(int, operator.arguments[1]) % rank
    rows = [
        ((REPLICATE if d == dim else d, 0 if d == dim else REPLICATE), (d,), outputs[0].shape[d]) for d in range(rank)
    ]
    return along(inputs, outputs, rows)


def index_add(operator: Operator, inputs: Tensors, outputs: Tensors) -> Splits:
    """(x, dim, index, source): with the index sharded the output is a pending sum, to which only the first device adds
    x."""
    rank = len(inputs[0].shape)
    if not rank or not inputs[1].shape:
        return ()
    dim = cast(int, operator.arguments[1]) % rank
    rows = [((d, REPLICATE, d), (d,), outputs[0].shape[d]) for d in range(rank) if d != dim]
    added = ((REPLICATE, 0, dim), (PARTIAL,), inputs[1].shape[0])
    return along(inputs, outputs, [*rows, added])


class _Indexed:
    """x[:, i, j, :]: how the dims of x and of the index tensors correspond to those of the result.

    `places` are the indexed dims of x; None where they are not adjacent or the index tensors are masks: the result is
    then laid out differently, and the operator is not sharded.
    """

    def __init__(self, x: Tensor, given: tuple[object, ...], indices: tuple[Tensor, ...]) -> None:
        places = [d for d, i in enumerate(given) if isinstance(i, Ref)]
        together = bool(places) and places == list(range(places[0], places[0] + len(places)))
        masks = any(t.dtype in ("bool", "uint8") for t in indices)
        self.places = places if together and not masks else None
        self.before = places[0] if places else 0
        self.width = max((len(t.shape) for t in indices), default=0)
        """Rank of the broadcast index tensors; in the result their dims take the place of the indexed dims."""
        self.rest = [
            (d, d if d < self.before else d - len(places) + self.width) for d in range(len(x.shape)) if d not in places
        ]
        """(dim of x, dim of the result) of the dims that are not indexed."""


def index(operator: Operator, inputs: Tensors, outputs: Tensors) -> Splits:
    """x[i, j, …]: the indexed dims are not sharded; the other dims are spatial, and so are those of the indices."""
    x, indices = inputs[0], inputs[1:]
    layout = _Indexed(x, cast("tuple[object, ...]", operator.arguments[1]), indices)
    if layout.places is None:
        return ()
    whole = (REPLICATE,) * len(indices)
    rows = [((d, *whole), (o,), x.shape[d]) for d, o in layout.rest]
    for place in range(layout.width):
        size = outputs[0].shape[layout.before + place]
        cut = tuple(broadcast_dim(t, place, layout.width, size) for t in indices)
        rows.append(((REPLICATE, *cut), (layout.before + place,), size))
    return along(inputs, outputs, rows)


def index_put(operator: Operator, inputs: Tensors, outputs: Tensors) -> Splits:
    """x[i, j, …] = or += values: dims that are not indexed are spatial. For += the indices can be sharded too: the
    output is then a pending sum, to which only the first device adds x."""
    x, indices, values = inputs[0], inputs[1:-1], inputs[-1]
    layout = _Indexed(x, cast("tuple[object, ...]", operator.arguments[1]), indices)
    if layout.places is None:
        return ()
    rank = len(x.shape) - len(layout.places) + layout.width

    def value_dim(o: int, size: int) -> int:
        return broadcast_dim(values, o, rank, size)

    rows = [((d, *(REPLICATE,) * len(indices), value_dim(o, x.shape[d])), (d,), x.shape[d]) for d, o in layout.rest]
    for place in range(layout.width if operator.arguments[3:4] == (True,) else 0):
        size = max(t.shape[place - layout.width] if len(t.shape) >= layout.width - place else 1 for t in indices)
        cut = tuple(broadcast_dim(t, place, layout.width, size) for t in indices)
        rows.append(((REPLICATE, *cut, value_dim(layout.before + place, size)), (PARTIAL,), size))
    return along(inputs, outputs, rows)


def bucket(operator: Operator, inputs: Tensors, outputs: Tensors) -> Splits:
    """bucketize(values, boundaries), searchsorted(boundaries, values): every value is looked up by itself, and each row
    of boundaries is whole. Boundaries of rank 1 serve all values; others have a row for every row of values."""
    values = 0 if operator.kind == "aten.bucketize.Tensor" else 1
    if len(inputs) != 2 or not inputs[values].shape:
        return ()
    rank = len(inputs[values].shape)
    shared = len(inputs[1 - values].shape) == 1
    rows = []
    for d, size in enumerate(inputs[values].shape):
        if shared or d < rank - 1:
            ins = (d, REPLICATE if shared else d)
            rows.append((ins if values == 0 else ins[::-1], (d,), size))
    return along(inputs, outputs, rows)


RULES = {
    **kinds("embedding", embedding),
    **kinds("embedding_dense_backward", embedding_backward),
    **kinds("gather scatter.src scatter.value scatter_add", gather),
    **kinds("index_select", index_select),
    **kinds("index_add", index_add),
    **kinds("bucketize.Tensor searchsorted.Tensor", bucket),
    **kinds("index.Tensor", index),
    **kinds("index_put", index_put),
}
