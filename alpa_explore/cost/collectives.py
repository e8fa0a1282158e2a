"""Seconds of a collective along one mesh axis, ring algorithms in the alpha-beta model; and of a send between stages.

`p` devices, `alpha` seconds per message, `beta` = 1 / bandwidth. Bytes are those of the *larger* tensor on one device:
the output of an all-gather, the input of a reduce-scatter, the tensor of an all-reduce or all-to-all.
Source: Thakur, Rabenseifner, Gropp, "Optimization of Collective Communication Operations in MPICH" (2005), ring
variants.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import TypeVar

from alpa_explore.cluster import Cluster, LogicalMesh, Mirror, Software
from alpa_explore.cost.group_collectives import group_seconds
from alpa_explore.numerics.arrays import Floats
from alpa_explore.sharding.reshard import StepKind

Bytes = TypeVar("Bytes", float, Floats)

_ROUNDS = {
    StepKind.ALL_GATHER: 1,
    StepKind.REDUCE_SCATTER: 1,
    StepKind.ALL_REDUCE: 2,  # a reduce-scatter and an all-gather
    StepKind.ALL_TO_ALL: 1,
    StepKind.RING: 1,
}


def collective_seconds(
    kind: StepKind, local_bytes: float, size: int, bandwidth: float, latency_seconds: float
) -> float:
    """Time of `kind` among `size` devices: rounds × (p − 1) × (alpha + bytes / p × beta); a slice is free, and in a
    permutation every device sends what it has once."""
    if size == 1 or kind is StepKind.SLICE:
        return 0.0
    if kind is StepKind.PERMUTE:
        return latency_seconds + local_bytes / bandwidth
    return _ROUNDS[kind] * (size - 1) * (latency_seconds + local_bytes / size / bandwidth)


def axis_seconds(kind: StepKind, local_bytes: float, mesh: LogicalMesh, axis: int) -> float:
    """Time of `kind` along one axis of a mesh, as its software runs collectives."""
    if mesh.groups:
        return group_seconds(kind, local_bytes, mesh.groups[axis])
    return collective_seconds(kind, local_bytes, mesh.shape[axis], mesh.bandwidth[axis], mesh.latency_seconds[axis])


def exposed_seconds(seconds: float, computing: float, size: int) -> float:
    """Of `seconds` of exchanges beside `computing` seconds of the same operator, those that are not hidden.

    Both go block by block: the first of `size` blocks is there at the start, and every other one arrives while the one
    before it is computed, so that all take c / p + (p − 1) max(c / p, t / (p − 1)).
    """
    return max(0.0, seconds - computing * (size - 1) / size)


def launched(kind: StepKind, size: int) -> int:
    """How many collectives the host launches for one of `kind` among `size` devices."""
    return size - 1 if kind is StepKind.RING else 1


def send_seconds(cluster: Cluster, device_bytes: Bytes, *, crosses_nodes: bool, levels: int | None = None) -> Bytes:
    """Seconds in which every device of a stage sends so many bytes, of one stage or of several; the devices of a node
    share its network card, and those of a pod its link to others.

    `levels` of those beyond the node are crossed. None: unknown, as before stages are placed; the slowest counts.
    """
    software = cluster.software
    if crosses_nodes:
        crossed = list(pairwise(cluster.tiers))[:levels]
        shares = ((tier.link.bandwidth / inner.devices, tier.link) for inner, tier in crossed)
        rate, link = min(shares, key=lambda share: share[0])
        rate *= software.send_share
    else:
        link, rate = cluster.inside_node, cluster.inside_node.bandwidth
    start = link.latency_seconds if software.ideal_sends else software.send_seconds
    return start + device_bytes / rate


def stage_send_seconds(cluster: Cluster, a: Sequence[int], b: Sequence[int], sent: float) -> float:
    """Seconds that `sent` bytes take from one stage to the other, in either direction; `a` and `b` are the devices of
    each, ascending."""
    nodes = nodes_of(cluster, a), nodes_of(cluster, b)
    crosses = nodes[0] != nodes[1]
    senders = min(map(len, nodes)) * cluster.devices_per_node if crosses else min(len(a), len(b))
    # Beyond the nodes, a level is crossed where the stages are not in the same unit below it (a pod, below the spine).
    apart = [len({d // tier.devices for d in (a[0], a[-1], b[0], b[-1])}) > 1 for tier in cluster.tiers[:-1]]
    part = cluster if crosses else cluster.part_of(a[0])
    return send_seconds(part, sent / senders, crosses_nodes=crosses, levels=max(sum(apart), 1))


def waited_share(software: Software, turns: int) -> float:
    """The share of each send for which both of its stages wait: of real software all, apart from what it hides where a
    microbatch passes through a submesh in several turns."""
    return 0.0 if software.ideal_sends else 1.0 - software.send_overlap * (turns > 1)


def nodes_of(cluster: Cluster, devices: Sequence[int]) -> range:
    """The nodes that have the devices of a stage, which are ascending."""
    return range(devices[0] // cluster.devices_per_node, devices[-1] // cluster.devices_per_node + 1)


def with_mirrors(cluster: Cluster) -> Cluster:
    """A cluster of equal nodes whose devices each run a stage of two copies of the model (DualPipe).

    The two devices that hold the same weights are in submeshes at the same distance from either end, so with several
    nodes the network is assumed.
    """
    start, moved = (send_seconds(cluster, size, crosses_nodes=cluster.nodes > 1) for size in (0.0, 1.0))
    mirror = Mirror(bandwidth=1.0 / (moved - start), latency_seconds=start)
    return replace(cluster, device=replace(cluster.device, mirror=mirror))
