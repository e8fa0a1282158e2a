"""Groups of devices that communicate: how many nodes they span, and what part of the network is theirs."""

from __future__ import annotations

import math
from dataclasses import dataclass

from alpa_explore.cluster.topology import Cluster


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Some ranks, and the links among them. All groups of the same kind communicate at the same time."""

    ranks: int
    nodes: int
    """Nodes that the group spans."""
    inside_bandwidth: float
    """Bytes per second of a ring inside a node."""
    reduction_bandwidth: float
    """Bus bandwidth of an all-reduce inside a node that switches compute; 0 where they do not."""
    network_bandwidth: float
    """Bytes per second that the group gets of a node's network, shared with the other groups of the node."""
    hop_inside_seconds: float
    hop_seconds: float
    """A step of a ring between nodes."""
    wait_seconds: float
    """For every doubling of the ranks, how long a collective waits for the last of them."""


def fills_nodes(cluster: Cluster, neighbours: int) -> bool:
    """Whether groups of so many neighbouring devices divide a node evenly, or fill whole nodes: then all of them have
    the same links. Taken to be so on nodes of a power of two, as in the paper: the first group stands for all."""
    per_node = cluster.devices_per_node
    return _power_of_two(per_node) or per_node % neighbours == 0 or neighbours % per_node == 0


def stays_in_node(cluster: Cluster, ranks: int, stride: int) -> bool:
    """Whether no group of `ranks` devices `stride` apart crosses the network."""
    per_node, span = cluster.devices_per_node, ranks * stride
    return span <= per_node if _power_of_two(per_node) else per_node % span == 0


def _power_of_two(number: int) -> bool:
    return number & (number - 1) == 0


def device_group(cluster: Cluster, ranks: int, stride: int) -> Group:
    """The group of `ranks` devices that are `stride` apart, the first of them at the beginning of a node."""
    software, per_node = cluster.software, cluster.devices_per_node
    together: float = max(1, min(ranks, per_node // stride))
    nodes = math.ceil(ranks / together)
    if nodes == 1 and not stays_in_node(cluster, ranks, stride):
        nodes, together = 2, ranks / 2  # the first group lies in a node, and others across two
    decline = max(nodes / 2, 1.0) ** -software.network_decline
    share = cluster.between_nodes.bandwidth * software.network_share * decline * together / per_node
    return Group(
        ranks=ranks,
        nodes=nodes,
        inside_bandwidth=cluster.inside_node.bandwidth,
        reduction_bandwidth=cluster.inside_node.reduction_bandwidth,
        network_bandwidth=share,
        hop_inside_seconds=cluster.inside_node.latency_seconds,
        hop_seconds=max(software.hop_seconds, cluster.between_nodes.latency_seconds),
        wait_seconds=software.wait_seconds,
    )


def straggler_factor(cluster: Cluster, *, devices: int, stage_devices: int, tensor: int) -> float:
    """Growth of the time of a stage of `stage_devices` in a run on `devices`.

    The slowest of many nodes decides, and tensor-parallel groups (of `tensor` ranks) that share nodes disturb each
    other.
    """
    software, per_node = cluster.software, cluster.devices_per_node
    factor = 1 + software.straggler_share * math.log2(max(1.0, devices / per_node))
    if 2 * tensor <= per_node:
        factor += software.shared_node_share * math.log2(max(1.0, stage_devices / per_node))
    return factor


def call_seconds(cluster: Cluster, ranks: int, *, pipeline: bool) -> float:
    """Host seconds to launch one collective among `ranks`, where the model is one `pipeline` stage or several."""
    software = cluster.software
    spread = pipeline and cluster.nodes > 1
    return software.collective_launch_seconds + (software.rank_launch_seconds * ranks if spread else 0.0)
