"""The workers of a Dask cluster as hosts for ranks: which ones get which ranks, and whether they can run them.

After a fault a run can go on with the hosts that answer and reach each other. The scheduler may list a worker for
minutes after its link was cut, so all are asked; those that the run has found lost get less time. A worker with GPUs
has those that it sees; a host without is taken for one node of the plan.
"""

import asyncio
import ipaddress
import secrets
import socket
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from typing import Any
from urllib.parse import urlsplit

from alpa_explore.errors import ExecutorError, OptionError, RunError
from alpa_explore.execution import client as execution
from alpa_explore.execution.hosts import comparable, reaching_all
from alpa_explore.runtime import tuning
from alpa_explore.runtime.folder import DISK_ERRORS
from alpa_explore.runtime.targets import dask_host
from alpa_explore.runtime.targets.dask_host import HostFacts
from alpa_explore.runtime.targets.local import check_available
from alpa_explore.store.code_version import source_digest

_COMPARED = ("python", "torch", "alpa-explore")


def deal_ranks(addresses: list[str], world: int) -> list[tuple[str, int, int]]:
    """(worker, its first rank, number of ranks), for as few workers as needed.

    OptionError where the ranks cannot be divided evenly.
    """
    if not addresses:
        raise OptionError(
            "The Dask cluster has no workers", found="0 workers", remedy="Start workers, one on each machine."
        )
    used = sorted(addresses, key=by_address)[:world]
    if world % len(used):
        raise OptionError(
            "The ranks cannot be divided evenly among the workers",
            found=f"{world} ranks for {len(used)} workers",
            remedy="Start as many workers as machines, or one for each device of the plan.",
        )
    count = world // len(used)
    return [(address, i * count, count) for i, address in enumerate(used)]


def check_workers(scheduler: Any, world: int, device: str, ports: tuple[int, ...] | None = None) -> None:
    """Check that the workers can run `world` ranks; devices that workers share count once.

    OptionError where the ranks cannot be divided over the workers, these run other versions than this process or have
    too few devices, or all of `ports` are in use; ExecutorError where a worker does not answer, or two hosts cannot
    reach each other.
    """
    with connected(scheduler) as client:
        used = deal_ranks(list(client.nthreads()), world)
        host_of = described(client, used, device)
        check_available(world, _attached(used, host_of), device)
        name = f"alpa-explore-check-{secrets.token_hex(6)}"
        try:
            check_reachable(client, host_of, listen(client, name, used, host_of, ports))
        finally:
            client.sync(forget_run, client, name, list(host_of))


def connected(scheduler: Any) -> AbstractContextManager[Any]:
    """`client_of` the workers' scheduler. OptionError where there is none."""
    if scheduler is None:
        raise OptionError(
            "The target dask needs a cluster",
            found="no scheduler",
            remedy="Give scheduler= a Dask client or an address; on the command line --scheduler tcp://…",
        )
    return execution.client_of(scheduler)


async def call(
    client: Any, worker: str, function: Callable[..., Any], *arguments: Any, seconds: float = tuning.ASK_SECONDS
) -> Any:
    """`execution.client.call`. RunError where the function cannot write there."""
    try:
        return await execution.call(client, worker, function, *arguments, seconds=seconds)
    except ExecutorError as silent:
        if isinstance(error := silent.__cause__, OSError) and error.errno in DISK_ERRORS:
            raise RunError(
                "A host cannot write its copy of the run",
                found=f"{worker}: {error}",
                remedy="Free some space there, see that its folder can be written, or leave this host out.",
            ) from error
        raise


