"""Which piece of a tensor every device holds: what a spec means on a given logical mesh, whatever it is called.

One division has several names: S0R on a logical mesh 1×4 and S01R on 2×2 give each of four devices the same quarter. A
piece is described by fractions of the tensor (block 2 of 4 of each dim), since a legal spec divides evenly; so no
shape is needed, and tensors of different batch sizes can be compared.
"""

import math
from collections.abc import Sequence
from functools import lru_cache
from itertools import product
from typing import NamedTuple, TypeAlias

from alpa_explore.sharding.spec import read_spec


class Piece(NamedTuple):
    """What one device holds of a tensor."""

    blocks: tuple[tuple[int, int], ...]
    """For each dim (number of the block, number of blocks); (0, 1) where the dim is whole."""
    addend: tuple[int, int]
    """(number of the addend, number of addends) of a pending sum; (0, 1) where the values are final."""

    @property
    def whole(self) -> bool:
        """Whether it is the whole tensor."""
        return self.addend[1] == 1 and all(count == 1 for _, count in self.blocks)


Tiling: TypeAlias = tuple[Piece, ...]
"""The piece of each device of a submesh, in the order of their numbers."""


# Memo of a pure function: a plan has thousands of operators and a few dozen distinct specs.
@lru_cache(maxsize=4096)
def tiling(spec: str, mesh_shape: tuple[int, ...], devices: tuple[int, ...] = ()) -> Tiling:
    """The piece of every device under `spec`, written as in a plan ('S0R', 'RS01+P2').

    `mesh_shape` is the logical mesh, with or without axes of size 1; `devices` are the devices along it, row-major
    (by default in ascending order).
    """
    sizes, read = tuple(size for size in mesh_shape if size > 1), read_spec(spec)
    pieces = [
        Piece(tuple(_part(axes, sizes, place) for axes in read.dims), _part(read.pending, sizes, place))
        for place in product(*map(range, sizes))
    ]
    if not devices:
        return tuple(pieces)
    assert len(devices) == len(pieces), "a device for each place of the logical mesh"
    return tuple(piece for _, piece in sorted(zip(devices, pieces, strict=True)))


def _part(axes: Sequence[int], sizes: Sequence[int], place: Sequence[int]) -> tuple[int, int]:
    """(mixed-radix number of the coordinates of `place` along some axes, the first most significant; how many)."""
    number = 0
    for axis in axes:
        number = number * sizes[axis] + place[axis]
    return number, math.prod(sizes[axis] for axis in axes)
