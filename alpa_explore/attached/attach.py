"""`ax.attach`: find the hosts of a Dask scheduler, measure their links, make a cluster of them, and keep it in a file.

Links between hosts and inside them are measured by TCP transfers from worker to worker. Every ordered pair of hosts is
measured, as a link may be slow or closed in one direction only. A host takes part in one transfer at a time: rounds of
disjoint pairs, first one direction, then the other.
"""

import asyncio
import json
import os
import secrets
import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, TypeVar
from urllib.parse import urlsplit

from alpa_explore.attached import tuning, worker_side
from alpa_explore.attached.cluster_of import cluster_of
from alpa_explore.attached.connection import scheduler_address
from alpa_explore.attached.hosts import Host, MeasuredLink, Versions, differences_from_here
from alpa_explore.attached.worker_side import versions
from alpa_explore.cluster import Cluster
from alpa_explore.cluster.files import MOST_BYTES
from alpa_explore.errors import CancelledError, ClusterError, OptionError
from alpa_explore.execution.client import call_each, client_of, on_thread
from alpa_explore.execution.progress import ProgressCallback, TaskCount
from alpa_explore.store.read import conform, read_json
from alpa_explore.store.records import plain, record
from alpa_explore.store.write import write_text


async def find_hosts(client: Any, chosen: Sequence[str] = ()) -> tuple[Host, ...]:
    """The hosts, sorted by name; only the `chosen` ones (names or addresses) where any are named.

    OptionError where there are no workers, for a chosen host that is not there, is named twice or whose name two hosts
    have, and where one host has two addresses.
    """
    workers_at: dict[str, list[str]] = defaultdict(list)
    for worker in await client.nthreads():
        workers_at[urlsplit(worker).hostname or worker].append(worker)
    if not workers_at:
        raise OptionError(
            "The Dask scheduler has no workers",
            found=f"0 workers at {client.scheduler.address}",
            remedy="Start one on each host: dask worker ADDRESS --nthreads 1.",
        )
    every = [worker for workers in workers_at.values() for worker in workers]
    reports = await call_each(client, every, on_thread, worker_side.describe, seconds=tuning.DESCRIBE_SECONDS)
    known = await client.get_versions(packages=["torch", "alpa_explore"])
    hosts = [
        _host(address, sorted(workers), reports, known["workers"]) for address, workers in sorted(workers_at.items())
    ]
    hosts = _shared_machines(_distinct_names(_chosen(hosts, chosen)))
    _check_twice(hosts)
    return tuple(sorted(hosts, key=lambda h: (h.name, h.address)))


def _host(address: str, workers: list[str], reports: dict[str, Any], known: dict[str, Any]) -> Host:
    """The host of some workers, from the first report that can be read; the GPUs are those that any of them sees."""
    good = [report for worker in workers if isinstance(report := reports[worker], dict)]
    if not good:
        packages = known.get(workers[0], {}).get("packages", {})
        versions = {name: str(packages.get(name) or "") for name in ("python", "torch", "alpa_explore")}
        versions["python"] = ".".join(versions["python"].split(".")[:3])
        report = reports[workers[0]]
        reason = str(report) if report is not None else "its worker is gone"
        if isinstance(report, ModuleNotFoundError):
            reason = f"{report.name or report} is missing on it, or of another version"
        return Host(
            name=address, address=address, workers=tuple(workers), versions=Versions(**versions), problem=reason
        )
    gpus = {gpu["uuid"]: gpu for report in good for gpu in report["gpus"]}
    found = {"address": address, "workers": workers, "gpus": [gpus[uuid] for uuid in sorted(gpus)]}
    return record(Host, good[0] | found, checked=False)


def _chosen(hosts: list[Host], names: Sequence[str]) -> list[Host]:
    if not names:
        return hosts
    if twice := [name for name, count in Counter(names).items() if count > 1]:
        raise OptionError("A host is named twice", found=", ".join(twice), remedy="Name each host once.")
    found = []
    for name in names:
        same = [host for host in hosts if name in (host.name, host.address, f"{host.name} ({host.address})")]
        if not same:
            raise OptionError(
                "The scheduler has no worker on a host of this name",
                found=name,
                remedy=f"There are {', '.join(_both(host) for host in hosts)}.",
            )
        if len(same) > 1:
            raise OptionError(
                "Two hosts have the same name",
                found=f"{name} is at {' and at '.join(host.address for host in same)}",
                remedy="Name them by their addresses.",
            )
        if same[0] in found:
            raise OptionError("A host is named twice", found=f"{name} is {_both(same[0])}", remedy="Name it once.")
        found.append(same[0])
    return found


