"""A cluster: N nodes of M equal devices, a fast link inside a node and a slower one between nodes; or more levels."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace
from numbers import Integral

from alpa_explore.cluster.device import Device, Link
from alpa_explore.cluster.files import ClusterParts, is_file_name, read_cluster, read_device
from alpa_explore.cluster.levels import Level, Tier, check_levels, inside, tiers_of
from alpa_explore.cluster.precisions import recipe_of
from alpa_explore.cluster.presets import default_software, load_preset, preset_names, rack_of
from alpa_explore.cluster.software import Software
from alpa_explore.cluster.software_profiles import load_software
from alpa_explore.errors import ClusterError, nearest_names

_FORM = re.compile(r"^\s*(\d+)\s*[x×]\s*(\d+)\s*:\s*(\S.*?)\s*$")
_SOFTWARE = re.compile(r"^(.*?)\s*@\s*([A-Za-z][\w-]*)\s*$")
_PRESET = re.compile(r"[\w.-]+")

MOST_DEVICES = 2**14
"""Largest cluster: with more devices planning would take hours, because every submesh of whole nodes is planned for."""


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
        ('2x8:my-gpu.json'), and so can the whole cluster ('my-cluster.toml'): see `files`.
        Raises ClusterError when the text or a file has another form, UnknownNameError for an unknown device.
        """
        if not isinstance(text, str):
            raise ClusterError(
                "A cluster must be given as text",
                found=repr(text),
                remedy="For example '2x8:a100'.",
            )
        named = _SOFTWARE.match(text)
        if named is not None:
            return cls.parse(named[1], **{"software": named[2], **changes})
        match = _FORM.match(text)
        if match is not None and is_file_name(match[3]):
            parts = ClusterParts(int(match[1]), int(match[2]), *read_device(match[3]), ())
            return cls._of(parts, changes)
        if match is None and is_file_name(text):
            return cls._of(read_cluster(text), changes)
        if match is None or not _PRESET.fullmatch(match[3]):
            raise ClusterError(
                "A cluster is written NODESxDEVICES:DEVICE",
                found=repr(text),
                remedy=f"For example '2x8:a100', or a JSON or TOML file. Known devices: {', '.join(preset_names())}.",
            )
        return cls._of(_of_preset(match[3], int(match[1]), int(match[2])), changes)

    @classmethod
    def _of(cls, parts: ClusterParts, changes: dict[str, object]) -> Cluster:
        nodes, per_node, device, within, between, levels = parts
        cluster = cls(
            nodes=nodes,
            devices_per_node=per_node,
            device=device,
            inside_node=within,
            between_nodes=between,
            levels=levels,
        )
        return cluster.with_changes(**changes) if changes else cluster

    def resized(self, nodes: int, devices_per_node: int) -> Cluster:
        """The same devices and links in another number. Levels are kept where whole units of them are left."""
        levels: tuple[Level, ...] = ()
        if self.levels and devices_per_node == self.devices_per_node:
            below = math.prod(level.of for level in self.levels[:-1])
            units, rest = divmod(nodes * devices_per_node, below)
            levels = () if rest else (*self.levels[:-1], replace(self.levels[-1], of=units))
        return replace(self, nodes=nodes, devices_per_node=devices_per_node, levels=levels)

    def with_changes(self, **changes: object) -> Cluster:
        """The same cluster with some fields of it or of its device replaced; `software` may be a profile's name."""
        if isinstance(changes.get("software"), str):
            software = load_software(str(changes["software"]))
            if self.software.low_precision:  # a choice of the user, not a figure of a profile
                software = replace(software, low_precision=self.software.low_precision)
            changes |= {"software": software}
        cluster_changes = {k: v for k, v in changes.items() if k in self.__dataclass_fields__}
        if "levels" not in changes and {"nodes", "devices_per_node"} & set(changes):
            sizes = [changes.get(name, getattr(self, name)) for name in ("nodes", "devices_per_node")]
            if all(isinstance(size, int) for size in sizes):
                cluster_changes["levels"] = self.resized(*sizes).levels  # type: ignore[arg-type]  # checked to be integers
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
        return replace(changed, device=replace(changed.device, **device_changes))  # type: ignore[arg-type]  # as above

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
    def software(self) -> Software:
        """The framework that runs the model on its devices."""
        return self.device.software

    def __str__(self) -> str:
        usual = default_software(self.device.name) == self.software.name
        return f"{self.nodes}x{self.devices_per_node}:{self.device.name}" + ("" if usual else f"@{self.software.name}")


def _of_preset(name: str, nodes: int, per_node: int) -> ClusterParts:
    """Nodes of a preset. The network of a part of a rack is that of its devices."""
    device, within, between = load_preset(name)
    rack = rack_of(name)
    if rack is None:
        return ClusterParts(nodes, per_node, device, within, between, ())
    between = replace(between, bandwidth=between.bandwidth * per_node / rack.devices)
    trays, rest = divmod(per_node, rack.tray)
    levels: tuple[Level, ...] = ()
    if trays > 1 and not rest and nodes:
        levels = (Level(name="tray", of=rack.tray), Level(name="rack", of=trays), Level(name="cluster", of=nodes))
    return ClusterParts(nodes, per_node, device, within, between, levels)
