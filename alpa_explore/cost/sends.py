"""Seconds of a send between stages: from each device of one to a device of another."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

from alpa_explore.cluster import Cluster, Mirror


def send_seconds(cluster: Cluster, device_bytes: float, *, crosses_nodes: bool, levels: int | None = None) -> float:
    """Seconds in which every device of a stage sends so many bytes; the devices of a node share its network card, and
    those of a pod its link to others.

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


def with_mirrors(cluster: Cluster) -> Cluster:
    """A cluster of equal nodes whose devices each run a stage of two copies of the model (DualPipe).

    The two devices that hold the same weights are in submeshes at the same distance from either end, so with several
    nodes the network is assumed.
    """
    start, moved = (send_seconds(cluster, size, crosses_nodes=cluster.nodes > 1) for size in (0.0, 1.0))
    mirror = Mirror(bandwidth=1.0 / (moved - start), latency_seconds=start)
    return replace(cluster, device=replace(cluster.device, mirror=mirror))