def _both(host: Host) -> str:
    return host.name if host.name == host.address else f"{host.name} ({host.address})"


def _distinct_names(hosts: list[Host]) -> list[Host]:
    counts = Counter(host.name for host in hosts)
    return [replace(host, name=_both(host)) if counts[host.name] > 1 else host for host in hosts]


def _check_twice(hosts: list[Host]) -> None:
    """OptionError where one host is known by two addresses: its devices would count twice."""
    by_network: dict[tuple[str, str], list[Host]] = defaultdict(list)
    for host in hosts:
        if not host.problem:
            by_network[host.machine, host.namespace].append(host)
    for same in by_network.values():
        if len(same) > 1:
            raise OptionError(
                "One host is attached by several addresses, so its devices would count several times",
                found=f"{', '.join(host.address for host in same)} are all {same[0].name.partition(' (')[0]}",
                remedy=f"Name the hosts that count: --hosts {same[0].address} (hosts=), or start workers with --host.",
            )


def _shared_machines(hosts: list[Host]) -> list[Host]:
    """Hosts with their share of the free memory where several, as containers, are one machine."""
    counts = Counter(host.machine for host in hosts if host.machine)
    return [
        replace(host, free_bytes=host.free_bytes // counts[host.machine]) if counts.get(host.machine, 0) > 1 else host
        for host in hosts
    ]


PASS_NAME = "measuring links"
_TRANSFER_SECONDS = 2 * tuning.STALL_SECONDS + tuning.LISTEN_SECONDS


async def measure_links(
    client: Any,
    hosts: Sequence[Host],
    *,
    progress: ProgressCallback | None = None,
    cancel: threading.Event | None = None,
) -> tuple[MeasuredLink, ...]:
    """The links inside the hosts, then those between them, in the order of the hosts. CancelledError on `cancel`."""
    rounds = [[(host, host) for host in hosts], *rounds_of_pairs(hosts)]
    counter = TaskCount(PASS_NAME, sum(len(pairs) for pairs in rounds), progress)
    found: dict[tuple[str, str], MeasuredLink] = {}
    for pairs in rounds:
        if cancel is not None and cancel.is_set():
            raise CancelledError("Attaching was cancelled", found="Cancel", remedy="Attach again to measure all links.")
        links = await asyncio.gather(*(_measure(client, source, target) for source, target in pairs))
        found |= {(link.source, link.target): link for link in links}
        counter.add(len(links))
    order = {host.name: number for number, host in enumerate(hosts)}
    return tuple(sorted(found.values(), key=lambda k: (not k.inside, order[k.source], order[k.target])))


def rounds_of_pairs(hosts: Sequence[Host]) -> list[list[tuple[Host, Host]]]:
    """All ordered pairs of different hosts, in rounds in which a host occurs once (a round-robin tournament)."""
    ring: list[Host | None] = [*hosts, *([None] if len(hosts) % 2 else [])]
    rounds = []
    for _ in range(len(ring) - 1):
        half = len(ring) // 2
        opposite = zip(ring[:half], reversed(ring[half:]), strict=True)
        pairs = [(a, b) for a, b in opposite if a is not None and b is not None]
        rounds += [pairs, [(b, a) for a, b in pairs]]
        ring = [ring[0], ring[-1], *ring[1:-1]]
    return rounds


async def _measure(client: Any, source: Host, target: Host) -> MeasuredLink:
    link = MeasuredLink(source=source.name, target=target.name)
    secret = secrets.token_bytes(worker_side.SECRET_BYTES)
    listener, sender = target.workers[-1], source.workers[0]
    where = (target.address, secret)
    port = (await call_each(client, [listener], worker_side.listen, *where, seconds=tuning.STALL_SECONDS))[listener]
    if not isinstance(port, int):
        return replace(link, fault=f"{target.name} cannot listen: {port}")
    to = (worker_side.transfer, target.address, port, secret)
    sent = (await call_each(client, [sender], on_thread, *to, seconds=_TRANSFER_SECONDS))[sender]
    if not isinstance(sent, dict):
        return replace(link, fault=f"the worker of {source.name} failed: {sent}")
    if "fault" in sent:
        return replace(link, fault=str(sent["fault"]))
    points = tuple((int(size), float(seconds)) for size, seconds in sent["points"])
    return replace(link, latency_seconds=float(sent["latency_seconds"]), points=points)


_T = TypeVar("_T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Attached:
    """The hosts of a scheduler and their links, as they were found."""

    scheduler: str
    """Address of the scheduler."""
    here: Versions
    """Of the process that attached them."""
    hosts: tuple[Host, ...]
    links: tuple[MeasuredLink, ...] = ()
    """Inside each host and between every ordered pair; empty where they were not measured."""
    measured_at: str = ""
    """Date and time, UTC, in ISO format."""

    def cluster(self, devices_per_node: int | None = None) -> Cluster:
        """The cluster of these hosts (`cluster_of`). ClusterError where they differ or cannot reach each other."""
        return cluster_of(self.hosts, self.links, devices_per_node=devices_per_node)[0]

    def remarks(self, devices_per_node: int | None = None) -> tuple[str, ...]:
        """What was assumed for the cluster, and in what the hosts differ from this process; a sentence each."""
        found = tuple(
            f"A run would fail, as hosts differ from this process. {text}."
            for text in differences_from_here(self.hosts, self.here)
        )
        try:
            return found + cluster_of(self.hosts, self.links, devices_per_node=devices_per_node)[1]
        except ClusterError:  # whoever asks for the cluster gets the reason
            return found


def attach(
    scheduler: Any,
    *,
    hosts: Sequence[str] = (),
    links: bool = True,
    allow_remote: bool = False,
    found: Callable[[Attached], None] | None = None,
    progress: ProgressCallback | None = None,
    cancel: threading.Event | None = None,
) -> Attached:
    """Find the hosts of a Dask scheduler (an address 'tcp://host:8786', or a dask Client), and measure their links.

    `hosts` are names or addresses of those that count; all by default. `found` is called with the hosts before links
    are measured, which takes about a second for each host. An address outside this machine and private networks needs
    `allow_remote` (`connection` says why). Nothing is started on the hosts beside the measurements.

    OptionError, ExecutorError where the scheduler cannot be reached, CancelledError on `cancel`. Hosts that differ and
    links that fail are no errors here: `Attached.cluster` says why it cannot plan for them.
    """
    address = scheduler_address(scheduler, allow_remote=allow_remote)

    with client_of(address) as client:
        now = datetime.now(UTC).isoformat(timespec="seconds")
        there = client.sync(find_hosts, client, hosts)
        attached = Attached(scheduler=address, here=Versions(**versions()), hosts=there, measured_at=now)
        if found is not None:
            found(attached)
        able = [host for host in there if not host.problem]
        if not links or not able:
            return attached
        measured = client.sync(measure_links, client, able, progress=progress, cancel=cancel)
        return replace(attached, links=measured)


FORMAT, VERSION = "alpa_explore.attached", 1
"""Of the section `measured` of a cluster file, which holds the hosts."""


def attached_document(attached: Attached) -> dict[str, Any]:
    """Hosts and links as JSON can hold them: the section `measured`."""
    return {"format": FORMAT, "version": VERSION, **plain(attached)}


def save_attached(attached: Attached, path: str | os.PathLike[str], *, devices_per_node: int | None = None) -> None:
    """Write the cluster file. ClusterError where the hosts make no cluster, PlanFileError where writing fails."""
    cluster = attached.cluster(devices_per_node)
    device = plain(replace(cluster.device, measured=None))
    body = {
        "name": device.pop("name"),
        "source": device.pop("source"),
        "nodes": cluster.nodes,
        "devices_per_node": cluster.devices_per_node,
        "device": {key: value for key, value in device.items() if value is not None},
        "inside_node": plain(cluster.inside_node),
        "between_nodes": plain(cluster.between_nodes),
        "measured": attached_document(attached),
    }
    write_text(path, json.dumps(body, indent=1, ensure_ascii=False) + "\n", "The cluster file")


def load_attached(path: str | os.PathLike[str]) -> Attached:
    """The hosts and links in a cluster file that `save_attached` wrote. ClusterError for any other file."""
    try:
        measured = conform(read_json(path, MOST_BYTES), {"measured": {"format": str, "version": int}})["measured"]
        if (measured["format"], measured["version"]) != (FORMAT, VERSION):
            raise ValueError(f"its hosts have the format {measured['format'][:50]} {measured['version']}")
        if (least := min(_numbers(measured), default=0)) < 0:
            raise ValueError(f"no figure of hosts and links is below 0, as {least} is")
        return record(Attached, measured, "measured")
    except (OSError, ValueError) as error:  # not UTF-8, not JSON, not of this form
        found = getattr(error, "strerror", None) or str(error)
        raise ClusterError(
            f"{path} holds no attached hosts",
            found=found[:300],
            remedy="Give a file that `alpa-explore nodes -o` wrote.",
        ) from error


def _numbers(value: Any) -> Iterator[float]:
    """All that stand in a value from JSON."""
    if isinstance(value, int | float):
        yield value
    elif isinstance(value, dict | list):
        for one in value.values() if isinstance(value, dict) else value:
            yield from _numbers(one)
