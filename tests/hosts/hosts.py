"""Hosts that are emulated on this machine: network namespaces on a switch, with a Dask worker on each if wanted.

    with Hosts(2, rate="100mbit") as hosts:
        address = hosts.dask()                      # a scheduler on host 0, a worker on each; tcp://198.18.7.1:8786
        hosts.run(0, [sys.executable, "-m", "alpa_explore.cli", "launch", …])
        hosts.cut(1)                                # its cable is pulled
        hosts.restore(1)
        assert hosts.processes(1) == []

Host i has the address `hosts.address(i)` on its interface e0, and an IPv6 address. As on many real machines, its name
leads to the loopback (127.0.1.1), and it has another interface, docker0, with the same useless address on every host.
This machine is on the switch, too (`hosts.here`): a test can connect to what runs on the hosts. The addresses are of
198.18.0.0/15 and 2001:2::/48, which are reserved for such tests. It needs root. What a killed test leaves behind is
removed when the next one starts hosts.
"""

from __future__ import annotations

import contextlib
import fcntl
import ipaddress
import itertools
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import psutil

NETWORK = ipaddress.ip_network("198.18.0.0/15")
NETWORK6 = ipaddress.ip_network("2001:2::/48")
DECOY = "172.17.0.1"
"""The address of docker0 on every host."""
SCHEDULER_PORT = 8786
SECONDS = 60.0
"""Longest wait for a Dask scheduler or worker; all start at once on few cores."""
_PREFIX = re.compile(r"ax\d+n\d+")
_NUMBERS = itertools.count(1)


def missing() -> str | None:
    """What this machine lacks for emulated hosts, and how to get it; None where they can be made."""
    if sys.platform != "linux":
        return f"emulated hosts are network namespaces, which {sys.platform} has not"
    if absent := [tool for tool in ("ip", "tc", "unshare", "mount") if shutil.which(tool) is None]:
        return f"{', '.join(absent)} not found: apt-get install iproute2 util-linux"
    if os.geteuid() != 0:
        return "network namespaces need root: run this tier with sudo"
    name = f"ax{os.getpid()}probe"
    try:
        _ip("netns", "add", name)
        try:
            _ip("-n", name, "link", "add", "v0", "type", "veth", "peer", "name", "v1")
            _ip("-n", name, "link", "add", "b0", "type", "bridge")
            _tbf(name, "v0", "100mbit")
        finally:
            _ip("netns", "delete", name)
    except subprocess.CalledProcessError as error:
        return f"this machine makes no network namespaces ({error.stderr.strip()})"
    return None


