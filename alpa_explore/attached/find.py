"""The hosts of a scheduler: its workers, grouped by the address at which they are known, described by one of them."""

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import replace
from typing import Any
from urllib.parse import urlsplit

from alpa_explore.attached import tuning, worker_side
from alpa_explore.attached.connection import call
from alpa_explore.attached.hosts import Gpu, Host, Versions
from alpa_explore.errors import OptionError


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
    reports = await call(client, every, worker_side.described, seconds=tuning.DESCRIBE_SECONDS)
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
    first = good[0]
    gpus = {gpu["uuid"]: Gpu(**gpu) for report in good for gpu in report["gpus"]}
    return Host(
        name=first["name"],
        address=address,
        workers=tuple(workers),
        versions=Versions(**first["versions"]),
        cpu=first["cpu"],
        cores=first["cores"],
        memory_bytes=first["memory_bytes"],
        free_bytes=first["free_bytes"],
        gpus=tuple(gpus[uuid] for uuid in sorted(gpus)),
        machine=first["machine"],
        namespace=first["namespace"],
        rdma=tuple(first["rdma"]),
    )


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
