"""Splits from factors, the loop dims of an operator as in an einsum.

A factor that appears in the output is spatial: the output shards are concatenated. A factor that does not is reduced:
the outputs of the devices are added, so the output is PARTIAL. These helpers serve the common forms of operators; the
rule of a family adds what is special to it.
"""

import math
from collections.abc import Callable, Collection, Sequence
from typing import TypeVar

from alpa_explore.graph import Operator, Tensor
from alpa_explore.sharding.spec import PARTIAL, REPLICATE, is_floating
from alpa_explore.sharding.strategy import Split

Splits = tuple[Split, ...]
Tensors = tuple[Tensor, ...]
Rule = Callable[[Operator, Tensors, Tensors], Splits]
"""An operator, its inputs and its outputs -> the splits of its work."""


R = TypeVar("R")


def kinds(names: str, rule: R, library: str = "aten") -> dict[str, R]:
    """A rule for several operators of a library: 'view squeeze.dim' are aten.view.default and aten.squeeze.dim."""
    return {f"{library}.{name}" if "." in name else f"{library}.{name}.default": rule for name in names.split()}


def einsum(equation: str) -> Rule:
    """The rule of an operator with these factors. A tensor of fewer dims than its term (a bias that is broadcast) has
    the last ones."""

    def rule(operator: Operator, inputs: Tensors, outputs: Tensors) -> Splits:
        left, right = (side.split(",") for side in equation.split("->"))
        terms = (
            ",".join(term[max(len(term) - len(tensor.shape), 0) :] for term, tensor in zip(side, tensors, strict=True))
            for side, tensors in ((left, inputs), (right, outputs))
        )
        return from_factors("->".join(terms), inputs, outputs)

    return rule


def each_dim(operator: Operator, inputs: Tensors, outputs: Tensors) -> Splits:
    """Every dim of the output is spatial, and no pending sum passes through: f(x), f(x, y), random numbers, of which
    each device draws those of its own shard."""
    return elementwise(inputs, outputs)


def each_plane(operator: Operator, inputs: Tensors, outputs: Tensors) -> Splits:
    """Every dim but the last two: pooling, triangles. The indices that max pooling returns are relative to one
    plane."""
    rank = len(outputs[0].shape)
    return elementwise(inputs, outputs, uncut=(rank - 2, rank - 1))


def each_other_dim(place: int, default: int = 0, *, linear: bool = True) -> Rule:
    """Every dim but the one (or those) that the argument at `place` names: it is cut, joined, sorted, selected from.
    Tensors may lack it; their later dims are one place earlier. A pending sum passes through `linear` operators."""

    def rule(operator: Operator, inputs: Tensors, outputs: Tensors) -> Splits:
        tensors, given = (*inputs, *outputs), default
        rank = max(len(t.shape) for t in tensors)
        whole = next(t.shape for t in tensors if len(t.shape) == rank)
        if len(operator.arguments) > place:
            given = operator.arguments[place]  # type: ignore[assignment]  # dims are numbers
        uncut = {d % rank for d in (given if isinstance(given, tuple) else (given,))} if rank else set()

        def along_dim(tensor: Tensor, d: int) -> int:
            if tensor.shape == (0,) and rank > 1:
                return REPLICATE  # an empty operand of cat, a legacy form
            return d if len(tensor.shape) == rank else d - sum(u < d for u in uncut)

        rows = [
            (tuple(along_dim(t, d) for t in inputs), tuple(along_dim(t, d) for t in outputs), whole[d])
            for d in range(rank)
            if d not in uncut
        ]
        splits = along(inputs, outputs, rows)
        return with_pending_sum(splits, inputs, outputs) if linear else splits

    return rule


def from_factors(equation: str, inputs: Sequence[Tensor], outputs: Sequence[Tensor]) -> Splits:
    """'mk,kn->mn': one letter a dim. A letter that is in no output is reduced; '.' is a dim that is never sharded."""
    left, right = equation.split("->")
    input_terms, output_terms = left.split(","), right.split(",")
    sizes: dict[str, int] = {}
    for term, tensor in zip((*input_terms, *output_terms), (*inputs, *outputs), strict=True):
        assert len(term) == len(tensor.shape), f"{equation} does not describe {tensor.shape}"
        for letter, size in zip(term, tensor.shape, strict=True):
            sizes[letter] = max(size, sizes.get(letter, 1))
    splits = []
    for letter, size in sizes.items():
        if letter == "." or size == 1:
            continue

        def cut(term: str, tensor: Tensor, letter: str = letter, size: int = size) -> int:
            dim = term.find(letter)
            return dim if dim >= 0 and tensor.shape[dim] == size else REPLICATE

        ins = tuple(cut(t, x) for t, x in zip(input_terms, inputs, strict=True))
        outs = tuple(cut(t, x) if letter in t else PARTIAL for t, x in zip(output_terms, outputs, strict=True))
        if any(p >= 0 for p in (*ins, *outs)):
            splits.append(Split(letter, size, ins, outs))
    return tuple(splits)