class Hosts:
    """Some hosts, numbered from 0. Use it in `with`, or call `up` and `down`."""

    def __init__(self, count: int, *, rate: str | None = None, names: Sequence[str] | None = None) -> None:
        """`rate` ("100mbit") limits what each host sends; `names` are the hosts' own names, by default node0, …"""
        self.count, self._rate = count, rate
        self.names = tuple(names or (f"node{i}" for i in range(count)))
        self._prefix = f"ax{os.getpid()}n{next(_NUMBERS)}"
        self._subnet = 0
        self._processes: list[tuple[int, subprocess.Popen[Any]]] = []
        self.folder = Path()
        """For logs and Dask's local directories; removed by `down`."""

    def __enter__(self) -> Hosts:
        self.up()
        return self

    def __exit__(self, *_error: object) -> None:
        self.down()

    # Addresses and names

    @property
    def here(self) -> str:
        """The address of this machine for the hosts."""
        return str(NETWORK[self._subnet * 256 + 254])

    def address(self, host: int) -> str:
        """The IPv4 address of a host."""
        return str(NETWORK[self._subnet * 256 + host + 1])

    def address6(self, host: int) -> str:
        """The IPv6 address of a host."""
        return str(NETWORK6[(self._subnet << 64) + host + 1])

    def namespace(self, host: int) -> str:
        """The name of a host's network namespace."""
        return f"{self._prefix}h{host}"

    # Up and down

    def up(self) -> None:
        """Make the hosts and the switch."""
        self.folder = Path(tempfile.mkdtemp(prefix=f"{self._prefix}-"))
        try:
            with _alone():
                sweep()
                self._subnet = _free_subnet()
                self._make()
        except BaseException:
            self.down()
            raise

    def _make(self) -> None:
        switch, port = self._switch, f"{self._prefix}e"
        _ip("netns", "add", switch)
        _ip("-n", switch, "link", "add", "br0", "type", "bridge")
        _ip("-n", switch, "link", "set", "br0", "up")
        # This machine is on the switch, too.
        _ip("link", "add", port, "type", "veth", "peer", "name", "here", "netns", switch)
        _ip("-n", switch, "link", "set", "here", "master", "br0", "up")
        _ip("addr", "add", f"{self.here}/24", "dev", port)
        _ip("addr", "add", f"{NETWORK6[(self._subnet << 64) + 254]}/64", "dev", port, "nodad")
        _ip("link", "set", port, "up")
        for host, name in enumerate(self.names):
            space = self.namespace(host)
            _ip("netns", "add", space)
            _ip("-n", space, "link", "set", "lo", "up")
            _ip("-n", space, "link", "add", "e0", "type", "veth", "peer", "name", f"port{host}", "netns", switch)
            _ip("-n", switch, "link", "set", f"port{host}", "master", "br0", "up")
            _ip("-n", space, "link", "add", "docker0", "type", "veth", "peer", "name", "container0")
            for end in ("container0", "docker0"):
                _ip("-n", space, "link", "set", end, "up")
            _ip("-n", space, "addr", "add", f"{DECOY}/16", "dev", "docker0")
            _ip("-n", space, "addr", "add", f"{self.address(host)}/24", "dev", "e0")
            _ip("-n", space, "addr", "add", f"{self.address6(host)}/64", "dev", "e0", "nodad")
            _ip("-n", space, "link", "set", "e0", "up")
            if self._rate:
                self.limit(host, self._rate)
            (self.folder / f"hosts-{host}").write_text(f"127.0.0.1 localhost\n::1 localhost\n127.0.1.1 {name}\n")

    def down(self) -> None:
        """End all processes of the hosts, and remove all that `up` made."""
        for _, process in self._processes:
            for stream in (process.stdin, process.stdout, process.stderr):
                if stream is not None:
                    stream.close()
        _remove(self._prefix)
        for _, process in self._processes:
            process.wait()
        self._processes.clear()
        shutil.rmtree(self.folder, ignore_errors=True)

    # Processes

    def popen(
        self,
        host: int,
        command: Sequence[str | os.PathLike[str]],
        *,
        env: Mapping[str, str] | None = None,
        hide: Sequence[str | os.PathLike[str]] = (),
        **options: Any,
    ) -> subprocess.Popen[Any]:
        """Start a command on a host; its pid is that of the command itself. `options` are those of Popen.

        `env` is added to this process's environment. The folders in `hide` are empty for the command and its children,
        and what they write there is seen by nobody else: a host without a shared file system.
        """
        script = [f"hostname {shlex.quote(self.names[host])}"]
        script += [f"mount --bind {shlex.quote(str(self.folder / f'hosts-{host}'))} /etc/hosts"]
        script += [f"mount -t tmpfs hidden {shlex.quote(str(folder))}" for folder in hide]
        inner = ["unshare", "--uts", "--mount", "sh", "-ec", "; ".join([*script, 'exec "$@"']), "sh"]
        process = subprocess.Popen(
            ["ip", "netns", "exec", self.namespace(host), *inner, *map(str, command)],
            env=os.environ | {"PYTHONPATH": os.pathsep.join(p for p in sys.path if p), **(env or {})},
            **options,
        )
        self._processes.append((host, process))
        return process

    def run(
        self, host: int, command: Sequence[str | os.PathLike[str]], *, timeout: float = 120.0, **options: Any
    ) -> subprocess.CompletedProcess[str]:
        """Run a command on a host to its end, and return its output as text; it is killed after `timeout` seconds."""
        streams: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        with self.popen(host, command, text=True, **streams | options) as process:
            try:
                out, err = process.communicate(timeout=timeout)
            except BaseException:
                process.kill()
                raise
        return subprocess.CompletedProcess(process.args, process.returncode, out, err)

    def processes(self, host: int) -> list[psutil.Process]:
        """The processes on a host."""
        listed = subprocess.run(
            ["ip", "netns", "pids", self.namespace(host)], capture_output=True, text=True, check=True
        )
        found = []
        for pid in map(int, listed.stdout.split()):
            with contextlib.suppress(psutil.NoSuchProcess):
                process = psutil.Process(pid)
                if process.status() != psutil.STATUS_ZOMBIE:
                    found.append(process)
        return found

    def ranks(self, host: int) -> list[psutil.Process]:
        """The agents and ranks on a host."""
        found = []
        for process in self.processes(host):
            with contextlib.suppress(psutil.NoSuchProcess):
                if "alpa_explore.runtime.ranks.agent" in process.cmdline():
                    found.append(process)
        return found

    def kill(self, host: int) -> None:
        """Kill all processes on a host at once: its power is cut."""
        for process in self.processes(host):
            with contextlib.suppress(psutil.NoSuchProcess):
                process.send_signal(signal.SIGKILL)

    # Dask

    def dask(self, workers: Sequence[int] | None = None, **options: Any) -> str:
        """Start a scheduler on host 0 and workers on the given hosts (by default one on each); the address.

        `options` are those of `worker`. All start at once; returns when the scheduler knows them.
        """
        address = self.scheduler(0)
        started = [self.worker(i, address, wait=False, **options) for i in (workers or range(self.count))]
        for process in started:
            self.wait_for_worker(process)
        return address

    def scheduler(self, host: int = 0, *, port: int = SCHEDULER_PORT, six: bool = False) -> str:
        """Start a Dask scheduler on a host; its address. `six`: by IPv6."""
        at = self._at(host, six)
        command = [sys.executable, "-m", "distributed.cli.dask_scheduler", "--no-dashboard", "--host", at]
        log = self.folder / f"scheduler-{host}-{port}.log"
        with log.open("wb") as stream:
            process = self.popen(host, [*command, "--port", str(port)], stdout=stream, stderr=stream)
        _wait_for("Scheduler at:", log, process)
        return f"tcp://{at}:{port}"

    def worker(
        self,
        host: int,
        scheduler: str,
        *,
        name: str | None = None,
        nanny: bool = False,
        six: bool = False,
        wait: bool = True,
        arguments: Sequence[str] = (),
        env: Mapping[str, str] | None = None,
        hide: Sequence[str | os.PathLike[str]] = (),
    ) -> subprocess.Popen[Any]:
        """Start a Dask worker on a host, with a local directory of its own. See `popen` for `env` and `hide`.

        Its log is `worker_log` of the process. Unless `wait` is False, returns when the scheduler knows it.
        """
        at = self._at(host, six)
        number = len(self._processes)
        command = [sys.executable, "-m", "distributed.cli.dask_worker", scheduler, "--no-dashboard", "--host", at]
        command += ["--nthreads", "1", "--memory-limit", "0", "--local-directory", str(self.folder / f"local-{number}")]
        command += ["--nanny" if nanny else "--no-nanny", *(["--name", name] if name else []), *arguments]
        with (self.folder / f"worker-{number}.log").open("wb") as stream:
            process = self.popen(host, command, env=env, hide=hide, stdout=stream, stderr=stream)
        if wait:
            self.wait_for_worker(process)
        return process

    def worker_log(self, process: subprocess.Popen[Any]) -> Path:
        """The log of a worker."""
        number = next(n for n, (_, p) in enumerate(self._processes) if p is process)
        return self.folder / f"worker-{number}.log"

    def _at(self, host: int, six: bool) -> str:
        return f"[{self.address6(host)}]" if six else self.address(host)

    def wait_for_worker(self, process: subprocess.Popen[Any]) -> None:
        """Wait until the scheduler knows a worker."""
        _wait_for("Registered to:", self.worker_log(process), process)

    # Links

    def limit(self, host: int, rate: str | None) -> None:
        """Limit what a host sends ("100mbit"); None: no limit."""
        if rate is None:
            subprocess.run(["tc", "-n", self.namespace(host), "qdisc", "del", "dev", "e0", "root"], check=False)
        else:
            _tbf(self.namespace(host), "e0", rate)

    def cut(self, host: int, other: int | None = None) -> None:
        """Pull the cable of a host, or let only what it and `other` send each other be lost."""
        if other is None:
            _ip("-n", self._switch, "link", "set", f"port{host}", "down")
            return
        for one, two in ((host, other), (other, host)):
            for at in (self.address(two), self.address6(two)):
                nobody = ["lladdr", "02:00:00:00:00:01", "nud", "permanent"]
                _ip("-n", self.namespace(one), "neigh", "replace", at, *nobody, "dev", "e0")

    def restore(self, host: int, other: int | None = None) -> None:
        """Undo `cut`."""
        if other is None:
            _ip("-n", self._switch, "link", "set", f"port{host}", "up")
            return
        for one, two in ((host, other), (other, host)):
            for at in (self.address(two), self.address6(two)):
                _ip("-n", self.namespace(one), "neigh", "del", at, "dev", "e0")

    @property
    def _switch(self) -> str:
        return f"{self._prefix}sw"


