"""What runs on a Dask worker for the target `dask`: describe the host, receive a job, run its agent, send its reports.

The launcher calls these functions on the worker's event loop (`Client.run`), so no slot of the worker is taken, and a
worker that computes answers as well. What a run has on a worker is a `HostedRun`, kept with the worker. Without a
shared file system the files of the run are copied into the worker's local directory, and what the ranks write there is
sent back by `exchange`. The agent is ended when the launcher has called neither it nor `alive` for
`tuning.WATCHED_SECONDS`; when the worker dies, the agent's standard input closes, and it ends.
"""

import asyncio
import contextlib
import errno
import ipaddress
import os
import shutil
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from alpa_explore.execution.hosts import machine, network
from alpa_explore.runtime import tuning
from alpa_explore.runtime.folder import said, say
from alpa_explore.runtime.targets.local import agent_command, agent_outcome, available_devices, environment
from alpa_explore.runtime.targets.mirror import FilePiece, Seen, discard_seen, news
from alpa_explore.runtime.targets.network import interface_of
from alpa_explore.store.code_version import source_digest

CHECKPOINTS = "checkpoints"
"""The folder of a run whose files a host does not need any more when the launcher has them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostFacts:
    """The host of a worker."""

    name: str
    """Its own name, which two hosts may share."""
    address: str
    """The IP address by which the scheduler knows the worker."""
    interface: str | None
    """The network interface that holds this address; None where none does, as behind a translation of addresses."""
    machine: str
    """Equal for workers that share devices, whatever names and addresses they go by."""
    devices: int
    visible: tuple[str, ...]
    """The GPUs that CUDA_VISIBLE_DEVICES names; empty where it is not set."""
    code: str
    """Digest of the sources of alpa_explore."""

    def __str__(self) -> str:
        return f"{self.name} ({self.address})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a worker sends to the launcher."""

    pieces: list[FilePiece]
    more: bool
    """Whether pieces are left."""
    outcome: dict[str, Any] | None
    """How the ranks of the worker ended; None while they run."""


async def facts(device: str, *, dask_worker: Any) -> HostFacts:
    """Describe the host of a worker."""
    address = _ip_of(dask_worker.address)
    return HostFacts(
        name=socket.gethostname(),
        address=address,
        interface=interface_of(address),
        machine=_machine(device),
        devices=await asyncio.to_thread(available_devices, device),
        visible=tuple(filter(None, os.environ.get("CUDA_VISIBLE_DEVICES", "").split(","))),
        code=await asyncio.to_thread(source_digest),
    )


class HostedRun:
    """The part of a run that a worker has."""

    def __init__(self, name: str, local_directory: str) -> None:
        self.copy = Path(local_directory) / name
        self.folder = self.copy
        """The folder of the run: the copy, or the launcher's own where the worker sees it."""
        self.listener: socket.socket | None = None
        self.outcome: dict[str, Any] | None = None
        self.heard = time.monotonic()
        self.stop = threading.Event()
        self._agent: subprocess.Popen[bytes] | None = None

    def start(self, first: int, count: int, meet: str, sockets: dict[str, str], gpus: str | None) -> None:
        """Start the agent, and the thread that watches it."""
        surroundings = environment(sockets) | ({} if gpus is None else {"CUDA_VISIBLE_DEVICES": gpus})
        listening: tuple[int, ...] = ()
        if self.listener is not None and first == 0:
            listening = (self.listener.fileno(),)
            meet += f"?listen={listening[0]}"
        with (self.folder / f"agent-{first}.log").open("wb") as log:
            self._agent = subprocess.Popen(
                agent_command(self.folder, first, count, meet),
                env=surroundings,
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                start_new_session=True,
                pass_fds=listening,
            )
        self.close_listener()
        self.heard = time.monotonic()
        threading.Thread(target=self._watch, args=(self._agent, first), name="alpa-explore agent", daemon=True).start()

    def close_listener(self) -> None:
        """The agent has its own copy."""
        if self.listener is not None:
            self.listener.close()
            self.listener = None

    def forget(self) -> None:
        """End the agent if it runs, and remove the copy of the folder."""
        self.stop.set()
        self.close_listener()
        shutil.rmtree(self.copy, ignore_errors=True)

    def unwatched(self, now: float) -> bool:
        """Whether at `now` the launcher has been silent for so long that nobody watches the run any more."""
        return now - self.heard > tuning.WATCHED_SECONDS

    def _watch(self, agent: subprocess.Popen[bytes], first: int) -> None:
        while agent.poll() is None:
            if self.stop.wait(tuning.AGENT_POLL_SECONDS) or self.unwatched(time.monotonic()):
                assert agent.stdin is not None, "it is a pipe"
                agent.stdin.close()  # the agent ends its ranks and itself
                try:
                    agent.wait(tuning.STOP_SECONDS)
                except subprocess.TimeoutExpired:  # the agent does not read its standard input yet
                    os.killpg(agent.pid, signal.SIGKILL)
                    agent.wait()
                    self.outcome = {"state": "stopped"}
                    return
        self.outcome = agent_outcome(self.folder, first, agent.returncode)


