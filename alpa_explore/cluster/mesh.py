"""Submeshes, and the logical meshes as which a submesh can be viewed (Alpa, §5.2)."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from itertools import pairwise

from alpa_explore import units
from alpa_explore.cluster.group import (
    Group,
    call_seconds,
    device_group,
    expert_seconds,
    fills_units,
    outermost_tier,
    straggler_factor,
)
from alpa_explore.cluster.tiling import power_of_two_sizes, tile_sizes
from alpa_explore.cluster.topology import Cluster


@dataclass(frozen=True, slots=True, order=True)
class Submesh:
    """A part of the cluster: (1, m) devices inside a node, or (n, M) for n whole nodes."""

    nodes: int
    devices_per_node: int
    kind: int = 0
    """Of a cluster of unlike nodes: which of `Cluster.kinds`."""

    @property
    def devices(self) -> int:
        """Number of devices."""
        return self.nodes * self.devices_per_node

    def __str__(self) -> str:
        return units.shape((self.nodes, self.devices_per_node))


@dataclass(frozen=True, slots=True)
class LogicalMesh:
    """A submesh seen as a row-major array of devices; each axis has the latency and bandwidth of a ring along it.

    Axes of size 1 are kept in `shape`, for display as 1×4, but nothing is sharded along them: `axes` lists the
    others.
    """

    shape: tuple[int, ...]
    bandwidth: tuple[float, ...]
    """Bytes per second of one device's ring, for each axis of `shape`."""
    latency_seconds: tuple[float, ...]
    groups: tuple[Group, ...] = ()
    """For each axis the devices along it as a group, where the software's collectives are not those of the paper."""
    call_seconds: tuple[float, ...] = ()
    """For each axis the host time to launch a collective along it; empty where that is not known."""
    stragglers: float = 1.0
    """Factor on the time of a stage on this mesh, as part of a run on all devices of the cluster; 1 in the paper."""
    kind: int = 0
    """Of a cluster of unlike nodes: the kind of its devices, an index into `Cluster.kinds`."""
    expert_seconds: float = 0.0
    """Host seconds of a layer of routed experts in a pass."""

    @property
    def devices(self) -> int:
        """Number of devices."""
        return math.prod(self.shape)

    @property
    def axes(self) -> tuple[int, ...]:
        """The axes of `shape` that hold more than one device."""
        return tuple(a for a, size in enumerate(self.shape) if size > 1)

    def squeezed(self) -> LogicalMesh:
        """The same mesh without axes of size 1; specs have one placement for each axis of this one."""
        pick = self.axes
        return LogicalMesh(
            tuple(self.shape[a] for a in pick),
            tuple(self.bandwidth[a] for a in pick),
            tuple(self.latency_seconds[a] for a in pick),
            tuple(self.groups[a] for a in pick) if self.groups else (),
            tuple(self.call_seconds[a] for a in pick) if self.call_seconds else (),
            self.stragglers,
            self.kind,
            self.expert_seconds,
        )

    def __str__(self) -> str:
        return units.shape(self.shape)


def logical_mesh(cluster: Cluster, submesh: Submesh, shape: tuple[int, ...]) -> LogicalMesh:
    """`submesh` seen as an array of the given shape.

    A ring along axis a joins devices `stride` apart. It stays inside a node when it spans at most M devices (and
    divides them, where M is not a power of two). Otherwise it crosses the network, whose bandwidth `min(stride, M)`
    rings of the same node share; where there are pods, also the link of a pod, which all rings of its devices share.
    Its bandwidth is that of the slowest link it crosses. With a software profile that has figures for collectives, each
    axis is also a `Group`.
    """
    assert math.prod(shape) == submesh.devices, f"{shape} does not hold {submesh.devices} devices"
    part = cluster.kinds[submesh.kind]
    tiers, bandwidths, latencies = part.tiers, [], []
    for axis, size in enumerate(shape):
        stride = math.prod(shape[axis + 1 :])
        last = outermost_tier(part, size, stride)
        rates = [tiers[0].link.bandwidth] if last == 0 or stride < tiers[0].devices else []
        rates += [tier.link.bandwidth / min(stride, inner.devices) for inner, tier in pairwise(tiers[: last + 1])]
        bandwidths.append(min(rates))
        latencies.append(tiers[last].link.latency_seconds)
    groups: tuple[Group, ...] = ()
    if not cluster.software.ideal_links:
        groups = tuple(device_group(part, size, math.prod(shape[axis + 1 :])) for axis, size in enumerate(shape))
    # The last of two axes is the one along which devices are neighbours: that of tensor parallelism.
    stragglers = straggler_factor(
        cluster, devices=cluster.devices, stage_devices=submesh.devices, tensor=shape[-1] if len(shape) > 1 else 1
    )
    calls: tuple[float, ...] = ()
    if cluster.software.collective_launch_seconds:
        pipeline = submesh.devices < cluster.devices
        strides = [math.prod(shape[axis + 1 :]) for axis in range(len(shape))]
        calls = tuple(call_seconds(cluster, *axis, pipeline=pipeline) for axis in zip(shape, strides, strict=True))
    host = expert_seconds(part)
    return LogicalMesh(shape, tuple(bandwidths), tuple(latencies), groups, calls, stragglers, submesh.kind, host)


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
