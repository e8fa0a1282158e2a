"""Device presets: one JSON file for each device beside this module, each with the source of its figures."""

from dataclasses import replace
from functools import cache
from typing import Any, NamedTuple

from alpa_explore.cluster.device import Device, Link
from alpa_explore.cluster.kernel_figures import KernelFigures
from alpa_explore.cluster.software_profiles import by_name, load_software
from alpa_explore.errors import UnknownNameError, nearest_names


class Rack(NamedTuple):
    """A node of hosts that share the link inside it."""

    devices: int
    """Of a whole rack."""
    tray: int
    """Devices of one host."""


def preset_names() -> tuple[str, ...]:
    """The names and aliases that `Cluster.parse` accepts."""
    return tuple(sorted(by_name(__package__)))


@cache
def load_preset(name: str, per_node: int | None = None) -> tuple[Device, Link, Link]:
    """(device, link inside a node, link between nodes) of a preset. UnknownNameError offers the nearest names.

    The link between nodes is that of a usual node, or of one of `per_node` devices. Where a node has its adapters for
    its devices (`network_devices` of the file: how many devices its network is of), that is their share; where one
    adapter is that of the host (V100, L40S, RTX 4090, CPU), it is the same for fewer devices.
    """
    body = _body(name)
    software = load_software(body.get("software", "alpa"))
    kernels = KernelFigures(**body["kernels"]) if "kernels" in body else None
    device = Device(name=body["name"], source=body["source"], software=software, kernels=kernels, **body["device"])
    between, of = Link(**body["between_nodes"]), body.get("network_devices")
    if per_node is not None and of is not None:
        between = replace(between, bandwidth=between.bandwidth * per_node / of)
    return device, Link(**body["inside_node"]), between


def rack_of(name: str) -> Rack | None:
    """How the nodes of a preset are made up of hosts, where a node is more than one."""
    rack = _body(name).get("rack")
    return None if rack is None else Rack(**rack)


def default_software(name: str) -> str:
    """Name of the software that a device runs unless said otherwise; that of the paper for devices without a preset."""
    return str(_body(name).get("software", "alpa")) if name.lower() in by_name(__package__) else "alpa"


def _body(name: str) -> dict[str, Any]:
    known = by_name(__package__)
    if name.lower() not in known:
        raise UnknownNameError("Unknown device", found=repr(name), remedy=nearest_names(name, known))
    return known[name.lower()]
