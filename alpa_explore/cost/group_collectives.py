"""Seconds of a collective among a group of devices that may span nodes: rings, trees, and reduction in the switches.

p ranks on N nodes, r of them on a node, S bytes of the larger tensor on one device, B bandwidths, a seconds of a step:

    one node     wait · log₂ p + (p − 1) a_in + (p − 1)/p · S / B_in            all-gather, reduce-scatter
                 the same with 2 (p − 1) steps and twice the bytes              all-reduce by a ring
                 wait · log₂ p + 2 (p − 1)/p · S / B_switch                     all-reduce by the switches of the node
                 wait + (p − 1) a + (p − 1)/p · S / B                           ring from neighbour to neighbour
                 wait + a + S / B                                               permutation of what the devices have
    several      wait · log₂ p + (p − N) a_in + N a_net + (p − 1)/p · S / min(B_net, B_in)
                 all-to-all: max((r − 1)/p · S / B_in, (p − r)/p · r · S / B_net), a device's part of the network each
                 all-reduce: twice the ring, or a tree of nodes where that is faster:
                 wait · log₂ p + max(2 (r − 1)/r · S / B_switch or B_in, 2 log₂ N · a_net + 2 (N − 1)/N · S / B_net)
    several      every level beyond the nodes adds its steps, as between nodes, and the slowest level decides: with K
    pods         pods, the ring makes N − K steps of a_net and K of a_pod, and has min(B_in, B_net, B_pod); the tree
                 2 log₂ (N / K) · a_net + 2 log₂ K · a_pod, and the slower of N nodes at B_net and K pods at B_pod
                 (not fitted: no published bandwidths of such groups are at hand)

Fitted to the 21 published bandwidths of 256 MB collectives on 1 to 64 nodes of 8 H100 (Ultra-Scale Playbook;
tests/cost/data, `tests/cost/link_fit.py`) the forms have a mean error of 7 % at the best of that network, the 95th
percentile of the runs, and of 10 % at their mean, with a B_net that falls with the nodes. A ring's latency
grows with its ranks and dominates on many nodes (Thakur, Rabenseifner, Gropp 2005); NCCL takes trees for all-reduce.
"""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise

from alpa_explore.cluster.group import Group
from alpa_explore.sharding.reshard import StepKind


def group_seconds(kind: StepKind, local_bytes: float, group: Group) -> float:
    """Time of `kind` among the ranks of a group; `local_bytes` are those of the larger tensor on one device."""
    p, n = group.ranks, group.nodes
    if p == 1 or kind is StepKind.SLICE:
        return 0.0
    wait = group.wait_seconds * math.log2(p)
    part = (p - 1) / p * local_bytes
    hops = (group.hop_seconds, *(span.hop_seconds for span in group.outer))
    rates = (group.network_bandwidth, *(span.bandwidth for span in group.outer))
    if kind in (StepKind.RING, StepKind.PERMUTE):
        # Every step waits for the slowest pair of neighbours.
        hop, rate = (
            (group.hop_inside_seconds, group.inside_bandwidth)
            if n == 1
            else (max(hops), min(*rates, group.inside_bandwidth))
        )
        return wait + (hop + local_bytes / rate if kind is StepKind.PERMUTE else (p - 1) * hop + part / rate)
    reduces = kind is StepKind.ALL_REDUCE
    if n == 1:
        if reduces and group.reduction_bandwidth:
            return wait + 2 * part / group.reduction_bandwidth
        return wait + (1 + reduces) * ((p - 1) * group.hop_inside_seconds + part / group.inside_bandwidth)
    # Units spanned, and the next level's: nodes below pods, pods below a spine, …, 1 beyond the last.
    units = (n, *(span.units for span in group.outer), 1)
    steps = sum((a - (b if b > 1 else 0)) * hop for (a, b), hop in zip(pairwise(units), hops, strict=True))
    steps += (p - n) * group.hop_inside_seconds
    together = p / n
    if kind is StepKind.ALL_TO_ALL:
        inside = (together - 1) / p * local_bytes / group.inside_bandwidth
        # What leaves a unit of u crosses its link: the shares of its p / u devices for the p − p / u others.
        leaving = ((1 - 1 / u) * p / u * local_bytes / rate for u, rate in zip(units, rates, strict=False))
        return wait + steps + max(inside, *leaving)
    ring = steps + part / min(*rates, group.inside_bandwidth)
    if not reduces:
        return wait + ring
    inside = 2 * (together - 1) / together * local_bytes / (group.reduction_bandwidth or group.inside_bandwidth)
    climb = sum(2 * math.log2(a / b) * hop for (a, b), hop in zip(pairwise(units), hops, strict=True))
    between = climb + max(2 * (a - 1) / a * local_bytes / rate for a, rate in zip(units, rates, strict=False))
    return wait + min(2 * ring, max(inside, between))


def rows_seconds(local_bytes: float, group: Group, copies: int) -> float:
    """Time of an all-to-all of rows, of which every token has `copies`, to devices that are drawn evenly.

    Rows of a token for the same node cross the network as one: of k rows, (N − 1)(1 − (1 − 1/N)^k) are sent instead of
    k (N − 1)/N. Inside its node each goes on to its own device.
    """
    n = group.nodes
    if n == 1 or copies == 1:
        return group_seconds(StepKind.ALL_TO_ALL, local_bytes, group)
    sent = n * (1 - (1 - 1 / n) ** copies) / copies
    between = replace(group, network_bandwidth=group.network_bandwidth / sent)
    return group_seconds(StepKind.ALL_TO_ALL, local_bytes, between)


def stored_seconds(kind: StepKind, local_bytes: float, tensors: float, group: Group, bucket_bytes: float) -> float:
    """Time of `kind` over stored weights or gradients of so many bytes on a device: in buckets, or where there are none
    one collective for each of `tensors`."""
    if not local_bytes:
        return 0.0
    if bucket_bytes:
        return group_seconds(kind, bucket_bytes, group) * local_bytes / bucket_bytes
    return group_seconds(kind, local_bytes, group) + max(tensors - 1, 0) * group_seconds(kind, 1.0, group)
