"""Which box of a tensor a device holds, and how boxes of one mesh make those of another."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from alpa_explore.programs.instruction import Box
from alpa_explore.sharding.spec import REPLICATE, Spec, is_legal, local_share, shards


def coordinates(mesh_shape: Sequence[int]) -> list[tuple[int, ...]]:
    """Of every device, row-major."""
    return list(itertools.product(*map(range, mesh_shape)))


def box_of(spec: Spec, shape: Sequence[int], mesh_shape: Sequence[int], coordinate: Sequence[int]) -> Box:
    """What the device at `coordinate` holds of a tensor; the whole of it along axes that do not cut."""
    pieces = shards(spec, mesh_shape, len(shape))
    block = [0] * len(shape)
    for axis, placement in enumerate(spec):
        if placement >= 0:
            block[placement] = block[placement] * mesh_shape[axis] + coordinate[axis]
    return tuple((b * n // p, (b + 1) * n // p) for n, p, b in zip(shape, pieces, block, strict=True))


def intersection(a: Box, b: Box) -> Box | None:
    """What two boxes have in common; None for nothing."""
    shared = tuple((max(p[0], q[0]), min(p[1], q[1])) for p, q in zip(a, b, strict=True))
    return shared if all(start < stop for start, stop in shared) else None


def inside(box: Box, outer: Box) -> Box:
    """`box` in the coordinates of `outer`."""
    return tuple((s - o, e - o) for (s, e), (o, _) in zip(box, outer, strict=True))


def arriving_spec(spec: Spec, shape: Sequence[int], mesh_shape: Sequence[int]) -> Spec:
    """The spec in which a tensor that is wanted as `spec` is received: cut along axes that hold copies, where a dim
    divides, so that each byte crosses once; an all-gather inside the mesh makes the copies."""
    best = spec
    choices = [[p] if p != REPLICATE else [REPLICATE, *range(len(shape))] for p in spec]
    for candidate in itertools.product(*choices):
        if is_legal(candidate, shape, mesh_shape) and local_share(candidate, mesh_shape) < local_share(best, mesh_shape):
            best = candidate
    return best
