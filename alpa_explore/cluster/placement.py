"""Placement of the submeshes of a plan on the cluster, by buddy allocation.

The smallest free block that is large enough is halved until it fits. There is then never more than one free block of
each size below a node, so submeshes whose devices add up to the cluster can always be placed, in any order (Alpa,
appendix A, theorem 1).
"""

from __future__ import annotations

from collections.abc import Sequence

from alpa_explore.cluster.mesh import Submesh
from alpa_explore.cluster.topology import Cluster


def place(cluster: Cluster, submeshes: Sequence[Submesh]) -> tuple[tuple[int, ...], ...]:
    """The device numbers of each submesh, disjoint; device d is number d % M of node d // M."""
    per_node = cluster.devices_per_node
    free_nodes = list(range(cluster.nodes))
    free_blocks: list[tuple[int, int]] = []  # (size, first device), smaller than a node
    placed = []
    for submesh in submeshes:
        if submesh.devices_per_node == per_node:
            nodes, free_nodes = free_nodes[: submesh.nodes], free_nodes[submesh.nodes :]
            assert len(nodes) == submesh.nodes, "the submeshes do not fit the cluster"
            placed.append(tuple(node * per_node + d for node in nodes for d in range(per_node)))
            continue
        fitting = sorted(b for b in free_blocks if b[0] >= submesh.devices)
        if fitting:
            size, start = fitting[0]
            free_blocks.remove(fitting[0])
        else:
            size, start = per_node, free_nodes.pop(0) * per_node
        while size > submesh.devices:
            size //= 2
            free_blocks.append((size, start + size))
        placed.append(tuple(range(start, start + size)))
    return tuple(placed)
