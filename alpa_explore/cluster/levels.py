"""The levels of a topology beyond two: trays inside a node, pods of nodes, an oversubscribed spine.

A `Cluster` has two kinds of links: one inside a node, where every device has it, and one between nodes, which the
devices of a node share. Levels say how the two are divided further, from the device outwards; a "node" is the largest
part in which one link joins all devices alike, such as the 72 devices of an NVLink rack:

    2x72:gb200              tray of 4, rack of 18 trays; 2 racks
    4 pods of 8 nodes of 8  node of 8; pod of 8 nodes; spine that joins 4 pods

The levels inside the node have no link of their own: `Cluster.inside_node` joins them. The first level outside has
`Cluster.between_nodes`. Each later level has the link of one unit of the level below (all that a pod can send to
others), or none: then it has as much as its units together, divided by the oversubscription.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Integral, Real

from alpa_explore.cluster.device import Link
from alpa_explore.errors import ClusterError


@dataclass(frozen=True, slots=True, kw_only=True)
class Level:
    """`of` units of the level below (of the first level: devices), joined to one."""

    name: str
    of: int
    link: Link | None = None
    """Bandwidth is that of one unit of the level below, shared by its devices. None: see the module's docstring."""
    oversubscription: float = 1.0
    """The bandwidth is this many times smaller than that of `link`."""

    def __post_init__(self) -> None:
        if isinstance(self.of, bool) or not isinstance(self.of, Integral) or self.of < 1:
            raise ClusterError(
                "A level of a topology joins one or more units", found=f"of={self.of!r}", remedy="Give 1 or more."
            )
        times = self.oversubscription
        if isinstance(times, bool) or not isinstance(times, Real) or not 1 <= times < math.inf:
            raise ClusterError(
                "Oversubscription must be a number of 1 or more",
                found=f"oversubscription={times!r}",
                remedy="Give 1 for full bandwidth, 4 where a unit has four times as much below as above.",
            )
        object.__setattr__(self, "of", int(self.of))
        object.__setattr__(self, "oversubscription", float(times))


@dataclass(frozen=True, slots=True, kw_only=True)
class Tier:
    """Devices in the same unit of a level, and the link among them."""

    name: str
    devices: int
    """In one unit."""
    link: Link
    """Bandwidth of the innermost tier: of one device; of the others: of one unit of the tier below."""


def check_levels(levels: Sequence[Level], nodes: int, per_node: int) -> None:
    """ClusterError where levels do not multiply to nodes × devices per node, or a unit is not a node."""
    product = " × ".join(f"{level.of}" for level in levels)
    total = math.prod(level.of for level in levels)
    if total != nodes * per_node:
        raise ClusterError(
            "The levels of the topology do not multiply to the devices of the cluster",
            found=f"{product} = {total:,}, and {nodes} × {per_node} = {nodes * per_node:,} devices",
            remedy="Each level says how many units of the level below it joins; the first, how many devices.",
        )
    if inside(levels, per_node) is None:
        raise ClusterError(
            "No level of the topology is a node",
            found=f"levels of {product}, and nodes of {per_node} devices",
            remedy="The product of the inner levels must be the devices of a node.",
        )


def inside(levels: Sequence[Level], per_node: int) -> int | None:
    """How many levels, from the first, make up a node; None if none do."""
    devices = 1
    for number, level in enumerate(levels, start=1):
        devices *= level.of
        if devices == per_node:
            return number
    return None


def tiers_of(levels: Sequence[Level], nodes: int, per_node: int, within: Link, between: Link) -> tuple[Tier, ...]:
    """The links of a cluster, from the node outwards; of two where it has no levels."""
    node = Tier(name="node", devices=per_node, link=within)
    if not levels:
        return (node, Tier(name="cluster", devices=nodes * per_node, link=between))
    count = inside(levels, per_node)
    assert count is not None, "checked when the cluster was made"
    tiers = [Tier(name=levels[count - 1].name, devices=per_node, link=within)]
    link = between
    for level in levels[count:]:
        link = _narrowed(level.link or link, level.oversubscription)
        tiers.append(Tier(name=level.name, devices=tiers[-1].devices * level.of, link=link))
        link = Link(
            bandwidth=link.bandwidth * level.of, latency_seconds=link.latency_seconds, source=f"of {level.of} together"
        )
    return tuple(tiers)


def _narrowed(link: Link, times: float) -> Link:
    if times == 1:
        return link
    return Link(
        bandwidth=link.bandwidth / times,
        latency_seconds=link.latency_seconds,
        source=f"{link.source}; oversubscribed {times:g} times",
    )
