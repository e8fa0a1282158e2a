"""Where on the cluster the submeshes of a plan lie.

Buddy allocation: the smallest free block that is large enough is cut in halves. Blocks smaller than a node are then
never more than one of each size, so submeshes whose devices add up to the cluster always find a place, in any order
(paper, theorem 1).
"""

from __future__ import annotations

from collections.abc import Sequence

from alpa_explore.cluster.mesh import Submesh
from alpa_explore.cluster.topology import Cluster


def place(cluster: Cluster, pieces: Sequence[Submesh]) -> tuple[tuple[int, ...], ...]:
    """Device numbers of each of `pieces`, disjoint; device d is number d % M of node d // M."""
    per_node = cluster.devices_per_node
    free_nodes = list(range(cluster.nodes))
    free_blocks: list[tuple[int, int]] = []  # (size, first device), smaller than a node
    placed = []
    for piece in pieces:
        if piece.devices_per_node == per_node:
            nodes, free_nodes = free_nodes[: piece.nodes], free_nodes[piece.nodes :]
            assert len(nodes) == piece.nodes, "the submeshes do not fit the cluster"
            placed.append(tuple(node * per_node + d for node in nodes for d in range(per_node)))
            continue
        fitting = sorted(b for b in free_blocks if b[0] >= piece.devices)
        if fitting:
            size, start = fitting[0]
            free_blocks.remove(fitting[0])
        else:
            size, start = per_node, free_nodes.pop(0) * per_node
        while size > piece.devices:
            size //= 2
            free_blocks.append((size, start + size))
        placed.append(tuple(range(start, start + size)))
    return tuple(placed)
