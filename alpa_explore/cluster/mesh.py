"""Submeshes, and the logical meshes as which a submesh can be viewed (Alpa, §5.2)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise

from alpa_explore import units
from alpa_explore.cluster.group import (
    Group,
    call_seconds,
    device_group,
    expert_seconds,
    outermost_tier,
    straggler_factor,
)
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
        calls = tuple(call_seconds(cluster, size, pipeline=submesh.devices < cluster.devices) for size in shape)
    host = expert_seconds(part)
    return LogicalMesh(shape, tuple(bandwidths), tuple(latencies), groups, calls, stragglers, submesh.kind, host)
