"""Clusters, submeshes and logical meshes."""

from alpa_explore.cluster.candidates import SUBMESH_SPACES, logical_meshes, submeshes
from alpa_explore.cluster.device import Device, Link
from alpa_explore.cluster.mesh import LogicalMesh, Submesh, logical_mesh
from alpa_explore.cluster.placement import place
from alpa_explore.cluster.presets import preset_names
from alpa_explore.cluster.topology import Cluster

__all__ = [
    "SUBMESH_SPACES",
    "Cluster",
    "Device",
    "Link",
    "LogicalMesh",
    "Submesh",
    "logical_mesh",
    "logical_meshes",
    "place",
    "preset_names",
    "submeshes",
]
