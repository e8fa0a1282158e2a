"""The cluster of equal hosts, with measured links and free memory; or why the planner cannot plan for them."""

from collections.abc import Sequence
from dataclasses import replace

from alpa_explore import units
from alpa_explore.attached import tuning
from alpa_explore.attached.calibrations import kept_calibration, nearest_preset
from alpa_explore.attached.hosts import Host, MeasuredLink, differences, largest_equal, slowest
from alpa_explore.cluster import Cluster, Link
from alpa_explore.cluster.files import Parts
from alpa_explore.cluster.presets import load_preset
from alpa_explore.cluster.topology import MOST_KINDS
from alpa_explore.errors import ClusterError, OptionError
from alpa_explore.execution.hosts import reaching_all


def cluster_of(
    hosts: Sequence[Host], links: Sequence[MeasuredLink], *, devices_per_node: int | None = None
) -> tuple[Cluster, tuple[str, ...]]:
    """The cluster, and remarks on what was assumed.

    A node has all GPUs of its host, or a power of two of its cores, or `devices_per_node`. Memory is the smallest that
    any device has free now. The network is the slowest link between two hosts, in whatever direction; a step of a
    collective takes more than its wire, by as much as inside a node. The device's other figures are those of the kept
    calibration of such a machine, or of the nearest preset.

    ClusterError where hosts differ, or cannot reach each other; OptionError for more devices than a host has.
    """
    if unlike := differences(hosts):
        equal = largest_equal(hosts)
        raise ClusterError(
            "The hosts are not alike, and an attached cluster has equal nodes",
            found="; ".join(unlike),
            remedy=f"Name equal ones: --hosts {','.join(_short(hosts, equal))} (hosts=).{_as_text(hosts, unlike)}"
            if equal
            else "Start the workers where alpa_explore and torch are installed.",
        )
    if faults := [link for link in links if link.fault]:
        left = reaching_all([host.name for host in hosts], [(link.source, link.target) for link in faults])
        raise ClusterError(
            "Some hosts cannot reach each other",
            found="; ".join(map(str, faults)),
            remedy="Open the ports between them"
            + (f", or name those that do: --hosts {','.join(_short(hosts, left))} (hosts=)." if left else "."),
        )
    per_node = _devices_per_node(hosts[0], devices_per_node)
    (device, inside, between), kept, remarks = _figures(hosts[0], per_node)
    if per_node < hosts[0].devices and devices_per_node is None:
        remarks += (f"Of {hosts[0].devices} devices a host, {per_node} are planned for: a power of two.",)
    inner, outer = [k for k in links if k.inside], [k for k in links if not k.inside]
    if inner and not hosts[0].gpus and not kept:
        inside = replace(_measured(inner, "inside a host"), latency_seconds=inside.latency_seconds)
    if outer and any(host.rdma for host in hosts):
        names = ", ".join(sorted({name for host in hosts for name in host.rdma}))
        remarks += (f"NCCL will use {names}, which TCP does not measure: the network is that of the preset.",)
    elif outer:
        # What a step of a collective takes beside the wire, inside a host as between hosts.
        wire = max((link.latency_seconds for link in inner), default=inside.latency_seconds)
        between = _measured(outer, "between hosts", beside_seconds=max(inside.latency_seconds - wire, 0.0))
        fastest = max(link.bandwidth for link in outer)
        if fastest > tuning.UNLIKE_LINKS * between.bandwidth:
            slow = slowest(outer)
            remarks += (
                f"Links differ: {slow.source} → {slow.target} has {units.bytes_per_second(slow.bandwidth)}, the fastest"
                f" {units.bytes_per_second(fastest)}. The slowest is planned with.",
            )
    elif len(hosts) > 1:
        remarks += ("The links between hosts were not measured: they are those of the preset or the calibration.",)
    if len({host.machine for host in hosts}) < len(hosts):
        remarks += ("Some of the hosts are one machine: they share its cores and memory.",)
    free = min(host.free_bytes // per_node if not host.gpus else host.free_of_devices for host in hosts)
    names = ", ".join(host.name for host in hosts)
    cluster = Cluster(
        nodes=len(hosts),
        devices_per_node=per_node,
        device=replace(device, memory_bytes=free, source=f"{device.source}; memory: free on {names}"),
        inside_node=inside,
        between_nodes=between,
    )
    return cluster, remarks


def _as_text(hosts: Sequence[Host], unlike: Sequence[str]) -> str:
    """How to plan for hosts that differ in the kind of their devices alone; '' for others."""
    counts = {host.devices for host in hosts}
    if len(unlike) > 1 or not unlike[0].startswith("devices: ") or len(counts) > 1:
        return ""
    names: dict[str, list[Host]] = {}
    for host in hosts:
        names.setdefault(nearest_preset(host)[0], []).append(host)
    if not 1 < len(names) <= MOST_KINDS:
        return ""
    text = "+".join(f"{len(group)}x{group[0].devices}:{name}" for name, group in names.items())
    order = ", ".join(host.name for group in names.values() for host in group)
    return f" Or plan for --cluster {text}, and start its ranks by --target torchrun on {order}, in this order."


def _devices_per_node(host: Host, given: int | None) -> int:
    if given is None:
        return host.devices if host.gpus else 1 << max(host.devices.bit_length() - 1, 0)
    most = host.devices if host.gpus else max(host.cores, given)
    if not 1 <= given <= most:
        raise OptionError(
            "A host has fewer devices",
            found=f"{given} of {host.devices} × {host.device}",
            remedy=f"Give 1 to {host.devices}.",
        )
    return given


def _figures(host: Host, per_node: int) -> tuple[Parts, bool, tuple[str, ...]]:
    """Device and links of the kept calibration or the nearest preset; whether it is a calibration; remarks."""
    preset, named = nearest_preset(host)
    found = kept_calibration(host, per_node)
    if found is not None:
        path, (device, inside, between) = found
        return (replace(device, source=f"{device.source} ({path})"), inside, between), True, ()
    device, inside, between = load_preset(preset)
    what = f"No calibration of {host.device} is kept: its speed is that of the preset {preset}"
    remark = what + ("." if named else f", the nearest by memory: no preset is named like {host.device}.")
    remark += " `alpa-explore nodes ADDRESS --calibrate` measures it."
    device = replace(device, name=f"attached-{preset}", source=f"preset {preset}: {device.source}")
    return (device, inside, between), False, (remark,)


def _measured(links: Sequence[MeasuredLink], where: str, beside_seconds: float = 0.0) -> Link:
    """The slowest of the links; `beside_seconds` are added to its latency."""
    slow = slowest(links)
    return Link(
        bandwidth=slow.bandwidth,
        latency_seconds=max(link.latency_seconds for link in links) + beside_seconds,
        source=f"Measured by TCP {where}: the slowest of {len(links)}, {slow.source} → {slow.target}"
        + (f"; latency {units.seconds(beside_seconds)} more, as inside a node" if beside_seconds else ""),
    )


def _short(hosts: Sequence[Host], names: Sequence[str]) -> list[str]:
    """Names as --hosts takes them: addresses where a name is not unique."""
    return [host.address if " (" in host.name else host.name for host in hosts if host.name in names]
