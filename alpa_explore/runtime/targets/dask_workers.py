"""Target `dask`: the workers of a Dask cluster start the ranks, with one agent per worker.

Ranks are assigned in order to the workers, sorted by address, so that a stage is on as few machines as possible. With
one worker per GPU (dask-cuda) each has one rank, otherwise all have the same number. No shared file system is needed:
a worker that does not see the folder of the run gets the files of its ranks, and what they write is copied back. Ranks
communicate through the interface that holds the address by which the scheduler knows the worker, unless the worker's
own GLOO_SOCKET_IFNAME or NCCL_SOCKET_IFNAME says otherwise. Before anything is started, versions are compared and every
host must have reached every other one.
"""

import asyncio
import contextlib
import json
import secrets
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from alpa_explore.errors import ExecutorError
from alpa_explore.execution.client import call as ask
from alpa_explore.runtime import tuning
from alpa_explore.runtime.folder import REQUESTED, WHOLE, said
from alpa_explore.runtime.reports import events, read_heartbeat
from alpa_explore.runtime.targets import dask_host
from alpa_explore.runtime.targets.dask_cluster import (
    call,
    check_reachable,
    connected,
    deal_ranks,
    described,
    forget_run,
    listen,
    several,
    unreached_pairs,
)
from alpa_explore.runtime.targets.dask_host import Answer, HostFacts, socket_variables
from alpa_explore.runtime.targets.mirror import Mirror, Pace

_LOOK = "Look at the log of the worker."


@dataclass(slots=True, kw_only=True, eq=False)
class WorkerRanks:
    """What one worker has of a run."""

    worker: str
    first: int
    count: int
    host: HostFacts
    mirror: Mirror
    pace: Pace = field(default_factory=Pace)
    """Of what the worker sends."""
    heard: float = field(default_factory=time.monotonic)
    """When the worker last answered."""
    known: float = field(default_factory=time.monotonic)
    """When the scheduler last knew the worker."""
    outcome: dict[str, Any] | None = None
    lost: bool = False
    """Whether the worker does not answer any more."""
    error: Exception | None = None
    """What went wrong here, not there: a full disk."""

    def __str__(self) -> str:
        return f"{self.worker} on {self.host.name}"


def silence(
    share: WorkerRanks, *, now: float, scheduler_heard: float, connected: bool
) -> tuple[bool, str, str, str] | None:
    """(whether its worker is lost, what, found, remedy) where a share must be given up at `now`, else None.

    `scheduler_heard`: when the scheduler last answered; `connected`: whether its connection is open. Seconds of one
    clock.
    """
    silent = now - scheduler_heard
    if silent > tuning.WORKER_LOST_SECONDS or (silent > tuning.WORKER_GONE_SECONDS and not connected):
        return False, "The Dask scheduler is gone", f"no answer for {silent:.0f} s", "Look at its log."
    if scheduler_heard - share.known > tuning.WORKER_GONE_SECONDS:
        return True, f"The Dask worker {share} is gone", "it left the cluster while its ranks ran", _LOOK
    if (silent := now - share.heard) > tuning.WORKER_LOST_SECONDS:
        found = f"for {silent:.0f} s, while the scheduler does: its link is cut, or its host hangs"
        return True, f"The Dask worker {share} does not answer", found, _LOOK
    return None