def described(client: Any, used: list[tuple[str, int, int]], device: str) -> dict[str, HostFacts]:
    """Worker -> its host. OptionError where a worker runs other versions than this process."""
    from distributed.versions import get_versions

    workers = [worker for worker, _, _ in used]

    async def on_all(function: Callable[..., Any], *arguments: Any, seconds: float = tuning.ASK_SECONDS) -> list[Any]:
        calls = (call(client, worker, function, *arguments, seconds=seconds) for worker in workers)
        return await asyncio.gather(*calls)

    # Functions of this package cannot be called where it is missing or another one; Dask's and Python's own can.
    names = client.sync(on_all, socket.gethostname)
    there = [found["packages"] for found in client.sync(on_all, get_versions, _COMPARED)]
    here = get_versions(_COMPARED)["packages"]
    unlike = [
        f"{name} ({urlsplit(worker).hostname}): {package} {versions[package] or 'missing'}, {here[package]} here"
        for worker, name, versions in zip(workers, names, there, strict=True)
        for package in _COMPARED
        if comparable(package, versions[package] or "") != comparable(package, here[package] or "")
    ]
    host_of: dict[str, HostFacts] = {}
    if not unlike:
        host_of = dict(
            zip(workers, client.sync(on_all, dask_host.facts, device, seconds=tuning.DESCRIBE_SECONDS), strict=True)
        )
        own = source_digest()
        unlike = [f"{h}: alpa_explore with sources {h.code}, {own} here" for h in host_of.values() if h.code != own]
    if unlike:
        raise OptionError(
            "The hosts run other versions than this process",
            found="; ".join(dict.fromkeys(unlike)),
            remedy="Install the same ones there, and start the workers again.",
        )
    return host_of


def listen(
    client: Any,
    name: str,
    used: list[tuple[str, int, int]],
    host_of: Mapping[str, HostFacts],
    ports: tuple[int, ...] | None,
) -> dict[str, int]:
    """Worker -> the port where its host listens: that of rank 0 is of `ports`. OptionError, ExecutorError."""
    port_of: dict[str, int] = {}

    async def one(worker: str, first: int) -> int | str:
        here = ports if first == 0 else None
        found: int | str = await call(client, worker, dask_host.open_share, name, host_of[worker].address, here)
        return found

    async def everywhere() -> list[int | str]:
        return await asyncio.gather(*(one(worker, first) for worker, first, _ in used))

    for (worker, _, _), found in zip(used, client.sync(everywhere), strict=True):
        if isinstance(found, str):
            raise _no_port(host_of[worker], found, ports)
        port_of[worker] = found
    return port_of


def check_reachable(client: Any, host_of: Mapping[str, HostFacts], port_of: Mapping[str, int]) -> None:
    """ExecutorError, with the names of both, where a host cannot connect to another one."""
    faults = client.sync(unreached_pairs, client, host_of, port_of)
    if faults:
        loopback = any(ipaddress.ip_address(host.address).is_loopback for host in host_of.values())
        raise ExecutorError(
            "Some hosts cannot reach each other, though the scheduler reaches all",
            found=several(faults),
            remedy="Start the workers with --host and an address of their network."
            if loopback
            else "Open the ports between them, look at their links, or leave a host out.",
        )


async def unreached_pairs(client: Any, host_of: Mapping[str, HostFacts], port_of: Mapping[str, int]) -> list[str]:
    """'node0 (10.0.0.1) → node1 (10.0.0.2): no answer' for each host that cannot connect to another one."""
    places = {worker: (host.address, port_of[worker]) for worker, host in host_of.items()}
    host_at = {places[worker]: host for worker, host in host_of.items()}

    async def one(worker: str) -> list[str]:
        others = [place for place in dict.fromkeys(places.values()) if place != places[worker]]
        found = await call(client, worker, dask_host.unreached, others)
        return [f"{host_of[worker]} → {host_at[place]}: {reason}" for place, reason in found.items()]

    return [fault for of_worker in await asyncio.gather(*map(one, host_of)) for fault in of_worker]


def several(faults: list[str]) -> str:
    """The first of some faults, and how many more there are."""
    return "; ".join(faults[:6]) + (f"; and {len(faults) - 6} more" if len(faults) > 6 else "")


async def forget_run(client: Any, name: str, workers: Sequence[str], lost: Collection[str] = ()) -> None:
    """Let workers remove what they have of a run, those that answer; the `lost` ones are told, not waited for."""

    async def one(worker: str) -> None:
        seconds = tuning.LOST_SECONDS if worker in lost else tuning.WORKER_GONE_SECONDS
        await execution.call(client, worker, dask_host.forget, name, seconds=seconds)

    await asyncio.gather(*map(one, workers), return_exceptions=True)


def _attached(used: list[tuple[str, int, int]], host_of: Mapping[str, HostFacts]) -> int:
    """The devices that the workers have for their ranks."""
    wanted: dict[str, int] = {}
    there: dict[str, int] = {}
    for worker, _, count in used:
        host = host_of[worker]
        wanted[host.machine] = wanted.get(host.machine, 0) + count
        there[host.machine] = max(host.devices, there.get(host.machine, 0))
    return sum(min(there[machine], count) for machine, count in wanted.items())


