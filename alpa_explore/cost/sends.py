"""Seconds of a send between stages: from each device of one to a device of the next."""

from __future__ import annotations

from itertools import pairwise

from alpa_explore.cluster import Cluster


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
