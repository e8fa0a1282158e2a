"""Which piece of a tensor every device holds: what a spec means on a given logical mesh, whatever it is called.

One division has several names: S0R on a logical mesh 1×4 and S01R on 2×2 give each of four devices the same quarter. A
piece is described by fractions of the tensor (block 2 of 4 of each dim), since a legal spec divides evenly; so no
shape is needed, and tensors of different batch sizes can be compared.
"""

import math
import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import product
from typing import NamedTuple, TypeAlias

from alpa_explore.sharding.spec import PARTIAL, REPLICATE, Spec

_DIM = re.compile(r"R|S([0-9]+)")


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
    sizes = tuple(size for size in mesh_shape if size > 1)
    placements, rank = _placements(spec, len(sizes))
    pieces = [_piece(placements, rank, sizes, place) for place in product(*map(range, sizes))]
    if not devices:
        return tuple(pieces)
    assert len(devices) == len(pieces), "a device for each place of the logical mesh"
    return tuple(piece for _, piece in sorted(zip(devices, pieces, strict=True)))


def _placements(spec: str, axes: int) -> tuple[Spec, int]:
    """The placement of each axis, and the number of dims."""
    dims, _, pending = spec.partition("+P")
    placements = [REPLICATE] * axes
    dim_specs = [found.group(1) or "" for found in _DIM.finditer(dims)]
    for dim, sharding in enumerate(dim_specs):
        for axis in map(int, sharding):
            placements[axis] = dim
    for axis in map(int, pending):
        placements[axis] = PARTIAL
    return tuple(placements), len(dim_specs)


def _piece(placements: Spec, rank: int, sizes: Sequence[int], place: Sequence[int]) -> Piece:
    def part(placement: int) -> tuple[int, int]:
        """Mixed-radix number of the coordinates along the axes with this placement, the first most significant."""
        number = 0
        for axis in _axes_with(placements, placement):
            number = number * sizes[axis] + place[axis]
        return number, math.prod(sizes[axis] for axis in _axes_with(placements, placement))

    return Piece(tuple(part(dim) for dim in range(rank)), part(PARTIAL))


def _axes_with(placements: Spec, placement: int) -> Iterator[int]:
    return (axis for axis, found in enumerate(placements) if found == placement)