def _no_port(host: HostFacts, problem: str, ports: tuple[int, ...] | None) -> Exception:
    if problem == "in use" and ports:
        text = f"{ports[0]}" if len(ports) == 1 else f"{ports[0]} to {ports[-1]}"
        return OptionError(
            "All ports where the ranks may meet are in use",
            found=f"{text} on {host}",
            remedy="Give other ones: --ports FIRST-LAST (ports=), or leave it out for any that is free.",
        )
    return ExecutorError(
        "A host cannot listen for the others",
        found=f"{host}: {problem}",
        remedy="Start its worker with --host and an address of its network.",
    )


def by_address(worker: str) -> tuple[int, int, str, int]:
    """Addresses by number, names behind them."""
    parts = urlsplit(worker)
    host = parts.hostname or worker
    try:
        address = ipaddress.ip_address(host)
        return address.version, int(address), "", parts.port or 0
    except ValueError:
        return 9, 0, host, parts.port or 0


def hosts_left(
    scheduler: Any, device: str, nodes: int, devices_per_node: int, lost: tuple[str, ...] = ()
) -> tuple[int, int, tuple[str, ...], str]:
    """(number of nodes, devices of each, their workers, the hosts in words) to go on with: `nodes` of
    `devices_per_node`, or fewer or smaller ones where not so much is left.

    The workers `lost` did not answer a moment ago. ExecutorError where no host is left, or no scheduler answers.
    """
    with connected(scheduler) as client:
        try:
            found: dict[str, HostFacts] = client.sync(usable, client, device, lost)
        except (OSError, TimeoutError) as error:
            raise ExecutorError(
                "The Dask scheduler does not answer", found=f"{type(error).__name__} {error}", remedy="Look at its log."
            ) from error
    workers_of: dict[str, list[str]] = defaultdict(list)
    for worker in sorted(found, key=by_address):
        workers_of[found[worker].address].append(worker)
    devices_of = {
        address: devices_per_node
        if device == "cpu"
        else sum({found[w].machine: found[w].devices for w in workers}.values())
        for address, workers in workers_of.items()
    }
    most = max(devices_of.values(), default=0)
    # Of fewer devices than the plan has, a power of two: few tensors can be divided by 5 or 7.
    per_node = devices_per_node if most >= devices_per_node else 1 << most.bit_length() >> 1
    chosen = [address for address, devices in devices_of.items() if devices >= per_node > 0][:nodes]
    if not chosen:
        raise ExecutorError("No host is left", found="no Dask worker answers", remedy="Start workers, and --resume.")
    count = min(per_node, *(len(workers_of[address]) for address in chosen))
    workers = tuple(worker for address in chosen for worker in workers_of[address][:count])
    return len(chosen), per_node, workers, ", ".join(str(found[workers_of[address][0]]) for address in chosen)


async def usable(client: Any, device: str, lost: tuple[str, ...]) -> dict[str, HostFacts]:
    """Worker -> its host, for all that answer and reach each other."""

    async def ask(worker: str, function: Callable[..., Any], *arguments: Any) -> Any:
        seconds = tuning.ASK_LEFT_SECONDS if worker in waited_for else tuning.LOST_SECONDS
        with suppress(ExecutorError):
            return await execution.call(client, worker, function, *arguments, seconds=seconds)

    listed = list(await asyncio.wait_for(client.nthreads(), tuning.ASK_SECONDS))
    waited_for = set(listed) - set(lost) or set(listed)
    facts = await asyncio.gather(*(ask(worker, dask_host.facts, device) for worker in listed))
    left = {worker: host for worker, host in zip(listed, facts, strict=True) if host is not None}
    # Each worker listens at the port of its address: can the others connect to it?
    place_of = {worker: (host.address, urlsplit(worker).port or 0) for worker, host in left.items()}
    places = list(place_of.values())
    answers = await asyncio.gather(*(ask(worker, dask_host.unreached, places) for worker in left))
    faults = {
        (worker, other)
        for worker, unreached in zip(left, answers, strict=True)
        for other in left
        if worker != other and (unreached is None or place_of[other] in unreached)
    }
    return {worker: left[worker] for worker in reaching_all(sorted(left, key=by_address), faults)}
