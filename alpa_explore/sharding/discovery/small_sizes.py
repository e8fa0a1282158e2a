"""Reduced sizes for an operator, so that discovery can run it on real numbers in milliseconds.

The behaviour of an operator may depend on which sizes are equal, which is larger, and which divides which. A reduction
is a map from size to smaller size, applied to tensor extents and integer arguments alike, that keeps all three
relations and small ratios.
"""

import itertools
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

import torch

from alpa_explore.graph import Argument, Operator, Tensor
from alpa_explore.sharding.discovery import tuning
from alpa_explore.tracing.aten import run_operator

_UNBOUNDED = 2**31
"""An argument from this value on means 'to the end' (slice), and is kept."""


def reduced_sizes(operator: Operator, inputs: Collection[Tensor], keep: int, unit: int) -> dict[int, int]:
    """Size -> reduced size, for every extent of the inputs and every integer argument that is a size."""
    extents = {size for tensor in inputs for size in tensor.shape}
    values = {abs(n) for a in (*operator.arguments, *(v for _, v in operator.keywords)) for n in _integers(a)}
    sizes = extents | {n for n in values if tuning.LARGEST_FIXED_ARGUMENT < n < _UNBOUNDED}
    reduced: dict[int, int] = {}
    last = keep
    for size in sorted(sizes):
        if size <= keep:
            reduced[size] = size
            continue
        smaller = [s for s in reduced if s > max(keep, 1)]
        step = math.lcm(unit, *(reduced[s] for s in smaller if size % s == 0))
        small = (last // step + 1) * step
        unrelated = [reduced[s] for s in smaller if size % s]
        for _ in unrelated:  # a heuristic: skip multiples of reduced sizes whose originals do not divide this one
            if any(small % other == 0 for other in unrelated):
                small += step
        # Keep a ratio of 2 or 3 to another size: gates, or query, key and value, stored side by side in one tensor.
        ratio = next(
            (size // s for s in reversed(smaller) if size % s == 0 and size // s <= tuning.LARGEST_RATIO), None
        )
        exact = ratio * reduced[size // ratio] if ratio else 0
        if exact > last and exact % step == 0:
            small = exact
        reduced[size] = last = small
    return reduced


def related_sizes(operator: Operator, inputs: Sequence[Tensor], small: Mapping[int, int]) -> dict[int, int] | None:
    """`small` with sizes changed so that the operator accepts their shapes; None where no such change is found.

    An operator of a backward pass reads what its forward operator read and a gradient of another size, which follows
    from the first by a pad, a window or a stride. So first, a size that is a little larger than another keeps the
    difference; then one size takes every value up to the largest.
    """
    offset: dict[int, int] = {}
    for size in sorted(small):
        near = [s for s in offset if size - tuning.LARGEST_OFFSET <= s < size and size - s < s]
        offset[size] = offset[max(near)] + size - max(near) if near else small[size]
    alone = (
        {**small, size: value} for size in sorted(small, reverse=True) for value in range(1, max(small.values()) + 2)
    )
    tried = itertools.chain((small, offset), alone)
    return next((dict(sizes) for sizes in tried if _runs_on_shapes(operator, inputs, sizes)), None)


@torch.no_grad()
def _runs_on_shapes(operator: Operator, inputs: Sequence[Tensor], small: Mapping[int, int]) -> bool:
    shapes = [reduced_tensor(t, small).shape for t in inputs]
    given = {
        place: torch.empty(shape, dtype=getattr(torch, tensor.dtype), device="meta")
        for place, (shape, tensor) in enumerate(zip(shapes, inputs, strict=True))
    }
    try:
        run_operator(reduced_operator(operator, small), given, "meta")
    except Exception:  # an operator may reject shapes with any exception class
        return False
    return True


def reduced_tensor(tensor: Tensor, small: Mapping[int, int]) -> Tensor:
    """`tensor` with reduced extents."""
    return replace(tensor, shape=tuple(small.get(size, size) for size in tensor.shape))


def reduced_operator(operator: Operator, small: Mapping[int, int]) -> Operator:
    """`operator` with reduced sizes among its arguments."""
    return replace(
        operator,
        arguments=tuple(_reduced(a, small) for a in operator.arguments),
        keywords=tuple((name, _reduced(a, small)) for name, a in operator.keywords),
    )


def _integers(argument: Argument) -> tuple[int, ...]:
    if isinstance(argument, tuple):
        return tuple(n for a in argument for n in _integers(a))
    return (argument,) if isinstance(argument, int) and not isinstance(argument, bool) else ()


def _reduced(argument: Argument, small: Mapping[int, int]) -> Argument:
    if isinstance(argument, tuple):
        return tuple(_reduced(a, small) for a in argument)
    if isinstance(argument, int) and not isinstance(argument, bool) and abs(argument) > tuning.LARGEST_FIXED_ARGUMENT:
        size = small.get(abs(argument), abs(argument))
        return size if argument > 0 else -size
    return argument
