"""Placement of the submeshes of a plan on the cluster.

On nodes of a power of two by buddy allocation: the smallest free block that is large enough is halved until it fits.
There is then never more than one free block of each size below a node, so submeshes whose devices add up to the cluster
can always be placed, in any order (Alpa, appendix A, theorem 1).

On other nodes the submeshes smaller than a node are sorted into groups that fill one (`tiling`); and where nodes are
in pods, these blocks and the submeshes smaller than a pod into groups that fill a pod, and so on.
"""

from collections.abc import Sequence

from alpa_explore.cluster.mesh import Submesh
from alpa_explore.cluster.tiling import sort_into_groups
from alpa_explore.cluster.topology import Cluster


def place(cluster: Cluster, submeshes: Sequence[Submesh]) -> tuple[tuple[int, ...], ...]:
    """The device numbers of each submesh, disjoint; device d is number d % M of node d // M."""
    if cluster.others:
        return _on_their_kinds(cluster, submeshes)
    per_node = cluster.devices_per_node
    if per_node & (per_node - 1) or len(cluster.tiers) > 2:
        return _sorted_into_units(cluster, submeshes)
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


def _on_their_kinds(cluster: Cluster, submeshes: Sequence[Submesh]) -> tuple[tuple[int, ...], ...]:
    """Each kind of nodes by itself."""
    placed, start = dict[int, tuple[int, ...]](), 0
    for number, kind in enumerate(cluster.kinds):
        indices = [index for index, submesh in enumerate(submeshes) if submesh.kind == number]
        for index, devices in zip(indices, place(kind, [submeshes[index] for index in indices]), strict=True):
            placed[index] = tuple(start + device for device in devices)
        start += kind.devices
    return tuple(placed[index] for index in range(len(submeshes)))


def _sorted_into_units(cluster: Cluster, submeshes: Sequence[Submesh]) -> tuple[tuple[int, ...], ...]:
    """From the node outwards, what is smaller than a unit is sorted into groups that fill one. Units of a level are
    given in the order of the first submesh that each holds."""
    blocks = [(submesh.devices, [index]) for index, submesh in enumerate(submeshes)]
    below = 1
    for tier in cluster.tiers[:-1]:
        small = [block for block in blocks if block[0] < tier.devices]
        groups = sort_into_groups([size // below for size, _ in small], tier.devices // below)
        assert groups is not None, "the submeshes do not fill whole units"
        blocks = [block for block in blocks if block[0] >= tier.devices]
        blocks += [(tier.devices, [index for place in group for index in small[place][1]]) for group in groups]
        blocks.sort(key=lambda block: min(block[1]))
        below = tier.devices
    start, placed = 0, dict[int, tuple[int, ...]]()
    for index in (index for _, indices in blocks for index in indices):
        placed[index] = tuple(range(start, start + submeshes[index].devices))
        start += submeshes[index].devices
    return tuple(placed[index] for index in range(len(submeshes)))
