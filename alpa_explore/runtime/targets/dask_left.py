"""Which hosts of a Dask cluster a run can go on with after a fault: those that answer and reach each other.

The scheduler may list a worker for minutes after its link was cut, so all are asked; those that the run has found lost
get less time. A worker with GPUs has those that it sees; a host without is taken for one node of the plan.
"""

import asyncio
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from alpa_explore.errors import ExecutorError
from alpa_explore.execution.quiet import quiet_client
from alpa_explore.runtime import tuning
from alpa_explore.runtime.targets import dask_host
from alpa_explore.runtime.targets.dask_cluster import by_address, connect
from alpa_explore.runtime.targets.dask_host import HostFacts


@dataclass(frozen=True, slots=True, kw_only=True)
class HostsLeft:
    """Equal nodes for a plan."""

    nodes: int
    devices_per_node: int
    workers: tuple[str, ...]
    names: str
    """The hosts, in words."""


def hosts_left(scheduler: Any, device: str, nodes: int, devices_per_node: int, lost: tuple[str, ...] = ()) -> HostsLeft:
    """The hosts to go on with: `nodes` of `devices_per_node`, or fewer or smaller ones where not so much is left.

    The workers `lost` did not answer a moment ago.

    ExecutorError where no host is left, or the scheduler does not answer.
    """
    with quiet_client():
        client, opened_here = connect(scheduler)
        try:
            found: dict[str, HostFacts] = client.sync(usable, client, device, lost)
        except (OSError, TimeoutError) as error:
            raise ExecutorError(
                "The Dask scheduler does not answer", found=f"{type(error).__name__} {error}", remedy="Look at its log."
            ) from error
        finally:
            if opened_here:
                client.close()
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
    return HostsLeft(
        nodes=len(chosen),
        devices_per_node=per_node,
        workers=tuple(worker for address in chosen for worker in workers_of[address][:count]),
        names=", ".join(str(found[workers_of[address][0]]) for address in chosen),
    )


async def usable(client: Any, device: str, lost: tuple[str, ...]) -> dict[str, HostFacts]:
    """Worker -> its host, for all that answer and reach each other."""

    async def ask(worker: str, function: Callable[..., Any], *arguments: Any) -> Any:
        try:
            running = client.run(function, *arguments, workers=[worker])
            seconds = tuning.ASK_LEFT_SECONDS if worker in waited_for else tuning.LOST_SECONDS
            return (await asyncio.wait_for(running, seconds))[worker]
        except (OSError, TimeoutError, KeyError):
            return None

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
    while faults:
        worst = max(left, key=lambda worker: (sum(worker in pair for pair in faults), by_address(worker)))
        del left[worst]
        faults = {pair for pair in faults if worst not in pair}
    return left
