"""Groups of devices that communicate: how many nodes they span, and what part of the network is theirs."""

import math
from dataclasses import dataclass
from itertools import pairwise

from alpa_explore.cluster.presets import preset_names, rack_of
from alpa_explore.cluster.topology import Cluster


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """How a group crosses a level beyond the nodes."""

    units: int
    """Units of the level below (pods, below a spine) that the group spans."""
    bandwidth: float
    """Bytes per second that the group gets of the link of one unit."""
    hop_seconds: float


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
    outer: tuple[Span, ...] = ()
    """Of a topology with pods or more levels: the levels beyond the nodes that the group crosses."""


def fills_units(cluster: Cluster, neighbours: int, devices: int) -> bool:
    """Whether groups of so many neighbouring devices, of a submesh of `devices`, divide each node (pod, …) evenly, or
    fill whole ones: then all of them have the same links. Taken to be so on nodes of a power of two, as in the paper:
    the first group stands for all."""
    tiers = cluster.tiers
    if len(tiers) == 2 and _power_of_two(tiers[0].devices):
        return True
    units = [tier.devices for tier in tiers[:-1] if tier.devices < devices]
    return all(unit % neighbours == 0 or neighbours % unit == 0 for unit in units)


def outermost_tier(cluster: Cluster, ranks: int, stride: int) -> int:
    """The tier whose links a ring of `ranks` devices `stride` apart needs: the first that no such group leaves."""
    tiers, span = cluster.tiers, ranks * stride
    if len(tiers) == 2 and _power_of_two(tiers[0].devices):
        return int(span > tiers[0].devices)
    return next((t for t, tier in enumerate(tiers) if tier.devices % span == 0), len(tiers) - 1)


def _power_of_two(number: int) -> bool:
    return number & (number - 1) == 0


def device_group(cluster: Cluster, ranks: int, stride: int) -> Group:
    """The group of `ranks` devices that are `stride` apart, the first of them at the beginning of a node."""
    software, tiers = cluster.software, cluster.tiers
    last = outermost_tier(cluster, ranks, stride)
    parts: list[tuple[int, float]] = []  # (units that a group spans, its devices in one of them), for each tier
    for number, tier in enumerate(tiers[:-1]):
        together = max(1, min(ranks, tier.devices // stride))
        units = math.ceil(ranks / together)
        # Where the first group lies in one unit, but others across two of them: those count.
        parts.append((2, ranks / 2) if units == 1 < ranks and number < last else (units, together))
    decline = max(parts[0][0] / 2, 1.0) ** -software.network_decline
    spans = [
        Span(
            units=units,
            bandwidth=tier.link.bandwidth * software.network_share * decline * together / inner.devices,
            hop_seconds=max(software.hop_seconds, tier.link.latency_seconds),
        )
        for (inner, tier), (units, together) in zip(pairwise(tiers), parts, strict=True)
    ]
    return Group(
        ranks=ranks,
        nodes=spans[0].units,
        inside_bandwidth=cluster.inside_node.bandwidth,
        reduction_bandwidth=cluster.inside_node.reduction_bandwidth,
        network_bandwidth=spans[0].bandwidth,
        hop_inside_seconds=cluster.inside_node.latency_seconds,
        hop_seconds=spans[0].hop_seconds,
        wait_seconds=software.wait_seconds,
        outer=tuple(span for span in spans[1:] if span.units > 1),
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


def call_seconds(cluster: Cluster, ranks: int, stride: int, *, pipeline: bool) -> float:
    """Host seconds to launch one collective among `ranks` devices `stride` apart, where the model is one `pipeline`
    stage or several."""
    software = cluster.software
    of_a_rank = software.rank_launch_seconds if pipeline and cluster.nodes > 1 else 0.0
    if outermost_tier(cluster, ranks, stride) > 0:
        of_a_rank += software.spread_rank_seconds
    return software.collective_launch_seconds + of_a_rank * ranks


def expert_seconds(cluster: Cluster) -> float:
    """Host seconds of a layer of routed experts in a pass, beside the launches of its kernels. Devices of a rack are
    those whose link joins several hosts, however many of them are used."""
    software, name = cluster.software, cluster.device.name
    rack = cluster.devices_per_host < cluster.devices_per_node or (name in preset_names() and rack_of(name) is not None)
    return software.expert_rack_host_seconds if rack else software.expert_host_seconds
