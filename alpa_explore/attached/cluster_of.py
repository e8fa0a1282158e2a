"""The cluster of equal hosts, with measured links and free memory; or why the planner cannot plan for them.

Device files are kept by machine, so that a machine that was calibrated once is planned for by its own figures. A file's
name is the model of the devices and their number on a host. The folder is that of the user's data, or
$ALPA_EXPLORE_CALIBRATIONS.
"""

import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from platformdirs import user_data_path

from alpa_explore import units
from alpa_explore.attached import tuning
from alpa_explore.attached.connection import scheduler_address
from alpa_explore.attached.hosts import Host, MeasuredLink, differences, largest_equal, slowest
from alpa_explore.cluster import Cluster, Link
from alpa_explore.cluster.files import Parts, read_device
from alpa_explore.cluster.presets import load_preset, preset_names
from alpa_explore.cluster.topology import MOST_KINDS
from alpa_explore.errors import ClusterError, ExecutorError, OptionError
from alpa_explore.execution.client import call_each, client_of, on_thread
from alpa_explore.execution.hosts import reaching_all
from alpa_explore.store.write import write_text


def calibrations_folder() -> Path:
    """Where the device files are kept."""
    given = os.environ.get("ALPA_EXPLORE_CALIBRATIONS")
    return Path(given) if given else user_data_path("alpa_explore", appauthor=False) / "calibrations"


def machine_key(host: Host, devices: int) -> str:
    """The name of the device file of a host of which so many devices are used: 'nvidia-h100-80gb-hbm3-8'."""
    words = re.sub(r"[^a-z0-9]+", "-", re.sub(r"\((r|tm)\)", "", host.device.lower())).strip("-")
    return f"{words[:50] or host.kind}-{devices}"


def kept_calibration(host: Host, devices: int) -> tuple[Path, Parts] | None:
    """The file of such a machine with what it says; None where it was never calibrated. ClusterError for a file that
    is damaged."""
    path = calibrations_folder() / f"{machine_key(host, devices)}.json"
    return (path, read_device(str(path), devices)) if path.exists() else None


def calibrate(scheduler: Any, host: Host, devices: int, *, shapes: bool = True, allow_remote: bool = False) -> Path:
    """Calibrate so many devices of a host on one of its workers and keep the device file; its path.

    It takes one to three minutes; less without `shapes`, which are products of other shapes than squares, attention
    and the host. ExecutorError where it fails, with what was printed there.
    """
    key, worker = machine_key(host, devices), host.workers[0]
    like = nearest_preset(host)[0] if host.gpus else None
    ranks = devices if host.gpus else max(devices, 2)  # processes between which a collective can be timed
    work = (on_thread, calibrated, host.kind, ranks, key, like, shapes)
    with client_of(scheduler_address(scheduler, allow_remote=allow_remote)) as client:
        found = client.sync(call_each, client, [worker], *work, seconds=tuning.CALIBRATE_SECONDS)[worker]
    if not isinstance(found, dict):
        raise ExecutorError(
            f"{host.name} could not be calibrated",
            found=str(found)[:500],
            remedy="Run `alpa-explore calibrate` on that host to see more.",
        )
    folder = calibrations_folder()
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{key}.json"
    write_text(path, json.dumps(found, indent=2, ensure_ascii=False) + "\n", "The device file")
    read_device(str(path), devices)
    return path


def calibrated(kind: str, ranks: int, name: str, like: str | None, shapes: bool) -> dict[str, Any]:
    """On a worker: run `alpa-explore calibrate` in a process of its own; the body of the device file."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "device.json"
        command = [sys.executable, "-P", "-m", "alpa_explore.cli", "calibrate", "-o", str(path), "--name", name]
        command += ["--device", kind, "--ranks", str(ranks), *(["--like", like] if like else [])]
        command += [] if shapes else ["--quick"]
        surroundings = os.environ | {"PYTHONPATH": os.pathsep.join(entry for entry in sys.path if entry)}
        done = subprocess.run(
            command,
            env=surroundings,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=tuning.CALIBRATE_SECONDS,
        )
        if done.returncode:
            raise ExecutorError(
                "alpa-explore calibrate failed",
                found=(done.stderr.strip().splitlines() or ["nothing was printed"])[-1],
                remedy="Run it on that host.",
            )
        body: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        return body


def nearest_preset(host: Host) -> tuple[str, bool]:
    """(preset of the host's devices, whether its name says so).

    A GPU whose name holds no preset's name gets the preset with the memory nearest to its own.
    """
    if not host.gpus:
        return "cpu", True
    memory, model = host.gpus[0].memory_bytes, host.gpus[0].name.lower()
    presets = {load_preset(name)[0].name: load_preset(name)[0].memory_bytes for name in preset_names() if name != "cpu"}
    words = set(re.findall(r"[a-z]+\d+", model))
    named = {name for name in presets if name.partition("-")[0] in words}
    nearest = min(sorted(named or presets), key=lambda name: abs(presets[name] - memory))
    return nearest, bool(named)


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
    device, inside, between = load_preset(preset, per_node)
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