class DaskRanks:
    """The ranks of a run, started by workers."""

    def __init__(
        self,
        folder: Path,
        world: int,
        scheduler: Any,
        device: str = "cpu",
        ports: tuple[int, ...] | None = None,
        only: tuple[str, ...] | None = None,
    ) -> None:
        """Send the job and start the agents. `ports`: where rank 0 may listen for the others; `only`: these workers.

        OptionError where all of `ports` are in use; ExecutorError where workers do not answer or cannot reach each
        other.
        """
        self.folder = folder
        self._connection = contextlib.ExitStack()
        self._client = self._connection.enter_context(connected(scheduler))
        self._device = device
        self._name = f"alpa-explore-{secrets.token_hex(6)}"
        self._shares: list[WorkerRanks] = []
        self._tasks: list[Future[None]] = []
        self._stopping = self._ended = self._asked_to_stop = False
        self._scheduler_heard = time.monotonic()
        self._cut: dict[str, Any] | None = None
        """The failure, where two hosts cannot reach each other any more."""
        try:
            used = deal_ranks(list(only or self._client.nthreads()), world)
            host_of = described(self._client, used, device)
            self._shares = [
                WorkerRanks(worker=worker, first=first, count=count, host=host_of[worker], mirror=Mirror(folder))
                for worker, first, count in used
            ]
            self._start(ports)
        except BaseException:
            self._forget()
            raise

    def poll(self) -> dict[str, Any] | None:
        """How the run ended; None while it goes on."""
        for share in self._shares:
            if share.error is not None:
                raise share.error
        self._judge()
        outcomes = [share.outcome for share in self._shares]
        if any(outcome is not None and outcome["state"] != "done" for outcome in outcomes):
            self._stopping = True
        ended = [outcome for outcome in outcomes if outcome is not None]
        if len(ended) < len(outcomes):
            return None
        # Hosts stop one after the other, and the ranks of the last ones lose their connections.
        failed = [outcome for outcome in ended if outcome["state"] == "failed" and not self._asked_to_stop]
        # The error of a rank that lost its connection follows from the failure of another rank.
        if cause := self._cut or next(iter(sorted(failed, key=self._follows)), None):
            return {**cause, "lost": self._lost}
        return {"state": "done" if all(o["state"] == "done" for o in ended) else "stopped"}

    def stop(self) -> None:
        """End the ranks; returns when they are gone."""
        if self._ended:
            return
        if not any(share.outcome is not None and share.outcome["state"] == "failed" for share in self._shares):
            self._asked_to_stop = True
        self._stopping = True
        deadline = time.monotonic() + 2 * tuning.STOP_SECONDS
        while time.monotonic() < deadline and any(s.outcome is None for s in self._shares):
            self._judge()
            time.sleep(tuning.AGENT_POLL_SECONDS)
        for share in self._shares:
            if share.outcome is None:
                share.lost = True
                share.outcome = self._failure(f"The Dask worker {share} did not stop", "its ranks may still run")
                self._asked_to_stop = False
        self._forget()

    def _judge(self) -> None:
        """End the share of a worker of which nothing is heard any more."""
        now, connected = time.monotonic(), self._client.status == "running"
        for share in self._shares:
            if share.outcome is None and (
                told := silence(share, now=now, scheduler_heard=self._scheduler_heard, connected=connected)
            ):
                share.lost, what, found, remedy = told
                share.outcome = self._failure(what, found, remedy)

    def _start(self, ports: tuple[int, ...] | None) -> None:
        shares = self._shares
        used, host_of = [(s.worker, s.first, s.count) for s in shares], {s.worker: s.host for s in shares}
        port_of = listen(self._client, self._name, used, host_of, ports)
        check_reachable(self._client, host_of, port_of)
        hosts = {str(share.first + i): str(share.host) for share in shares for i in range(share.count)}
        (self.folder / "hosts.json").write_text(json.dumps(hosts, ensure_ascii=False), encoding="utf-8")
        token = secrets.token_hex(16)
        (self.folder / "job" / "token").write_text(token, encoding="utf-8")
        sees = self._all(lambda _: (dask_host.use_folder, self._name, str(self.folder), token))
        self._send([share for share in shares if not sees[share.worker]])
        first = shares[0].host.address
        meet = f"tcp://{f'[{first}]' if ':' in first else first}:{port_of[shares[0].worker]}"
        self._all(
            lambda s: (
                dask_host.start,
                self._name,
                s.first,
                s.count,
                meet,
                socket_variables(s.host.interface, s.host.address),
                self._gpus(s),
            )
        )
        for share in shares:
            share.heard = share.known = time.monotonic()
        self._scheduler_heard = time.monotonic()
        loop = self._client.loop.asyncio_loop
        self._tasks = [asyncio.run_coroutine_threadsafe(self._talk(share), loop) for share in shares]
        self._tasks += [asyncio.run_coroutine_threadsafe(self._ask(share), loop) for share in shares]
        self._tasks += [asyncio.run_coroutine_threadsafe(w, loop) for w in (self._ask_scheduler(), self._try_links())]

    def _send(self, shares: list[WorkerRanks]) -> None:
        """Send the files of their ranks to workers that do not see the folder."""
        needed = json.loads((self.folder / "job" / "files.json").read_text(encoding="utf-8"))

        async def to(share: WorkerRanks) -> None:
            ranks = range(share.first, share.first + share.count)
            pace = Pace()
            files = dict.fromkeys(path for rank in ranks for path in needed[str(rank)])
            for path in ("run.json", "hosts.json", *files):
                with (self.folder / path).open("rb") as stream:
                    offset = 0
                    while (data := stream.read(size := pace.limit)) or not offset:
                        began = time.monotonic()
                        await self._call(share.worker, dask_host.put, self._name, path, offset, data)
                        offset += len(data)
                        pace.note(len(data), time.monotonic() - began)
                        if len(data) < size:
                            break

        async def to_all() -> None:
            await asyncio.gather(*map(to, shares))

        self._client.sync(to_all)

    def _gpus(self, share: WorkerRanks) -> str | None:
        """The GPUs of a worker that sees those of another worker, too; None where it takes the first it sees."""
        same = [s for s in self._shares if s.host.machine == share.host.machine]
        if self._device != "cuda" or same == [share]:
            return None
        first = sum(s.count for s in same if s.first < share.first)
        seen = share.host.visible or tuple(map(str, range(share.host.devices)))
        return ",".join(seen[first : first + share.count])

    def _all(self, call: Callable[[WorkerRanks], tuple[Any, ...]]) -> dict[str, Any]:
        """Worker -> the result of a call there, at the same time on all."""

        async def gathered() -> list[Any]:
            return await asyncio.gather(*(self._call(share.worker, *call(share)) for share in self._shares))

        found = self._client.sync(gathered)
        return {share.worker: result for share, result in zip(self._shares, found, strict=True)}

    async def _call(self, worker: str, function: Callable[..., Any], *arguments: Any) -> Any:
        return await call(self._client, worker, function, *arguments)

    async def _talk(self, share: WorkerRanks) -> None:
        """Fetch what is new on a worker, until its ranks have ended and all is here."""
        while share.outcome is None and not self._ended:
            began = time.monotonic()
            try:
                words = {word: said(self.folder, word) for word in (REQUESTED, WHOLE)}
                about = self._name, share.pace.limit, dict(share.mirror.seen), self._stopping, words
                exchange, patience = dask_host.exchange, tuning.PATIENT_SECONDS
                answer: Answer = await ask(self._client, share.worker, exchange, *about, seconds=patience)
            except ExecutorError:  # `poll` says so when it has lasted
                await asyncio.sleep(tuning.EXCHANGE_SECONDS)
                continue
            share.heard = share.known = time.monotonic()
            share.pace.note(sum(len(piece.data) for piece in answer.pieces), share.heard - began)
            try:
                for piece in answer.pieces if share.error is None else ():
                    share.mirror.write(piece)
            except Exception as error:  # raised by `poll`; here until the ranks have ended
                share.error, self._stopping = error, True
            if answer.outcome is not None and (share.error is not None or not answer.more):
                share.outcome = answer.outcome
                if answer.outcome["state"] == "restarted":
                    share.outcome = self._failure(f"The Dask worker {share} was restarted", "its ranks ended with it")
            elif not answer.more:
                await asyncio.sleep(tuning.EXCHANGE_SECONDS)

    async def _ask(self, share: WorkerRanks) -> None:
        """Note that a worker is there. It also says to the worker that the launcher is."""
        while share.outcome is None and not self._ended:
            with contextlib.suppress(ExecutorError):  # `poll` says so when it has lasted
                about, patience = (self._name, self._stopping), tuning.WORKER_LOST_SECONDS
                await ask(self._client, share.worker, dask_host.alive, *about, seconds=patience)
                share.heard = share.known = time.monotonic()
            await asyncio.sleep(tuning.ALIVE_SECONDS)

    async def _ask_scheduler(self) -> None:
        """Note which workers the scheduler knows."""
        while not self._ended:
            try:
                there = await asyncio.wait_for(self._client.nthreads(), tuning.WORKER_LOST_SECONDS)
            except (OSError, TimeoutError):  # `poll` says so when it has lasted
                await asyncio.sleep(tuning.EXCHANGE_SECONDS)
                continue
            now = self._scheduler_heard = time.monotonic()
            for share in self._shares:
                if share.worker in there:
                    share.known = now
            await asyncio.sleep(2 * tuning.EXCHANGE_SECONDS)

    async def _try_links(self) -> None:
        """When the ranks have made no progress for a while, try the links between their hosts."""
        ranks = [share.first + i for share in self._shares for i in range(share.count)]
        port_of = {share.worker: urlsplit(share.worker).port or 0 for share in self._shares}
        host_of = {share.worker: share.host for share in self._shares}
        before, since = -1, time.monotonic()
        while not self._stopping:
            await asyncio.sleep(tuning.HEARTBEAT_SECONDS)
            now = sum(seen.instructions for rank in ranks if (seen := read_heartbeat(self.folder, rank)))
            if now != before:
                before, since = now, time.monotonic()
            elif time.monotonic() - since > tuning.SUSPECT_SECONDS:
                since = time.monotonic()
                try:
                    faults = await unreached_pairs(self._client, host_of, port_of)
                except ExecutorError:  # a worker that does not answer is told by `poll`
                    continue
                if faults:
                    self._cut = self._failure(
                        "Two hosts of the run cannot reach each other any more",
                        several(faults),
                        "Look at their link; the scheduler reaches both.",
                    )
                    self._stopping = True

    def _forget(self) -> None:
        """Let the workers remove what they have of the run, and close what was opened here."""
        self._ended = True
        for task in self._tasks:
            task.cancel()

        if self._client.status == "running":
            workers = [share.worker for share in self._shares]
            self._client.sync(forget_run, self._client, self._name, workers, self._lost)
        self._connection.close()

    @property
    def _lost(self) -> tuple[str, ...]:
        return tuple(share.worker for share in self._shares if share.lost)

    def _follows(self, outcome: dict[str, Any]) -> bool:
        rank = outcome["rank"]
        return rank is not None and any(e["event"] == "error" and e["follows"] for e in events(self.folder, rank))

    def _failure(self, what: str, found: str, remedy: str = _LOOK) -> dict[str, Any]:
        return {"state": "failed", "rank": None, "what": what, "found": found, "remedy": remedy, "may_pass": True}
