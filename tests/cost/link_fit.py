"""Fit the figures of a cluster's links to collectives among groups of whole nodes, by the planner's own formulas.

The formulas are those of `cost.group_collectives`. Published figures are often *bus* bandwidths, as nccl-tests prints
them: bytes × 2 (p − 1)/p / seconds of an all-reduce, bytes × (p − 1)/p / seconds of an all-gather or reduce-scatter
among p ranks, where bytes are those of the larger tensor on one device.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from alpa_explore.calibration.least_squares import Fit, pattern_search
from alpa_explore.cluster.group import Group
from alpa_explore.cost.group_collectives import group_seconds
from alpa_explore.numerics.arrays import Floats
from alpa_explore.sharding.reshard import StepKind


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupRow:
    """A collective among all devices of some nodes."""

    kind: StepKind
    bytes: float
    """Of the larger tensor on one device."""
    ranks: int
    nodes: int
    seconds: float


def bus_seconds(kind: StepKind, bytes_: float, ranks: int, bus_bandwidth: float) -> float:
    """Seconds of a collective whose bus bandwidth is known, in bytes per second."""
    rounds = 2 if kind is StepKind.ALL_REDUCE else 1
    return rounds * (ranks - 1) / ranks * bytes_ / bus_bandwidth


def fit_links(rows: Sequence[GroupRow], *, hop_inside_seconds: float, declines: bool = False) -> Fit:
    """The bandwidths and the latency of a step between nodes that fit the rows.

    `hop_inside_seconds` is the latency inside a node, which large messages do not tell. With `declines` the network's
    share falls with the nodes beyond two, as in a network that others use. Figures: inside_bandwidth (of a ring),
    reduction_bandwidth (all-reduce by the switches of a node), network_bandwidth (of a node, as all-reduce reaches it),
    hop_seconds, network_decline.
    """
    start = {
        "inside_bandwidth": (3e11, 1e8, 1e13),
        "reduction_bandwidth": (4e11, 1e8, 1e13),
        "network_bandwidth": (2e11, 1e7, 1e13),
        "hop_seconds": (3e-5, 1e-7, 1e-2),
    }
    if declines:
        start["network_decline"] = (0.3, 1e-3, 2.0)
    names = list(start)

    def predicted(x: Floats) -> Floats:
        figures = dict(zip(names, x.tolist(), strict=True))
        return np.array([_seconds(row, figures, hop_inside_seconds) for row in rows])

    return pattern_search("links", predicted, np.array([row.seconds for row in rows]), start)


def _seconds(row: GroupRow, figures: dict[str, float], hop_inside_seconds: float) -> float:
    decline = max(row.nodes / 2, 1.0) ** -figures.get("network_decline", 0.0)
    group = Group(
        ranks=row.ranks,
        nodes=row.nodes,
        inside_bandwidth=figures["inside_bandwidth"],
        reduction_bandwidth=figures["reduction_bandwidth"],
        network_bandwidth=figures["network_bandwidth"] * decline,
        hop_inside_seconds=hop_inside_seconds,
        hop_seconds=figures["hop_seconds"],
        wait_seconds=0.0,
    )
    return group_seconds(row.kind, row.bytes, group)
