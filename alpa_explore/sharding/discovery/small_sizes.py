"""Small stand-ins for the sizes of an operator, so that discovery can run it on real numbers.

What an operator does may hang on which sizes are equal, which is larger, and which divides which. A shrinking keeps
all three, and small ratios. It maps sizes to sizes, among the extents of tensors and the integer arguments alike.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import replace

from alpa_explore.graph import Argument, Operator, Tensor

LARGEST_FIXED_ARGUMENT = 4
"""Integer arguments up to here name dims, strides, pads, modes; larger ones are sizes, and shrink with the extents."""
_UNBOUNDED = 2**31
"""From here on an argument means 'to the end'."""

_LARGEST_RATIO = 3

SHRINKINGS = ((1, 6), (1, 8), (4, 6), (4, 8), (1, 4), (4, 4), (8, 8), (16, 8), (16, 12))
"""(keep, unit): sizes up to `keep` stay as they are, larger ones become multiples of `unit`. Units 6 and 12 can be cut
into 2 and 3 pieces, units 4 and 8 into 2 and 4: a split that holds under both does not hang on the number of pieces."""


def shrinking(operator: Operator, inputs: Collection[Tensor], keep: int, unit: int) -> dict[int, int]:
    """Size -> small size, for every extent of the inputs and every integer argument."""
    extents = {size for tensor in inputs for size in tensor.shape}
    given = {abs(n) for a in (*operator.arguments, *(v for _, v in operator.keywords)) for n in _integers(a)}
    sizes = extents | {n for n in given if LARGEST_FIXED_ARGUMENT < n < _UNBOUNDED}
    found: dict[int, int] = {}
    last = keep
    for size in sorted(sizes):
        if size <= keep:
            found[size] = size
            continue
        smaller = [s for s in found if s > max(keep, 1)]
        step = math.lcm(unit, *(found[s] for s in smaller if size % s == 0))
        small = (last // step + 1) * step
        strangers = [found[s] for s in smaller if size % s]
        for _ in strangers:  # skip multiples of sizes that do not divide this one, where that is easy
            if any(small % other == 0 for other in strangers):
                small += step
        # Twice, three times another size: what holds gates or queries, keys and values side by side must stay so.
        ratio = next((size // s for s in reversed(smaller) if size % s == 0 and size // s <= _LARGEST_RATIO), None)
        exact = ratio * found[size // ratio] if ratio else 0
        if exact > last and exact % step == 0:
            small = exact
        found[size] = last = small
    return found


def shrunk_tensor(tensor: Tensor, small: Mapping[int, int]) -> Tensor:
    """`tensor` with small extents."""
    return replace(tensor, shape=tuple(small.get(size, size) for size in tensor.shape))


def shrunk_operator(operator: Operator, small: Mapping[int, int]) -> Operator:
    """`operator` with small sizes among its arguments."""
    return replace(
        operator,
        arguments=tuple(_shrunk(a, small) for a in operator.arguments),
        keywords=tuple((name, _shrunk(a, small)) for name, a in operator.keywords),
    )


def _integers(argument: Argument) -> tuple[int, ...]:
    if isinstance(argument, tuple):
        return tuple(n for a in argument for n in _integers(a))
    return (argument,) if isinstance(argument, int) and not isinstance(argument, bool) else ()


def _shrunk(argument: Argument, small: Mapping[int, int]) -> Argument:
    if isinstance(argument, tuple):
        return tuple(_shrunk(a, small) for a in argument)
    if isinstance(argument, int) and not isinstance(argument, bool) and abs(argument) > LARGEST_FIXED_ARGUMENT:
        size = small.get(abs(argument), abs(argument))
        return size if argument > 0 else -size
    return argument
