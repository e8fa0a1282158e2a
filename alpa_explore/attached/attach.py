"""`ax.attach`: find the hosts of a Dask scheduler, measure their links, and make a cluster of them."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

from alpa_explore.attached.calibrations import calibrate_on
from alpa_explore.attached.cluster_of import cluster_of
from alpa_explore.attached.connection import connected, scheduler_address
from alpa_explore.attached.find import find_hosts
from alpa_explore.attached.hosts import Host, Versions, differences_from_here
from alpa_explore.attached.links import MeasuredLink
from alpa_explore.attached.measure import measure_links
from alpa_explore.attached.worker_side import versions
from alpa_explore.cluster import Cluster
from alpa_explore.errors import ClusterError
from alpa_explore.execution.progress import ProgressCallback

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

    async def work() -> Attached:
        async with connected(address) as client:
            now = datetime.now(UTC).isoformat(timespec="seconds")
            there = await find_hosts(client, hosts)
            attached = Attached(scheduler=address, here=Versions(**versions()), hosts=there, measured_at=now)
            if found is not None:
                found(attached)
            able = [host for host in there if not host.problem]
            if links and able:
                attached = replace(attached, links=await measure_links(client, able, progress=progress, cancel=cancel))
            return attached

    return _alone(work)


def calibrate(scheduler: Any, host: Host, devices: int, *, shapes: bool = True, allow_remote: bool = False) -> Path:
    """Calibrate so many devices of a host on one of its workers and keep the device file; its path.

    It takes one to three minutes; less without `shapes`, which are products of other shapes than squares, attention
    and the host. ExecutorError where it fails.
    """
    address = scheduler_address(scheduler, allow_remote=allow_remote)

    async def work() -> Path:
        async with connected(address) as client:
            return await calibrate_on(client, host, devices, shapes=shapes)

    return _alone(work)


def _alone(work: Callable[[], Coroutine[Any, Any, _T]]) -> _T:
    """Run a coroutine on an event loop of its own: a notebook's thread has one that runs already."""
    with ThreadPoolExecutor(1, thread_name_prefix="alpa-explore attach") as thread:
        return thread.submit(lambda: asyncio.run(work())).result()
