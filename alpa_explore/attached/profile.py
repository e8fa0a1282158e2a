"""`ax.profile`: time the kernels of a plan on this machine, or on the hosts of a Dask scheduler.

All hosts share the list of kernels: each times a few of them, then gets the next. One worker of a host measures, since
the devices of a host share its memory and its cores.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from typing import Any

from alpa_explore.arguments import checked
from alpa_explore.attached import tuning
from alpa_explore.attached.attach import find_hosts
from alpa_explore.attached.connection import scheduler_address
from alpa_explore.attached.hosts import Host
from alpa_explore.calibration.profiling.profile import (
    Profile,
    ProfileProgress,
    Profiling,
    checked_store,
    device,
    profile_here,
    timed_or_why,
)
from alpa_explore.calibration.profiling.timing import NotTimed, Timed
from alpa_explore.cluster.kernel_store import KernelStore
from alpa_explore.errors import ExecutorError, OptionError
from alpa_explore.execution.client import call_each, client_of, on_thread
from alpa_explore.plans.plan import Plan


@checked("plan")
def profile(
    plan: Plan,
    *,
    seconds: float = 30.0,
    scheduler: Any = None,
    kind: str | None = None,
    store: KernelStore | None = None,
    progress: ProfileProgress | None = None,
    cancel: threading.Event | None = None,
    allow_remote: bool = False,
) -> Profile:
    """Time kernels of `plan` and of its search for about so many `seconds`, and add them to `store`. Those of the plan
    come first, by their share of its time, then those of the plans that are best with what was found. Without a
    `scheduler` ('tcp://host:8786', or a dask Client) a device of this machine is measured, of `kind` 'cpu' or 'cuda'
    (default: CUDA if available).

    OptionError where there is no such device, where it is not that of the plan, where the hosts have unlike devices, or
    the store is of another device; a store of another driver or torch is used, and names both. ExecutorError where the
    scheduler cannot be reached, or no host is left. A host that fails is left out.
    """
    if scheduler is None:
        return profile_here(plan, seconds=seconds, kind=kind, store=store, progress=progress, cancel=cancel)
    if kind is not None:
        raise OptionError(
            "What a scheduler's hosts have is measured",
            found=f"kind={kind!r} with a scheduler",
            remedy="Leave out the kind (--device), or the scheduler to measure here.",
        )
    address = scheduler_address(scheduler, allow_remote=allow_remote)

    with client_of(address) as client:
        hosts = [host for host in client.sync(find_hosts, client) if not host.problem]
        kind = _kind_of(hosts)
        workers = [host.workers[0] for host in hosts]
        about, patience = (on_thread, device, kind), tuning.DESCRIBE_SECONDS
        told = client.sync(call_each, client, workers[:1], *about, seconds=patience)[workers[0]]
        if not isinstance(told, dict):
            raise ExecutorError(
                f"{hosts[0].name} does not say what its device is",
                found=str(told)[:300],
                remedy="Look at the log of its worker.",
            )
        told |= {"host": "; ".join(host.name for host in hosts)}
        profiling = Profiling(plan, checked_store(plan, store, told), seconds, progress, cancel, kind=kind)
        client.sync(_share, client, workers, kind, profiling)
        return profiling.result()


def _kind_of(hosts: Sequence[Host]) -> str:
    """The kind of the device that all hosts have."""
    names = {host.device for host in hosts}
    if len(names) != 1:
        raise OptionError(
            "A store is of one kind of device",
            found=f"the hosts have {', '.join(sorted(names)) or 'no devices'}",
            remedy="Attach workers on hosts with equal devices.",
        )
    return hosts[0].kind


async def _share(client: Any, workers: Sequence[str], kind: str, profiling: Profiling) -> None:
    """Have the workers time what waits. ExecutorError where all of them fail."""
    waiting, next_is_found, faults = profiling.waiting(), asyncio.Lock(), []

    async def serve(worker: str) -> None:
        while True:
            async with next_is_found:  # one iterator for all: none times what another has. It may plan anew.
                wanted = await asyncio.to_thread(next, waiting, None)
            if wanted is None:
                return
            work = (timed_or_why, wanted, kind)
            found = (await call_each(client, [worker], on_thread, *work, seconds=tuning.KERNEL_SECONDS))[worker]
            if not isinstance(found, Timed | NotTimed):
                faults.append(f"{worker}: {found}")
                return
            profiling.add(wanted, found)

    await asyncio.gather(*(serve(worker) for worker in workers))
    if len(faults) == len(workers):
        raise ExecutorError(
            "No host is left that could time kernels", found=faults[0][:300], remedy="Look at the logs of the workers."
        )