def open_share(name: str, address: str, ports: tuple[int, ...] | None, *, dask_worker: Any) -> int | str:
    """Make the share of a run, and listen at the address of this host, for the first ranks to meet there.

    The port, of the given ones or any; or why there is none.
    """
    share = dask_worker.extensions[name] = HostedRun(name, dask_worker.local_directory)
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    for port in ports or (0,):
        try:
            share.listener = socket.create_server((address, port), family=family, backlog=tuning.LISTEN_BACKLOG)
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                continue
            return f"{address} port {port}: {error.strerror or error}"
        return int(share.listener.getsockname()[1])
    return "in use"


async def unreached(targets: Sequence[tuple[str, int]]) -> dict[tuple[str, int], str]:
    """Of some (address, port), those that cannot be connected to from this host, and why."""

    async def attempt(target: tuple[str, int]) -> str | None:
        try:
            _, writer = await asyncio.wait_for(asyncio.open_connection(*target), tuning.REACH_SECONDS)
        except TimeoutError:
            return f"no answer within {tuning.REACH_SECONDS:.0f} s"
        except OSError as error:
            return (os.strerror(error.errno) if error.errno else str(error)).lower()
        writer.close()
        return None

    found = await asyncio.gather(*map(attempt, targets))
    return {target: reason for target, reason in zip(targets, found, strict=True) if reason is not None}


def use_folder(name: str, folder: str, token: str, *, dask_worker: Any) -> bool:
    """Whether this worker sees the launcher's folder, in which `job/token` is; else make the folder of the copy."""
    share: HostedRun = dask_worker.extensions[name]
    try:
        seen = (Path(folder) / "job" / "token").read_text(encoding="utf-8") == token
    except OSError:
        seen = False
    if seen:
        share.folder = Path(folder)
    else:
        (share.copy / "job").mkdir(parents=True, mode=0o700)
    return seen


def put(name: str, path: str, offset: int, data: bytes, *, dask_worker: Any) -> None:
    """Write bytes of a file of the copy."""
    share: HostedRun = dask_worker.extensions[name]
    target = share.copy / path
    target.parent.mkdir(parents=True, exist_ok=True)
    with target.open("r+b" if offset else "wb") as stream:
        stream.seek(offset)
        stream.write(data)


def start(
    name: str, first: int, count: int, meet: str, sockets: dict[str, str], gpus: str | None, *, dask_worker: Any
) -> None:
    """Start the agent of `count` ranks, which see only the GPUs `gpus` where that is given."""
    dask_worker.extensions[name].start(first, count, meet, sockets, gpus)


def alive(name: str, stop: bool, *, dask_worker: Any) -> None:
    """The launcher still watches, though a large answer may be under way; it may say `stop`."""
    share: HostedRun | None = dask_worker.extensions.get(name)
    if share is not None:
        share.heard = time.monotonic()
        if stop:
            share.stop.set()


def exchange(
    name: str, limit: int, seen: Seen, stop: bool, words: Mapping[str, int | None], *, dask_worker: Any
) -> Answer:
    """Send at most `limit` bytes of what is new to the launcher, and take its word: `stop`, that it still watches, and
    its `words` about checkpoints with their steps."""
    share: HostedRun | None = dask_worker.extensions.get(name)
    if share is None:
        return Answer(pieces=[], more=False, outcome={"state": "restarted"})
    share.heard = time.monotonic()
    if stop:
        share.stop.set()
    outcome = share.outcome  # before the files are listed: what they have then is all
    if share.folder != share.copy:
        return Answer(pieces=[], more=False, outcome=outcome)
    with contextlib.suppress(OSError):  # a full disk, which the agent reports
        for word, step in words.items():
            if step is not None and said(share.folder, word) != step:
                say(share.folder, word, step)
    discard_seen(share.folder, seen, CHECKPOINTS)
    pieces, more = news(share.folder, seen, limit)
    return Answer(pieces=pieces, more=more, outcome=outcome)


def forget(name: str, *, dask_worker: Any) -> None:
    """The run is over: end what still runs, and remove the copy of its folder."""
    share: HostedRun | None = dask_worker.extensions.pop(name, None)
    if share is not None:
        share.forget()


def socket_variables(interface: str | None, address: str) -> dict[str, str]:
    """The environment by which gloo and NCCL use the interface with this address, and its family."""
    found = {} if interface is None else {"GLOO_SOCKET_IFNAME": interface, "NCCL_SOCKET_IFNAME": f"={interface}"}
    return found | ({"NCCL_SOCKET_FAMILY": "AF_INET6"} if ":" in address else {})


def _ip_of(dask_address: str) -> str:
    """The IP address of a worker's address 'tcp://[::1]:4000', whose host may be a name."""
    host = dask_address.partition("://")[2].rpartition(":")[0].strip("[]")
    try:
        return str(ipaddress.ip_address(host.partition("%")[0]))
    except ValueError:
        return socket.gethostbyname(host)


def _machine(device: str) -> str:
    """The kernel; for GPUs also the network and the chosen devices: containers and dask-cuda have GPUs of their own."""
    if device == "cpu":
        return machine()
    return f"{machine()} {network()} {os.environ.get('CUDA_VISIBLE_DEVICES', '')}"
