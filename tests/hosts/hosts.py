"""Hosts that are emulated on this machine: network namespaces on a switch, with a Dask worker on each if wanted.

    with Hosts(2, rate="100mbit") as hosts:
        address = hosts.dask()                      # a scheduler on host 0, a worker on each; tcp://198.18.7.1:8786
        hosts.run(0, [sys.executable, "-m", "alpa_explore.cli", "launch", …])
        hosts.cut(1)                                # its cable is pulled
        hosts.reset()                               # as after `dask`: whole links, the scheduler and its workers

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
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import psutil

from tests.hosts.forked_python import AGENT
from tests.waiting import until

NETWORK = ipaddress.ip_network("198.18.0.0/15")
NETWORK6 = ipaddress.ip_network("2001:2::/48")
DECOY = "172.17.0.1"
"""The address of docker0 on every host."""
SCHEDULER_PORT = 8786
_PREFIX = re.compile(r"ax\d+n\d+")
_NUMBERS = itertools.count(1)


def missing() -> str | None:
    """What this machine lacks for emulated hosts, and how to get it; None where they can be made."""
    if sys.platform != "linux":
        return f"emulated hosts are network namespaces, which {sys.platform} has not"
    if absent := [tool for tool in ("ip", "tc", "unshare", "nsenter", "mount") if shutil.which(tool) is None]:
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
        self._dask: list[subprocess.Popen[Any]] = []
        """The scheduler and the workers that `dask` started; `reset` keeps them."""
        self._dask_options: dict[str, Any] = {}
        self._cut: set[tuple[int, int | None]] = set()
        self._unplugged: set[int] = set()
        """Hosts whose cable was pulled since `reset`: what was sent meanwhile may come late, or never."""
        self._limited: set[int] = set()
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
            process.kill()  # one that had not entered its host yet was not found there
            process.wait()
        self._processes.clear()
        self._dask.clear()
        shutil.rmtree(self.folder, ignore_errors=True)

    def reset(self) -> None:
        """Make the hosts as `dask` left them, whatever a test has done: links, limits and processes.

        A worker that was killed, or whose cable was pulled, is started again; without the scheduler all are.
        """
        for pair in list(self._cut):
            self.restore(*pair)
        for host in list(self._limited):
            self.limit(host, self._rate)
        living = {process.pid for host in range(self.count) for process in self.processes(host)}
        # One that was killed may be gone from its host before it can be waited for.
        lost = {h for h, worker in enumerate(self._dask[1:]) if h in self._unplugged or worker.pid not in living}
        all_lost = bool(self._dask) and (self._dask[0].pid not in living or 0 in self._unplugged)
        for process in self._dask if all_lost else [self._dask[1 + host] for host in lost]:
            process.kill()
            process.wait()
        for process in (process for host in range(self.count) for process in self.processes(host)):
            if process.pid not in {process.pid for process in self._dask}:
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.kill()
        self._unplugged.clear()
        if all_lost:
            self.dask(**self._dask_options)
        elif lost:
            self._again(lost)

    def _again(self, lost: set[int]) -> None:
        """Start the workers of these hosts again; returns when the scheduler knows all workers that live, and no
        other."""
        from distributed import Client  # half a second, which `missing` has no need of

        for host in lost:
            self._dask[1 + host] = self.worker(host, self.scheduler_address, wait=False, **self._dask_options)
        for process in self._dask[1:]:
            self.wait_for_worker(process)
        logs = [self.worker_log(process).read_text() for process in self._dask[1:]]
        living = {re.findall(r"Start worker at: +(\S+)", log)[0] for log in logs}
        with Client(self.scheduler_address, set_as_default=False) as client:
            until(lambda: set(client.nthreads()) == living, lambda: f"{set(client.nthreads())}, not {living}")

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
        self, host: int, command: Sequence[str | os.PathLike[str]], **options: Any
    ) -> subprocess.CompletedProcess[str]:
        """Run a command on a host to its end, and return its output as text."""
        streams: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        with self.popen(host, command, text=True, **streams | options) as process:
            try:
                out, err = process.communicate()
            except BaseException:
                process.kill()
                raise
        return subprocess.CompletedProcess(process.args, process.returncode, out, err)

    def processes(self, host: int) -> list[psutil.Process]:
        """The processes on a host."""
        return _processes_in(self.namespace(host))

    def ranks(self, host: int) -> list[psutil.Process]:
        """The agents and ranks on a host."""
        found = []
        for process in self.processes(host):
            with contextlib.suppress(psutil.NoSuchProcess):
                if process.name() == AGENT or process.cmdline()[1:4] == [
                    "-P",
                    "-m",
                    "alpa_explore.runtime.ranks.agent",
                ]:
                    found.append(process)
        return found

    def kill(self, host: int) -> None:
        """Kill all processes on a host at once, and wait until they are gone: its power is cut."""
        for process in self.processes(host):
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        until(lambda: not self.processes(host), lambda: self.processes(host))

    # Dask

    @property
    def scheduler_address(self) -> str:
        """Where `dask` started the scheduler."""
        return f"tcp://{self.address(0)}:{SCHEDULER_PORT}"

    def dask(self, **options: Any) -> str:
        """Start a scheduler on host 0 and a worker on each host; the scheduler's address.

        `options` are those of `worker`. All start at once; returns when the scheduler knows them.
        """
        address, self._dask_options = self.scheduler(0), options
        self._dask = [self._processes[-1][1]]
        self._dask += [self.worker(host, address, wait=False, **options) for host in range(self.count)]
        for process in self._dask[1:]:
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
        agents: Path | None = None,
        env: Mapping[str, str] | None = None,
        hide: Sequence[str | os.PathLike[str]] = (),
    ) -> subprocess.Popen[Any]:
        """Start a Dask worker on a host, with a local directory of its own. See `popen` for `env` and `hide`.

        `agents`: the program that starts its agents, by default Python (forked_python.py).
        Its log is `worker_log` of the process. Unless `wait` is False, returns when the scheduler knows it.
        """
        at = self._at(host, six)
        number = len(self._processes)
        text = (
            f"import sys; from distributed.cli import dask_worker; sys.executable = {str(agents or sys.executable)!r}"
        )
        command = [sys.executable, "-c", f"{text}; dask_worker.main()", scheduler, "--no-dashboard", "--host", at]
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

    @contextlib.contextmanager
    def small_disk(self, host: int, size: str) -> Iterator[Path]:
        """Give the worker that `dask` started on a host a disk of its own ("16m") for its local directory, and the
        agents that it starts; the path by which this machine sees it."""
        worker = self._dask[1 + host]
        number = next(n for n, (_, process) in enumerate(self._processes) if process is worker)
        (place,) = self.folder.glob(f"local-{number}/*/worker-*/")
        inside = ["nsenter", f"--mount=/proc/{worker.pid}/ns/mnt"]
        subprocess.run([*inside, "mount", "-t", "tmpfs", "-o", f"size={size}", "small", str(place)], check=True)
        try:
            yield Path(f"/proc/{worker.pid}/root{place}")
        finally:
            subprocess.run([*inside, "umount", "-l", str(place)], check=True)

    def _at(self, host: int, six: bool) -> str:
        return f"[{self.address6(host)}]" if six else self.address(host)

    def wait_for_worker(self, process: subprocess.Popen[Any]) -> None:
        """Wait until the scheduler knows a worker."""
        _wait_for("Registered to:", self.worker_log(process), process)

    # Links

    def limit(self, host: int, rate: str | None) -> None:
        """Limit what a host sends ("100mbit"); None: no limit."""
        (self._limited.discard if rate is None else self._limited.add)(host)
        if rate is None:
            subprocess.run(["tc", "-n", self.namespace(host), "qdisc", "del", "dev", "e0", "root"], check=False)
        else:
            _tbf(self.namespace(host), "e0", rate)

    def cut(self, host: int, other: int | None = None) -> None:
        """Pull the cable of a host, or let only what it and `other` send each other be lost."""
        self._cut.add((host, other))
        if other is None:
            self._unplugged.add(host)
            _ip("-n", self._switch, "link", "set", f"port{host}", "down")
            return
        for one, two in ((host, other), (other, host)):
            for at in (self.address(two), self.address6(two)):
                nobody = ["lladdr", "02:00:00:00:00:01", "nud", "permanent"]
                _ip("-n", self.namespace(one), "neigh", "replace", at, *nobody, "dev", "e0")

    def restore(self, host: int, other: int | None = None) -> None:
        """Undo `cut`."""
        self._cut.discard((host, other))
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
        for process in _processes_in(space):
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
    for space in spaces:
        _ip("netns", "delete", space)
    # It goes with the switch, but a moment later.
    subprocess.run(["ip", "link", "delete", f"{prefix}e"], capture_output=True, check=False)


def _namespaces() -> list[str]:
    folder = Path("/run/netns")
    return [entry.name for entry in folder.iterdir()] if folder.is_dir() else []


def _processes_in(space: str) -> list[psutil.Process]:
    """The processes in a network namespace, but those that have ended and are not waited for."""
    its, found = Path("/run/netns", space).stat().st_ino, []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            with contextlib.suppress(OSError, psutil.NoSuchProcess):  # it has ended meanwhile
                if (entry / "ns/net").stat().st_ino == its:
                    found.append(psutil.Process(int(entry.name)))
    return found


def _free_subnet() -> int:
    """The number of a /24 of NETWORK in which this machine has no address."""
    listed = subprocess.run(["ip", "-4", "-o", "addr"], capture_output=True, text=True, check=True).stdout
    taken = {m[1] for m in re.finditer(r"inet ((?:\d+\.){3})", listed)}
    start = os.getpid() % 500
    return next(n for n in [*range(start, 500), *range(start)] if str(NETWORK[n * 256]).removesuffix("0") not in taken)


def _tbf(space: str, interface: str, rate: str) -> None:
    # After a pause 1 ms of the rate may pass at once, at least some packets: with more a message of a pipeline would
    # take less time than the rate says. 50 ms and a segment of 64 KiB may wait.
    number, unit = rate[:-4], {"kbit": 1e3, "mbit": 1e6, "gbit": 1e9}[rate[-4:]]
    a_second = float(number) * unit / 8
    burst, waiting = max(8 * 1024, int(a_second * 1e-3)), 64 * 1024 + int(a_second * 0.05)
    limits = ["rate", rate, "burst", str(burst), "limit", str(waiting)]
    command = ["tc", "-n", space, "qdisc", "replace", "dev", interface, "root", "tbf", *limits]
    subprocess.run(command, capture_output=True, text=True, check=True)


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], capture_output=True, text=True, check=True)


def _wait_for(text: str, log: Path, process: subprocess.Popen[Any]) -> None:
    """Wait until a process has written `text` to its log."""

    def told() -> str:
        return f"{shlex.join(map(str, process.args))}\n{log.read_text(errors='replace')}"

    def written() -> bool:
        assert process.poll() is None, told()
        return text in log.read_text(errors="replace")

    until(written, told)
