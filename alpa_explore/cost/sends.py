"""Seconds of a send between stages: from each device of one to a device of the next."""

from __future__ import annotations

from alpa_explore.cluster import Cluster


def send_seconds(cluster: Cluster, device_bytes: float, *, crosses_nodes: bool) -> float:
    """Seconds in which every device of a stage sends so many bytes; the devices of a node share its network card."""
    software = cluster.software
    if crosses_nodes:
        link, rate = cluster.between_nodes, cluster.between_nodes.bandwidth / cluster.devices_per_node
        rate *= software.send_share
    else:
        link, rate = cluster.inside_node, cluster.inside_node.bandwidth
    start = link.latency_seconds if software.ideal_sends else software.send_seconds
    return start + device_bytes / rate
