"""The submeshes that a stage may have, and the logical meshes that are tried for each."""

from dataclasses import replace

from alpa_explore.cluster.group import fills_units
from alpa_explore.cluster.mesh import LogicalMesh, Submesh, logical_mesh
from alpa_explore.cluster.tiling import power_of_two_sizes, tile_sizes
from alpa_explore.cluster.topology import Cluster

SUBMESH_SPACES = {
    "all": "divisors of a node that tile it (powers of two in the paper), and any number of whole nodes",
    "power-of-two": "powers of two inside a node, and a power of two of whole nodes",
}
"""Name of a submesh space -> its description."""


def submeshes(cluster: Cluster, space: str = "all") -> tuple[Submesh, ...]:
    """(1, 1), (1, 2), (1, 4), … (1, M), (2, M), … (N, M): these can always cover the whole cluster (Alpa,
    appendix A, theorem 1). A node of another size than a power of two is divided as `tiling` says: 1, 2, 3, 6 of 6; so
    is a pod of nodes, and outside there is any number of whole pods. In the space "power-of-two" the number of whole
    nodes is also a power of two. Of unlike nodes, each kind has submeshes of its own."""
    if cluster.others:
        kinds = enumerate(submeshes(kind, space) for kind in cluster.kinds)
        return tuple(replace(submesh, kind=number) for number, found in kinds for submesh in found)
    per_node = cluster.devices_per_node
    sizes = tile_sizes if space == "all" else power_of_two_sizes
    found = [Submesh(1, size) for size in sizes(per_node)]
    below = per_node
    for tier in cluster.tiers[1:-1]:
        found += [Submesh(below // per_node * n, per_node) for n in sizes(tier.devices // below)[1:]]
        below = tier.devices
    units = range(2, cluster.devices // below + 1)
    return (*found, *(Submesh(below // per_node * n, per_node) for n in units if space == "all" or n & (n - 1) == 0))


def logical_meshes(cluster: Cluster, submesh: Submesh) -> tuple[LogicalMesh, ...]:
    """Every factorisation (a, b) of the number of devices, one of each set of meshes with equal costs.

    (a, b) and (b, a) differ only in the order of their axes when both have the same link; then the one with a ≤ b is
    kept. On nodes of another size than a power of two, and with pods, an axis lies inside a node or joins whole nodes:
    (4, 3) and (2, 6) of two nodes of 6, and not (3, 4), where some groups of 4 would cross the network, others not.
    """
    meshes: dict[object, LogicalMesh] = {}
    devices = submesh.devices
    for a in range(1, devices + 1):
        if devices % a or not fills_units(cluster, devices // a, devices):
            continue
        mesh = logical_mesh(cluster, submesh, (a, devices // a))
        small = mesh.squeezed()
        key = tuple(sorted(zip(small.shape, small.bandwidth, small.latency_seconds, strict=True)))
        meshes.setdefault(key, mesh)
    return tuple(meshes.values())
