"""Measure the links between hosts and inside them, by TCP transfers from worker to worker.

Every ordered pair of hosts is measured, as a link may be slow or closed in one direction only. A host takes part in one
transfer at a time: rounds of disjoint pairs, first one direction, then the other.
"""

from __future__ import annotations

import asyncio
import secrets
import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from alpa_explore.attached import tuning, worker_side
from alpa_explore.attached.connection import call
from alpa_explore.attached.hosts import Host
from alpa_explore.attached.links import MeasuredLink
from alpa_explore.errors import CancelledError
from alpa_explore.execution.progress import Progress, ProgressCallback

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
    total, start = sum(len(pairs) for pairs in rounds), time.monotonic()
    found: dict[tuple[str, str], MeasuredLink] = {}

    def report() -> None:
        if progress is not None:
            elapsed = time.monotonic() - start
            progress(Progress(pass_name=PASS_NAME, done=len(found), total=total, elapsed_seconds=elapsed))

    report()
    for pairs in rounds:
        if cancel is not None and cancel.is_set():
            raise CancelledError("Attaching was cancelled", found="Cancel", remedy="Attach again to measure all links.")
        links = await asyncio.gather(*(_measure(client, source, target) for source, target in pairs))
        found |= {(link.source, link.target): link for link in links}
        report()
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
    port = (await call(client, [listener], worker_side.listen, target.address, secret, seconds=tuning.CONNECT_SECONDS))[
        listener
    ]
    if not isinstance(port, int):
        return replace(link, fault=f"{target.name} cannot listen: {port}")
    sent = (
        await call(client, [sender], worker_side.transferred, target.address, port, secret, seconds=_TRANSFER_SECONDS)
    )[sender]
    if not isinstance(sent, dict):
        return replace(link, fault=f"the worker of {source.name} failed: {sent}")
    if "fault" in sent:
        return replace(link, fault=str(sent["fault"]))
    points = tuple((int(size), float(seconds)) for size, seconds in sent["points"])
    return replace(link, latency_seconds=float(sent["latency_seconds"]), points=points)
