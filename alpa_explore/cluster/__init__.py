"""Clusters: N nodes of M devices, equal or of a few kinds, their submeshes, and these as logical meshes (Alpa §5.2).

In the order to read them:

    precisions   low precisions of matrix products: formats, casts, which devices have them
    software     a framework: fusion, host time, overlap, precision policy, memory reserve
    kernel_figures  how the kernels of a device depend on their local sizes
    kernel_store  kernels that were timed on a kind of device, and their file
    software_profiles/  frameworks with their figures, one JSON file each
    device       a device (peak rates, memory, efficiencies), with its software; a link (latency, bandwidth)
    presets/     devices with published or measured figures, one JSON file each
    levels       a topology of more than two levels: trays, racks, pods, a spine
    files        devices and clusters from a user's JSON or TOML file
    topology     Cluster, and `Cluster.parse("2x8:a100")`; unlike nodes, "1x8:h100+1x8:a100"
    group        devices that communicate: the nodes they span, and what part of the network is theirs
    mesh         Submesh and LogicalMesh; those that the planner tries
    tiling       sizes of pieces that fill a node, whichever of them are chosen
    placement    which devices of the cluster the submeshes of a plan get

The network of a preset is that of its usual node. Where each of its devices has an adapter of its own (H100, A100,
B200, GB200, MI300X, …), smaller nodes have the share of their devices: a node of `4x4:h100` has half of the network of
one of `2x8:h100`, in all commands alike. A host's only adapter (V100, L40S, RTX 4090, CPU) is whole however few devices
use it, and a network that a file gives stays as it is.

It imports `errors` only.

Concepts that others use: Cluster, Device, Group, KernelFigures, KernelStore, Kind, Level, Link, LogicalMesh,
MeasuredKernel, Mirror, Parts, Software, Submesh.
"""

from alpa_explore.cluster.device import Device, Link, Mirror
from alpa_explore.cluster.mesh import SUBMESH_SPACES, LogicalMesh, Submesh, logical_mesh, logical_meshes, submeshes
from alpa_explore.cluster.placement import place
from alpa_explore.cluster.presets import preset_names
from alpa_explore.cluster.software import Software
from alpa_explore.cluster.software_profiles import load_software, software_names
from alpa_explore.cluster.topology import Cluster

__all__ = [
    "SUBMESH_SPACES",
    "Cluster",
    "Device",
    "Link",
    "LogicalMesh",
    "Mirror",
    "Software",
    "Submesh",
    "load_software",
    "logical_mesh",
    "logical_meshes",
    "place",
    "preset_names",
    "software_names",
    "submeshes",
]
