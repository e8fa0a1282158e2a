"""Which submeshes a stage may have, and which logical meshes a submesh is tried as."""

from __future__ import annotations

from alpa_explore.cluster.mesh import LogicalMesh, Submesh, logical_mesh
from alpa_explore.cluster.topology import Cluster

SUBMESH_SPACES = {
    "all": "powers of two inside a node, and any number of whole nodes (the paper)",
    "power-of-two": "powers of two inside a node, and a power of two of whole nodes",
}
"""Name -> which submeshes a stage may have."""


def submeshes(cluster: Cluster, space: str = "all") -> tuple[Submesh, ...]:
    """(1, 1), (1, 2), (1, 4), … (1, M), (2, M), … (N, M): with these the whole cluster can always be covered
    (paper, theorem 1). In the space "power-of-two" of these only (1, M), (2, M), (4, M), …, which cover it too."""
    inside = [Submesh(1, 1 << k) for k in range(cluster.devices_per_node.bit_length())]
    whole = [n for n in range(2, cluster.nodes + 1) if space == "all" or n & (n - 1) == 0]
    return (*inside, *(Submesh(n, cluster.devices_per_node) for n in whole))


def logical_meshes(cluster: Cluster, submesh: Submesh) -> tuple[LogicalMesh, ...]:
    """Every factorisation (a, b) of the submesh's devices, those that cost the same listed once.

    (a, b) and (b, a) differ only in the names of their axes where both axes see the same link: then a ≤ b is kept.
    """
    found: dict[object, LogicalMesh] = {}
    devices = submesh.devices
    for a in range(1, devices + 1):
        if devices % a:
            continue
        mesh = logical_mesh(cluster, submesh, (a, devices // a))
        small = mesh.squeezed()
        key = tuple(sorted(zip(small.shape, small.bandwidth, small.latency_seconds, strict=True)))
        found.setdefault(key, mesh)
    return tuple(found.values())
