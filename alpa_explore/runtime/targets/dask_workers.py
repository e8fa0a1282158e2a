"""Target `dask`: the workers of a Dask cluster start the ranks, with one agent per worker.

Ranks are assigned in order to the workers, sorted by address, so that a stage is on as few machines as possible. With
one worker per GPU (dask-cuda) each has one rank, otherwise all have the same number. Every worker must see the folder
of the run. The workers end their ranks when a stop file appears in that folder, and when the program that started the
run is gone: it renews another file while it watches the run.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from alpa_explore.errors import ExecutorError, OptionError
from alpa_explore.runtime import tuning
from alpa_explore.runtime.reports import events
from alpa_explore.runtime.targets.local import (
    agent_command,
    agent_outcome,
    available_devices,
    check_available,
    environment,
)

STOP_FILE, WATCHED_FILE = "stop", "watched"


def deal_ranks(addresses: list[str], world: int) -> list[tuple[str, int, int]]:
    """(worker, its first rank, number of ranks), for as few workers as needed.

    OptionError where the ranks cannot be divided evenly.
    """
    if not addresses:
        raise OptionError(
            "The Dask cluster has no workers", found="0 workers", remedy="Start workers, one on each machine."
        )
    used = sorted(addresses, key=lambda a: (urlsplit(a).hostname or a, urlsplit(a).port or 0))[:world]
    if world % len(used):
        raise OptionError(
            "The ranks cannot be divided evenly among the workers",
            found=f"{world} ranks for {len(used)} workers",
            remedy="Start as many workers as machines, or one for each device of the plan.",
        )
    count = world // len(used)
    return [(address, i * count, count) for i, address in enumerate(used)]


def check_workers(scheduler: Any, world: int, device: str) -> None:
    """OptionError where `world` ranks cannot be divided over the workers, or these have too few devices."""
    client, opened_here = connect(scheduler)
    try:
        used = deal_ranks(list(client.nthreads()), world)
        attached_to = client.run(available_devices, device, workers=[address for address, _, _ in used])
        check_available(world, sum(min(attached_to[address], count) for address, _, count in used), device)
    finally:
        if opened_here:
            client.close()


class DaskRanks:
    """The ranks of a run, started by workers."""

    def __init__(self, folder: Path, world: int, scheduler: Any) -> None:
        self.folder = folder
        self._client, self._own = connect(scheduler)
        self._touched = 0.0
        self._watch()
        self._shares = deal_ranks(list(self._client.nthreads()), world)
        first = self._shares[0][0]
        meet = self._submit(_meeting_place, first, urlsplit(first).hostname or "127.0.0.1").result()
        self._agents = [
            (address, self._submit(_run_agent, address, str(folder), rank, count, meet))
            for address, rank, count in self._shares
        ]
        self._seen: dict[str, float] = {}
        """Worker -> when the scheduler last had a connection to it."""
        self._ended = False

    def poll(self) -> dict[str, Any] | None:
        """How the run ended; None while it goes on."""
        self._watch()
        now, connected = time.monotonic(), self._client.nthreads()
        for address, agent in self._agents:
            if agent.done() or address in connected:
                self._seen[address] = now
            elif now - self._seen.get(address, now) > tuning.WORKER_GONE_SECONDS:
                return self._failure(f"The Dask worker {address} is gone", "it left the cluster while its ranks ran")
            else:
                self._seen.setdefault(address, now)
        if not all(run.done() for _, run in self._agents):
            if any(run.done() and self._outcome(a, run)["state"] != "done" for a, run in self._agents):
                (self.folder / STOP_FILE).touch()
            return None
        outcomes = [self._outcome(address, agent) for address, agent in self._agents]
        failed = [o for o in outcomes if o["state"] == "failed"]
        # The error of a rank that lost its connection follows from the failure of another rank.
        for outcome in sorted(failed, key=self._follows):
            return outcome
        return {"state": "stopped" if any(o["state"] == "stopped" for o in outcomes) else "done"}

    def stop(self) -> None:
        """End the ranks; returns when they are gone."""
        if self._ended:
            return
        self._ended = True
        (self.folder / STOP_FILE).touch()
        deadline = time.monotonic() + 2 * tuning.STOP_SECONDS
        while time.monotonic() < deadline and not all(run.done() for _, run in self._agents):
            time.sleep(0.1)
        if self._own:
            self._client.close()

    def _watch(self) -> None:
        if time.monotonic() - self._touched > tuning.WATCHED_BEAT_SECONDS:
            self._touched = time.monotonic()
            (self.folder / WATCHED_FILE).write_text(str(self._touched), encoding="utf-8")

    def _submit(self, function: Any, worker: str, *arguments: Any) -> Any:
        return self._client.submit(
            function, *arguments, workers=[worker], allow_other_workers=False, pure=False, retries=0
        )

    def _outcome(self, address: str, run: Any) -> dict[str, Any]:
        if run.status == "finished":
            outcome: dict[str, Any] = run.result()
            return outcome
        return self._failure(f"The Dask worker {address} could not start its ranks", f"{run.status}: {run.exception()}")

    def _follows(self, outcome: dict[str, Any]) -> bool:
        rank = outcome["rank"]
        return rank is not None and any(e["event"] == "error" and e["follows"] for e in events(self.folder, rank))

    def _failure(self, what: str, found: str) -> dict[str, Any]:
        remedy = "Look at the log of the worker."
        return {"state": "failed", "rank": None, "what": what, "found": found, "remedy": remedy}


def connect(scheduler: Any) -> tuple[Any, bool]:
    """(client, whether it was opened here) for a client, a cluster or an address."""
    from distributed import Client

    if isinstance(scheduler, Client):
        return scheduler, False
    if scheduler is None:
        raise OptionError(
            "The target dask needs a cluster",
            found="no scheduler",
            remedy="Give scheduler= a Dask client or an address; on the command line --scheduler tcp://…",
        )
    try:
        return Client(scheduler, timeout="5s", set_as_default=False), True  # type: ignore[no-untyped-call]  # dask has few annotations
    except (OSError, ValueError) as error:
        raise ExecutorError(
            "The Dask scheduler cannot be reached",
            found=f"{scheduler}: {error}",
            remedy="Give the address that `dask scheduler` prints.",
        ) from error


def _meeting_place(host: str) -> str:
    """On the worker of rank 0: the address where the ranks connect to each other."""
    with socket.socket() as probe:
        probe.bind((host, 0))
        return f"tcp://{host}:{probe.getsockname()[1]}"


def _run_agent(folder: str, first: int, count: int, meet: str) -> dict[str, Any]:
    """On a worker: run its ranks from start to end; how they ended."""
    home = Path(folder)
    if not (home / "run.json").exists():
        return {
            "state": "failed",
            "rank": None,
            "what": "A Dask worker does not see the folder of the run",
            "found": f"{folder} on {socket.gethostname()}",
            "remedy": "Name a folder that all machines share: --folder, folder=.",
        }
    surroundings = environment()
    if not meet.startswith(("tcp://127.", "tcp://localhost")):
        surroundings = {k: v for k, v in surroundings.items() if k != "GLOO_SOCKET_IFNAME" or k in os.environ}
    with (home / f"agent-{first}.log").open("wb") as log:
        agent = subprocess.Popen(
            agent_command(home, first, count, meet),
            env=surroundings,
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    beat, seen = "", time.monotonic()
    while agent.poll() is None:
        time.sleep(0.2)
        now = (home / WATCHED_FILE).read_text(encoding="utf-8")
        if now != beat:
            beat, seen = now, time.monotonic()
        if (home / STOP_FILE).exists() or time.monotonic() - seen > tuning.WATCHED_SECONDS:
            assert agent.stdin is not None, "it is a pipe"
            agent.stdin.close()  # the agent ends its ranks and itself
            try:
                agent.wait(tuning.STOP_SECONDS)
            except subprocess.TimeoutExpired:  # the agent does not read its standard input yet
                os.killpg(agent.pid, signal.SIGKILL)
                agent.wait()
                return {"state": "stopped"}
    return agent_outcome(home, first, agent.returncode)
