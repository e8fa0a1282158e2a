"""Sharding specs: one placement for each mesh axis, in the notation of the Alpa paper (arXiv 2201.12023, §4.1).

A spec is a tuple of ints, one for each axis of a squeezed logical mesh: a tensor dim (≥ 0) that the axis shards,
`REPLICATE`, or `PARTIAL` (every device holds an addend; their sum is the tensor). Axes that shard the same dim do so in
ascending order: in S01 axis 0 makes the large blocks.

A *tiling* says which piece of a tensor every device holds: what a spec means on a given logical mesh, whatever it is
called. One division has several names: S0R on a logical mesh 1×4 and S01R on 2×2 give each of four devices the same
quarter. A piece is described by fractions of the tensor (block 2 of 4 of each dim), since a legal spec divides evenly;
so no shape is needed, and tensors of different batch sizes can be compared.
"""

import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from typing import NamedTuple, TypeAlias

REPLICATE = -1
PARTIAL = -2

Spec: TypeAlias = tuple[int, ...]
Divisibility: TypeAlias = tuple[bool, ...]
"""Indexed by a bit set of mesh axes: whether the product of their sizes divides an extent."""


def shards(spec: Spec, mesh_shape: Sequence[int], rank: int) -> tuple[int, ...]:
    """The number of shards of each of the `rank` tensor dims."""
    pieces = [1] * rank
    for placement, size in zip(spec, mesh_shape, strict=True):
        if placement >= 0:
            pieces[placement] *= size
    return tuple(pieces)


def is_legal(spec: Spec, shape: Sequence[int], mesh_shape: Sequence[int]) -> bool:
    """True when every sharded dim exists and divides evenly."""
    if any(p >= len(shape) for p in spec):
        return False
    return all(size % n == 0 for size, n in zip(shape, shards(spec, mesh_shape, len(shape)), strict=True))


def local_shape(spec: Spec, shape: Sequence[int], mesh_shape: Sequence[int]) -> tuple[int, ...]:
    """Shape of the shard of one device; `spec` must be legal."""
    return tuple(size // n for size, n in zip(shape, shards(spec, mesh_shape, len(shape)), strict=True))


def local_share(spec: Spec, mesh_shape: Sequence[int]) -> float:
    """Share of the elements that one device holds; PARTIAL and REPLICATE hold all of them."""
    return 1.0 / math.prod(size for placement, size in zip(spec, mesh_shape, strict=True) if placement >= 0)


def legal_specs(shape: Sequence[int], mesh_shape: Sequence[int], *, partial: bool) -> tuple[Spec, ...]:
    """All legal specs of a tensor, replicated first; with `partial` also those with pending sums."""
    return specs_of_divisibility(divisibility(shape, mesh_shape), len(mesh_shape), partial)


def divisibility(extents: Iterable[int], mesh_shape: Sequence[int]) -> tuple[Divisibility, ...]:
    """For each extent which sets of mesh axes divide it.

    The legality of specs and strategies depends on nothing else, so meshes of different sizes share cached results.
    """
    counts = axes_products(tuple(mesh_shape))
    return tuple(tuple(extent % n == 0 for n in counts) for extent in extents)


# Memo of a pure function.
@lru_cache(maxsize=256)
def axes_products(mesh_shape: tuple[int, ...]) -> tuple[int, ...]:
    """For each bit set of mesh axes the product of their sizes."""
    axes = range(len(mesh_shape))
    return tuple(math.prod(mesh_shape[a] for a in axes if bits >> a & 1) for bits in range(1 << len(mesh_shape)))


# Memo of a pure function.
@lru_cache(maxsize=1024)
def specs_of_divisibility(divided: tuple[Divisibility, ...], axes: int, partial: bool) -> tuple[Spec, ...]:
    """`legal_specs` of a tensor, given which axes divide each of its dims."""
    placements = [REPLICATE, *range(len(divided)), *([PARTIAL] if partial else [])]

    def legal(spec: Spec) -> bool:
        return all(divides[sharding_axes(spec, dim)] for dim, divides in enumerate(divided))

    return tuple(spec for spec in itertools.product(placements, repeat=axes) if legal(spec))


def sharding_axes(spec: Spec, dim: int) -> int:
    """The axes that shard a dim, as a bit set."""
    return sum(1 << axis for axis, placement in enumerate(spec) if placement == dim)


def is_floating(dtype: str) -> bool:
    """True for real floating dtypes, the only ones in which a tensor may be PARTIAL: integers and booleans are indices
    and masks, and are never partial sums."""
    return dtype.startswith(("float", "bfloat"))


@lru_cache(maxsize=4096)
def render(spec: Spec, rank: int) -> str:
    """(1, -1) of a rank-2 tensor -> 'RS0'; a pending sum over axis 1 appends '+P1'; a scalar is '·'."""
    dims = []
    for dim in range(rank):
        axes = "".join(str(axis) for axis, placement in enumerate(spec) if placement == dim)
        dims.append(f"S{axes}" if axes else "R")
    pending = "".join(str(axis) for axis, placement in enumerate(spec) if placement == PARTIAL)
    return ("".join(dims) or "·") + (f"+P{pending}" if pending else "")


@dataclass(frozen=True, slots=True)
class ReadSpec:
    """A spec as it is written, taken apart."""

    dims: tuple[tuple[int, ...], ...]
    """For each tensor dim the mesh axes that divide it."""
    pending: tuple[int, ...]
    """The mesh axes over which a sum is pending."""


def read_spec(spec: str) -> ReadSpec:
    """'S01R+P2' -> ReadSpec(dims=((0, 1), ()), pending=(2,)); a scalar ('·') has no dims."""
    whole, _, pending = spec.partition("+P")
    dims: list[list[int]] = []
    for letter in whole:
        if letter in "SR":
            dims.append([])
        elif letter.isdecimal() and dims:
            dims[-1].append(int(letter))
    return ReadSpec(tuple(map(tuple, dims)), tuple(int(letter) for letter in pending if letter.isdecimal()))


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
