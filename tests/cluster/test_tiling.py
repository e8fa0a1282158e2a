"""Which sizes of pieces tile a whole, against a search over all collections of pieces."""

import random
from functools import cache
from itertools import combinations_with_replacement

import pytest

from alpa_explore.cluster import Cluster, Submesh, logical_meshes, place, submeshes
from alpa_explore.cluster.tiling import power_of_two_sizes, sort_into_groups, tile_sizes
from tests.cluster.test_levels import pods


@cache
def can_be_grouped(pieces: tuple[int, ...], count: int) -> bool:
    """Whether sorted pieces can be divided into groups of `count`: every subset that holds the first is tried."""
    if not pieces:
        return True
    first, rest = pieces[-1], pieces[:-1]
    for chosen in range(1 << len(rest)):
        if first + sum(size for i, size in enumerate(rest) if chosen >> i & 1) == count:
            left = tuple(size for i, size in enumerate(rest) if not chosen >> i & 1)
            if can_be_grouped(left, count):
                return True
    return False


def collections(sizes: tuple[int, ...], total: int, least: int = 0) -> list[tuple[int, ...]]:
    if total == 0:
        return [()]
    return [
        (size, *more) for size in sizes if least <= size <= total for more in collections(sizes, total - size, size)
    ]


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 6, 7, 8, 9, 10])
def test_every_collection_of_tile_sizes_fills_one_or_two_nodes(count):
    for nodes in (1, 2):
        for pieces in collections(tile_sizes(count), nodes * count):
            groups = sort_into_groups(pieces, count)
            assert groups is not None, pieces
            assert sorted(i for group in groups for i in group) == list(range(len(pieces)))
            assert all(sum(pieces[i] for i in group) == count for group in groups)


def test_two_nodes_of_30_cannot_be_tiled_by_all_divisors():
    pieces = (1, 6, 6, 6, 6, 10, 10, 15)
    assert sum(pieces) == 60
    assert not can_be_grouped(pieces, 30)
    assert 15 not in tile_sizes(30)


@pytest.mark.parametrize("count", [6, 12, 18])
def test_where_all_divisors_tile_no_collection_of_large_pieces_fails(count):
    sizes = tuple(d for d in range(2, count) if count % d == 0)
    assert tile_sizes(count) == (1, *sizes, count)
    for length in range(2, 9):
        for pieces in combinations_with_replacement(sizes, length):
            if sum(pieces) % count == 0:
                assert can_be_grouped(pieces, count), pieces


def test_sizes_of_common_nodes():
    assert tile_sizes(8) == power_of_two_sizes(8) == (1, 2, 4, 8)
    assert tile_sizes(12) == (1, 2, 3, 4, 6, 12)
    assert tile_sizes(72) == (1, 2, 3, 4, 6, 8, 9, 12, 18, 24, 36, 72)
    assert power_of_two_sizes(72) == (1, 2, 4, 8, 72)


PLACED = ["1x3:v100", "2x6:v100", "3x12:v100", "2x72:gb200", "2x30:v100", "8x8:v100", "3x1:v100", "8x4:v100", "pods"]


@pytest.mark.parametrize("text", PLACED)
def test_random_submeshes_that_add_up_are_placed_without_crossing_a_node_or_a_pod(text, tmp_path):
    rng, cluster = random.Random(text), pods(tmp_path, 8, 6, 3) if text == "pods" else Cluster.parse(text)
    for _ in range(100):
        left, pieces = cluster.devices, list[Submesh]()
        while left:
            pieces.append(rng.choice([s for s in submeshes(cluster) if s.devices <= left]))
            left -= pieces[-1].devices
        placed = place(cluster, pieces)
        assert sorted(d for devices in placed for d in devices) == list(range(cluster.devices))
        for piece, devices in zip(pieces, placed, strict=True):
            assert list(devices) == list(range(devices[0], devices[0] + piece.devices))
            assert len({d // cluster.devices_per_node for d in devices}) == piece.nodes
            for tier in cluster.tiers[:-1]:
                assert piece.devices > tier.devices or len({d // tier.devices for d in devices}) == 1


def test_axes_of_a_logical_mesh_lie_in_a_node_or_join_whole_nodes():
    cluster = Cluster.parse("2x6:v100")
    shapes = {m.shape for m in logical_meshes(cluster, Submesh(2, 6))}
    assert shapes == {(1, 12), (2, 6), (4, 3), (6, 2), (12, 1)} - {(12, 1)}
    for mesh in logical_meshes(cluster, Submesh(2, 6)):
        (a, b), network = mesh.shape, cluster.between_nodes
        for axis, (size, stride) in enumerate(((a, b), (b, 1))):
            groups = [
                {(block * size + i) * stride + j for i in range(size)}
                for block in range(12 // (size * stride))
                for j in range(stride)
            ]
            crossing = {len({d // 6 for d in group}) > 1 for group in groups}
            assert len(crossing) == 1, "some groups cross the network and others do not"
            if size > 1:
                assert (mesh.latency_seconds[axis] == network.latency_seconds) == crossing.pop()