def elementwise(inputs: Sequence[Tensor], outputs: Sequence[Tensor], uncut: Collection[int] = ()) -> Splits:
    """Every dim of the first output except `uncut`; inputs broadcast (a missing dim or one of size 1 is replicated)."""
    shape = outputs[0].shape
    rank = len(shape)

    def cut(tensors: Sequence[Tensor], dim: int) -> tuple[int, ...]:
        return tuple(broadcast_dim(t, dim, rank, shape[dim]) for t in tensors)

    return tuple(
        Split(f"dim{dim}", shape[dim], cut(inputs, dim), cut(outputs, dim))
        for dim in range(rank)
        if shape[dim] > 1 and dim not in uncut
    )


def broadcast_dim(tensor: Tensor, dim: int, rank: int, size: int) -> int:
    """The dim of `tensor` that is aligned with `dim`, of extent `size`, when it is broadcast to `rank` dims; REPLICATE
    when the tensor lacks that dim or is broadcast along it."""
    own_dim = dim - (rank - len(tensor.shape))
    return own_dim if own_dim >= 0 and tensor.shape[own_dim] == size else REPLICATE


def along(
    inputs: Sequence[Tensor], outputs: Sequence[Tensor], pairs: Sequence[tuple[Sequence[int], Sequence[int], int]]
) -> Splits:
    """Splits listed dim by dim: (dim of each input, dim of each output, size); sizes of 1 are left out."""
    assert all(len(i) == len(inputs) and len(o) == len(outputs) for i, o, _ in pairs), "a placement for each tensor"
    return tuple(
        Split(f"dim{next((d for d in (*i, *o) if d >= 0), 0)}", size, tuple(i), tuple(o))
        for i, o, size in pairs
        if size > 1
    )


def nonempty(*splits: Split) -> Splits:
    """Those whose loop dim is larger than 1."""
    return tuple(s for s in splits if s.size > 1)


def pending_sum(inputs: Sequence[Tensor], outputs: Sequence[Tensor], summed: Collection[int] | None = None) -> Splits:
    """A pending sum that passes through a linear operator: the inputs at `summed` (all by default) are PARTIAL."""
    places = range(len(inputs)) if summed is None else summed
    ins = tuple(PARTIAL if i in places else REPLICATE for i in range(len(inputs)))
    return (Split("sum", 1, ins, (PARTIAL,) * len(outputs), divides=False),)


def with_pending_sum(splits: Splits, inputs: Sequence[Tensor], outputs: Sequence[Tensor]) -> Splits:
    """`splits`, and that of a pending sum of all inputs where they and the outputs may be one."""
    passes = inputs and all(is_floating(t.dtype) for t in (*inputs, *outputs))
    return (*splits, *(pending_sum(inputs, outputs) if passes else ()))


def regrouped(source: Sequence[int], target: Sequence[int]) -> list[tuple[int, int, int]]:
    """(dim of source, dim of target, size) along which a reshape can be sharded; `size` must be divided.

    The dims are grouped so that a group of the source and its group of the target have the same number of elements.
    Blocks stay contiguous only along the first dim of a group that is larger than 1, so `size` is the gcd of the two.
    """
    if 0 in source:
        return []  # no elements, so nothing to shard
    pairs = []
    i = j = 0
    while i < len(source) or j < len(target):
        start_i, start_j = i, j
        left = source[i] if i < len(source) else 1
        right = target[j] if j < len(target) else 1
        i, j = i + 1, j + 1
        while left != right:
            if left < right:
                left *= source[i]
                i += 1
            else:
                right *= target[j]
                j += 1
        first_i = next((d for d in range(start_i, min(i, len(source))) if source[d] > 1), None)
        first_j = next((d for d in range(start_j, min(j, len(target))) if target[d] > 1), None)
        if first_i is not None and first_j is not None:
            size = math.gcd(source[first_i], target[first_j])
            if size > 1:
                pairs.append((first_i, first_j, size))
    return pairs
