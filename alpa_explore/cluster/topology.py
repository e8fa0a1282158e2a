"""A cluster: N nodes of M devices, a fast link inside a node and a slower one between nodes; or more levels. Its nodes
are equal, or of a few kinds."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from numbers import Integral

from alpa_explore.cluster.device import Device, Link
from alpa_explore.cluster.files import ClusterParts, is_file_name, read_cluster, read_device
from alpa_explore.cluster.kernel_store import read_kernel_store
from alpa_explore.cluster.levels import Level, Tier, check_levels, inside, tiers_of
from alpa_explore.cluster.precisions import recipe_of
from alpa_explore.cluster.presets import default_software, load_preset, preset_names, rack_of
from alpa_explore.cluster.software import Software
from alpa_explore.cluster.software_profiles import load_software
from alpa_explore.errors import ClusterError, nearest_names

_FORM = re.compile(r"^\s*(\d+)\s*[xX×]\s*(\d+)\s*:\s*(\S.*?)\s*$")
_SOFTWARE = re.compile(r"^(.*?)\s*@\s*([A-Za-z][\w-]*)\s*$")
_PRESET = re.compile(r"[\w.-]+")
_PARTS = re.compile(r"\+(?=\s*(?:\d+\s*[xX×]|\+|$))|^\s*\+")
"""Between kinds of nodes; the name of a file may hold other '+'."""

MOST_KINDS = 3
"""Kinds of nodes in a cluster: the states of the pipeline DP multiply."""
MOST_DEVICES = 2**14
"""Largest cluster: with more devices planning would take hours, because every submesh of whole nodes is planned for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """Equal nodes of a cluster of unlike ones."""

    nodes: int
    device: Device
    inside_node: Link


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """`nodes` × `devices_per_node` devices; device d is number d % M of node d // M."""

    nodes: int
    devices_per_node: int
    device: Device
    inside_node: Link
    """Bandwidth is that of one device."""
    between_nodes: Link
    """Bandwidth is that of one node, shared by the devices that use it at once."""
    levels: tuple[Level, ...] = ()
    """The whole topology, from the device outwards, where it has more than these two levels; see `levels`."""
    others: tuple[Kind, ...] = ()
    """Of a cluster of unlike nodes ('4x8:h100+4x8:a100') the last nodes, which are of other kinds than the first; all
    have equally many devices."""

    def __post_init__(self) -> None:
        for name in ("nodes", "devices_per_node"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, Integral):
                raise ClusterError(
                    "The numbers of nodes and devices must be integers",
                    found=f"{name}={value!r}",
                    remedy="Give 1 or more.",
                )
            object.__setattr__(self, name, int(value))
        for name, kind in (("device", Device), ("inside_node", Link), ("between_nodes", Link)):
            if not isinstance(getattr(self, name), kind):
                raise ClusterError(
                    f"{name} of a cluster must be a {kind.__name__}",
                    found=repr(getattr(self, name)),
                    remedy="Make the cluster with Cluster.parse('2x8:a100') and change it with dataclasses.replace.",
                )
        if self.nodes < 1:
            raise ClusterError(
                "A cluster must have at least one node", found=f"nodes={self.nodes}", remedy="Give 1 node or more."
            )
        if self.devices_per_node < 1:
            raise ClusterError(
                "A node must have at least one device",
                found=f"devices_per_node={self.devices_per_node}",
                remedy="Give 1 device or more.",
            )
        object.__setattr__(self, "levels", tuple(self.levels))
        _check_kinds(self)
        if self.levels:
            check_levels(self.levels, self.nodes, self.devices_per_node)
        if self.devices > MOST_DEVICES:
            raise ClusterError(
                "The cluster is too large to plan for",
                found=f"{self.devices:,} devices",
                remedy=f"Give {MOST_DEVICES:,} devices at most.",
            )

    @classmethod
    def parse(cls, text: str, **changes: object) -> Cluster:
        """'2x8:a100' -> 2 nodes of 8 A100 devices; '2x8:a100@fsdp': the same with the software profile of FSDP.

        `changes` replace fields of the cluster or its device (memory_bytes, software, …). A device can be a file
        ('2x8:my-gpu.json'), and so can the whole cluster ('my-cluster.toml'): see `files`. A file of kernels that were
        timed on the device follows it ('2x8:a100+kernels.json'): see `kernel_store`.
        Raises ClusterError when the text or a file has another form, UnknownNameError for an unknown device.
        """
        if not isinstance(text, str):
            raise ClusterError("A cluster must be given as text", found=repr(text), remedy="For example '2x8:a100'.")
        kinds = _PARTS.split(text)
        if len(kinds) > 1:
            return cls._of_unlike(text, kinds, changes)
        named = _SOFTWARE.match(text)
        if named is not None:
            return cls.parse(named[1], **{"software": named[2], **changes})
        match = _FORM.match(text)
        if match is not None and (named_store := _split_store(match[3])) is not None:
            device, kernels = named_store
            store = read_kernel_store(kernels)
            if device in preset_names() and not store.may_be_of(device):
                raise ClusterError(
                    "The kernels were timed on another device",
                    found=f"{store.device} in {kernels}, for {device}",
                    remedy="Name the device that they were timed on, or a file of its own figures.",
                )
            return cls.parse(f"{match[1]}x{match[2]}:{device}", **{"measured": store, **changes})
        if match is not None and is_file_name(match[3]):
            parts = ClusterParts(int(match[1]), int(match[2]), *read_device(match[3], int(match[2])), ())
            return cls._of(parts, changes)
        if match is None and is_file_name(text):
            return cls._of(read_cluster(text), changes)
        if match is None or not _PRESET.fullmatch(match[3]):
            raise ClusterError(
                "A cluster is written NODESxDEVICES:DEVICE",
                found=repr(text),
                remedy="For example '2x8:a100', '1x8:h100+1x8:a100' for unlike nodes, or a JSON or TOML file. Known "
                f"devices: {', '.join(preset_names())}.",
            )
        return cls._of(_of_preset(match[3], int(match[1]), int(match[2])), changes)

    @classmethod
    def _of(cls, parts: ClusterParts, changes: dict[str, object]) -> Cluster:
        cluster = cls(**parts._asdict())
        return cluster.with_changes(**changes) if changes else cluster

    @classmethod
    def _of_unlike(cls, text: str, texts: Sequence[str], changes: dict[str, object]) -> Cluster:
        """'4x8:h100+4x8:a100'. The software is that of the first kind, or the one named behind the last; the network is
        as slow as the slowest."""
        *firsts, last = texts
        named = _SOFTWARE.match(last)
        parts = [_part(part, text) for part in (*firsts, named[1] if named else last)]
        first = parts[0]
        software = _named_software(named[2], first.software) if named else first.software
        kinds: dict[str, Kind] = {}
        for part in parts:
            kind = Kind(nodes=part.nodes, device=replace(part.device, software=software), inside_node=part.inside_node)
            same = kinds.setdefault(kind.device.name, replace(kind, nodes=0))
            if (same.device, same.inside_node) != (kind.device, kind.inside_node):
                raise ClusterError(
                    "Kinds of nodes are told apart by the names of their devices",
                    found=f"two kinds named {kind.device.name} with other figures in {text!r}",
                    remedy="Give one of the device files another name.",
                )
            kinds[kind.device.name] = replace(same, nodes=same.nodes + part.nodes)
        _check_parts(text, parts, len(kinds))
        main, *others = kinds.values()
        if not others:
            alike = first.resized(main.nodes, first.devices_per_node).with_changes(software=software)
            return alike.with_changes(**changes) if changes else alike
        slowest = min((part.between_nodes for part in parts), key=lambda link: link.bandwidth)
        latency = max(part.between_nodes.latency_seconds for part in parts)
        cluster = cls(
            nodes=sum(kind.nodes for kind in kinds.values()),
            devices_per_node=first.devices_per_node,
            device=main.device,
            inside_node=main.inside_node,
            between_nodes=replace(slowest, latency_seconds=latency),
            others=tuple(others),
        )
        return cluster.with_changes(**changes) if changes else cluster

    @property
    def kinds(self) -> tuple[Cluster, ...]:
        """Its equal nodes as clusters of their own, in the order of the nodes; itself where all are equal."""
        if not self.others:
            return (self,)
        first = self.nodes - sum(kind.nodes for kind in self.others)
        main = Kind(nodes=first, device=self.device, inside_node=self.inside_node)
        return tuple(
            replace(self, nodes=kind.nodes, device=kind.device, inside_node=kind.inside_node, others=())
            for kind in (main, *self.others)
        )

    def part_of(self, device: int) -> Cluster:
        """The equal nodes among which a device is; itself where all are equal."""
        return self.kinds[self.kind_of(device)]

    def kind_of(self, device: int) -> int:
        """Index in `kinds` of the node of a device."""
        if not self.others:
            return 0
        ends = accumulate(kind.devices for kind in self.kinds)
        return next(number for number, end in enumerate(ends) if device < end)

    def resized(self, nodes: int, devices_per_node: int) -> Cluster:
        """The same devices and links in another number; the network of a preset becomes that of so many of its devices
        (`load_preset`), one that was given or measured stays. Levels are kept where whole units of them are left; of
        unlike nodes in another number only the first kind is known to be there."""
        levels: tuple[Level, ...] = ()
        if self.levels and devices_per_node == self.devices_per_node:
            below = math.prod(level.of for level in self.levels[:-1])
            units, rest = divmod(nodes * devices_per_node, below)
            levels = () if rest else (*self.levels[:-1], replace(self.levels[-1], of=units))
        others = self.others if (nodes, devices_per_node) == (self.nodes, self.devices_per_node) else ()
        name, between = self.device.name, self.between_nodes
        if name in preset_names() and between == load_preset(name, self.devices_per_node)[2]:
            between = load_preset(name, devices_per_node)[2]
        return replace(
            self, nodes=nodes, devices_per_node=devices_per_node, between_nodes=between, levels=levels, others=others
        )

    def with_changes(self, **changes: object) -> Cluster:
        """The same cluster with some fields of it or of its device replaced; `software` may be a profile's name, and
        that of the software that the cluster has keeps its figures, which may be measured. Of unlike nodes, fields of
        the device and `inside_node` are replaced for every kind."""
        if isinstance(changes.get("software"), str):
            software = _named_software(str(changes["software"]), self.software)
            # Choices of the user, not figures of a profile.
            chosen = self.software.low_precision or software.low_precision
            software = replace(software, low_precision=chosen, states=self.software.states)
            changes |= {"software": software}
        cluster_changes = {k: v for k, v in changes.items() if k in self.__dataclass_fields__}
        if "levels" not in changes and {"nodes", "devices_per_node"} & set(changes):
            sizes = [changes.get(name, getattr(self, name)) for name in ("nodes", "devices_per_node")]
            if all(isinstance(size, int) for size in sizes):
                resized = self.resized(*sizes)  # type: ignore[arg-type]  # checked to be integers
                kept = {name: getattr(resized, name) for name in ("between_nodes", "levels", "others")}
                cluster_changes = kept | cluster_changes
        device_changes = {k: v for k, v in changes.items() if k not in cluster_changes}
        names = (*self.__dataclass_fields__, *self.device.__dataclass_fields__)
        for name in device_changes:
            if name not in names:
                raise ClusterError(
                    "Neither a cluster nor a device has a field of this name",
                    found=name,
                    remedy=nearest_names(name, names),
                )
        changed = replace(self, **cluster_changes)  # type: ignore[arg-type]  # `changes` holds objects; __post_init__ checks them
        others = [replace(kind, device=replace(kind.device, **device_changes)) for kind in changed.others]  # type: ignore[arg-type]  # as above
        if "inside_node" in changes:
            others = [replace(kind, inside_node=changed.inside_node) for kind in others]
        return replace(changed, device=replace(changed.device, **device_changes), others=tuple(others))  # type: ignore[arg-type]  # as above

    def in_precision(self, precision: str | None) -> Cluster:
        """The same cluster, whose software computes linear layers in a low precision (`precisions`) where `precision`
        names one. ClusterError for devices without it, with the nearest that they have."""
        recipe = recipe_of(precision)
        return self.with_changes(software=replace(self.software, low_precision=recipe)) if recipe else self

    @property
    def devices(self) -> int:
        """Number of devices."""
        return self.nodes * self.devices_per_node

    @property
    def tiers(self) -> tuple[Tier, ...]:
        """Its links from the node outwards: two, or as many as its levels make."""
        return tiers_of(self.levels, self.nodes, self.devices_per_node, self.inside_node, self.between_nodes)

    @property
    def devices_per_host(self) -> int:
        """Devices that one operating system has: of a rack of trays those of a tray, else those of a node."""
        trays = inside(self.levels, self.devices_per_node) or 1
        return self.levels[0].of if trays > 1 else self.devices_per_node

    @property
    def device_name(self) -> str:
        """'h100'; of unlike nodes 'h100+a100'."""
        return "+".join(kind.device.name for kind in self.kinds)

    @property
    def software(self) -> Software:
        """The framework that runs the model on its devices."""
        return self.device.software

    def __str__(self) -> str:
        usual = default_software(self.device.name) == self.software.name
        kinds = "+".join(f"{kind.nodes}x{kind.devices_per_node}:{kind.device.name}" for kind in self.kinds)
        return kinds + ("" if usual else f"@{self.software.name}")