@contextlib.contextmanager
def _alone() -> Iterator[None]:
    """No other process makes hosts meanwhile: they would take the same subnet, or remove the same namespaces."""
    with Path(tempfile.gettempdir(), "alpa-explore-hosts.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def sweep() -> None:
    """Remove the hosts of processes that have ended without removing them."""
    for prefix in sorted({m[0] for space in _namespaces() if (m := _PREFIX.match(space))}):
        if not psutil.pid_exists(int(prefix.removeprefix("ax").partition("n")[0])):
            _remove(prefix)


def _remove(prefix: str) -> None:
    spaces = [space for space in _namespaces() if re.fullmatch(prefix + r"(sw|h\d+)", space)]
    for space in spaces:
        listed = subprocess.run(["ip", "netns", "pids", space], capture_output=True, text=True, check=False)
        for pid in map(int, listed.stdout.split()):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
    for space in spaces:
        _ip("netns", "delete", space)
    # It goes with the switch, but a moment later.
    subprocess.run(["ip", "link", "delete", f"{prefix}e"], capture_output=True, check=False)


def _namespaces() -> list[str]:
    folder = Path("/run/netns")
    return [entry.name for entry in folder.iterdir()] if folder.is_dir() else []


def _free_subnet() -> int:
    """The number of a /24 of NETWORK in which this machine has no address."""
    listed = subprocess.run(["ip", "-4", "-o", "addr"], capture_output=True, text=True, check=True).stdout
    taken = {m[1] for m in re.finditer(r"inet ((?:\d+\.){3})", listed)}
    start = os.getpid() % 500
    return next(n for n in [*range(start, 500), *range(start)] if str(NETWORK[n * 256]).removesuffix("0") not in taken)


def _tbf(space: str, interface: str, rate: str) -> None:
    # After a pause 1 ms of the rate may pass at once, at least some packets: with more a message of a pipeline would
    # take less time than the rate says. 50 ms and a segment of 64 KiB may wait.
    a_second = float(rate.removesuffix("mbit")) * 1e6 / 8
    burst, waiting = max(8 * 1024, int(a_second * 1e-3)), 64 * 1024 + int(a_second * 0.05)
    limits = ["rate", rate, "burst", str(burst), "limit", str(waiting)]
    command = ["tc", "-n", space, "qdisc", "replace", "dev", interface, "root", "tbf", *limits]
    subprocess.run(command, capture_output=True, text=True, check=True)


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], capture_output=True, text=True, check=True)


def _wait_for(text: str, log: Path, process: subprocess.Popen[Any]) -> None:
    """Wait until a process has written `text` to its log."""
    for _ in _until(SECONDS):
        if text in log.read_text(errors="replace"):
            return
        if process.poll() is not None:
            break
    raise AssertionError(f"{shlex.join(map(str, process.args))}\n{log.read_text(errors='replace')}")


def _until(seconds: float) -> Iterator[None]:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        yield
        time.sleep(0.05)
