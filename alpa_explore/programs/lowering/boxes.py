"""The boxes of a tensor that devices hold, and how boxes on one mesh are assembled from boxes on another."""

import itertools
from collections.abc import Sequence

from alpa_explore.programs.instruction import Box
from alpa_explore.sharding.spec import REPLICATE, Spec, is_legal, local_share, shards


def coordinates(mesh_shape: Sequence[int]) -> list[tuple[int, ...]]:
    """The coordinates of every device of a mesh, row-major."""
    return list(itertools.product(*map(range, mesh_shape)))


def box_of(spec: Spec, shape: Sequence[int], mesh_shape: Sequence[int], coordinate: Sequence[int]) -> Box:
    """The box of a tensor that the device at `coordinate` holds; axes that do not shard leave the dims whole."""
    pieces = shards(spec, mesh_shape, len(shape))
    block = [0] * len(shape)
    for axis, placement in enumerate(spec):
        if placement >= 0:
            block[placement] = block[placement] * mesh_shape[axis] + coordinate[axis]
    return tuple((b * n // p, (b + 1) * n // p) for n, p, b in zip(shape, pieces, block, strict=True))


def intersection(a: Box, b: Box) -> Box | None:
    """The intersection of two boxes; None where it is empty."""
    shared = tuple((max(p[0], q[0]), min(p[1], q[1])) for p, q in zip(a, b, strict=True))
    return shared if all(start < stop for start, stop in shared) else None


def inside(box: Box, outer: Box) -> Box:
    """`box` in the coordinates of `outer`."""
    return tuple((s - o, e - o) for (s, e), (o, _) in zip(box, outer, strict=True))


def arriving_spec(spec: Spec, shape: Sequence[int], mesh_shape: Sequence[int]) -> Spec:
    """The spec in which a mesh receives a tensor that it needs in `spec`.

    It also shards along the replicated axes, where a dim is divisible, so that each byte crosses between the meshes
    once; an all-gather inside the mesh makes the replicas (Alpa, §6, local all-gather).
    """
    best = spec
    choices = [[p] if p != REPLICATE else [REPLICATE, *range(len(shape))] for p in spec]
    for candidate in itertools.product(*choices):
        if is_legal(candidate, shape, mesh_shape) and local_share(candidate, mesh_shape) < local_share(
            best, mesh_shape
        ):
            best = candidate
    return best