def _named_software(name: str, present: Software) -> Software:
    """The profile of a name; `present` where that is its name, for its figures may be measured."""
    software = load_software(name)
    return present if software.name == present.name else software


def _split_store(device: str) -> tuple[str, str] | None:
    """(device, file of measured kernels) of 'h100+kernels.json'; None where the text is a device alone. A name of a
    file may hold a '+'."""
    name, plus, kernels = device.rpartition("+")
    known = is_file_name(name) or name.strip().lower() in preset_names()
    return (name.strip(), kernels.strip()) if plus and known and is_file_name(kernels) else None


def _part(part: str, text: str) -> Cluster:
    """The cluster of one kind of nodes in `text`; ClusterError, which names both, where it is none."""
    try:
        return Cluster.parse(part)
    except ClusterError as error:
        raise ClusterError(
            f"Unlike nodes are joined by '+', as in '4x8:h100+4x8:a100': {error.what}",
            found=f"{error.found} in {text!r}" if part.strip() else f"nothing stands beside a '+' of {text!r}",
            remedy=error.remedy if part.strip() else "Add the other kind, or leave out the '+'.",
        ) from None


def _check_parts(text: str, parts: Sequence[Cluster], kinds: int) -> None:
    """ClusterError for parts that one cluster cannot have."""
    sizes = sorted({part.devices_per_node for part in parts})
    if len(sizes) > 1:
        divides = all(size % sizes[0] == 0 for size in sizes)
        smaller = f"Write all as nodes of {sizes[0]}: what joins two of them is then priced as the network"
        raise ClusterError(
            "Unlike nodes must have equally many devices",
            found=f"nodes of {', '.join(map(str, sizes))} devices in {text!r}",
            remedy=f"{smaller}, or plan on one kind." if divides else "Plan on nodes of one kind.",
        )
    if kinds > MOST_KINDS:
        raise ClusterError(
            "A cluster has a few kinds of nodes at most",
            found=f"{kinds} kinds in {text!r}",
            remedy=f"Give {MOST_KINDS} kinds or fewer.",
        )
    if kinds > 1 and any(part.levels for part in parts):
        raise ClusterError(
            "Unlike nodes cannot be in pods or racks",
            found=f"a rack of trays in {text!r}",
            remedy="Write the trays as nodes, as in '2x4:gb200', or plan on nodes of one kind.",
        )


def _check_kinds(cluster: Cluster) -> None:
    object.__setattr__(cluster, "others", tuple(cluster.others))
    if not cluster.others:
        return
    if cluster.levels:
        raise ClusterError(
            "Unlike nodes cannot be in pods or racks",
            found=f"{len(cluster.others) + 1} kinds of nodes, and {len(cluster.levels)} levels",
            remedy="Leave out the levels, or give nodes of one kind.",
        )
    if sum(kind.nodes for kind in cluster.others) >= cluster.nodes:
        raise ClusterError(
            "The kinds of nodes do not add up to the nodes of the cluster",
            found=f"{cluster.nodes} nodes, {sum(kind.nodes for kind in cluster.others)} of them of other kinds",
            remedy="Make the cluster with Cluster.parse('4x8:h100+4x8:a100').",
        )


def _of_preset(name: str, nodes: int, per_node: int) -> ClusterParts:
    """Nodes of a preset, with the network of so many of its devices."""
    device, within, between = load_preset(name, per_node)
    rack = rack_of(name)
    if rack is None:
        return ClusterParts(nodes, per_node, device, within, between, ())
    trays, rest = divmod(per_node, rack.tray)
    levels: tuple[Level, ...] = ()
    if trays > 1 and not rest and nodes:
        levels = (Level(name="tray", of=rack.tray), Level(name="rack", of=trays), Level(name="cluster", of=nodes))
    return ClusterParts(nodes, per_node, device, within, between, levels)
