"""Which schedulers may be connected to, and those that are started here.

Dask's messages are pickles: who connects to a scheduler trusts it with this account. So an address that anyone on the
Internet could have needs a word from the user; this machine and private networks do not, and neither does tls://, where
both sides show certificates.

`ssh:h1,h2` starts a scheduler on the first host and a worker on each, by dask's own SSHCluster (package asyncssh).
`slurm` starts a scheduler in this process's allocation, on this node, and a worker on each node by `srun`. Both end
with the `with` block. Anything else is the address of a scheduler that runs already.
"""

import contextlib
import importlib.util
import ipaddress
import logging
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from alpa_explore.attached import tuning
from alpa_explore.errors import ExecutorError, MissingPackageError, OptionError
from alpa_explore.execution.client import client_of

_SCHEMES = ("tcp", "tls", "ucx", "inproc", "ws", "wss")


def scheduler_address(scheduler: Any, *, allow_remote: bool = False) -> str:
    """The address of a scheduler: of a text 'tcp://host:8786' or 'host:8786', or of a dask Client or cluster.

    OptionError for a text of another form, and for an address outside this machine and private networks without
    `allow_remote`.
    """
    if not isinstance(scheduler, str):
        found = getattr(getattr(scheduler, "scheduler", None), "address", None) or getattr(
            scheduler, "scheduler_address", None
        )
        if not isinstance(found, str):
            raise OptionError(
                "Hosts are found by a Dask scheduler",
                found=repr(scheduler)[:80],
                remedy="Give its address, tcp://host:8786, or a dask Client.",
            )
        return found  # connected already
    address = scheduler.strip()
    if "://" not in address:
        address = f"tcp://{address}"
    parts = urlsplit(address)
    try:
        host, port = parts.hostname, parts.port
    except ValueError:
        host, port = None, None
    if parts.scheme not in _SCHEMES or not host or (port is None and parts.scheme != "inproc"):
        raise OptionError(
            "The address of a Dask scheduler is written tcp://HOST:PORT",
            found=repr(scheduler),
            remedy="Give the address that `dask scheduler` prints, such as tcp://127.0.0.1:8786.",
        )
    if parts.scheme not in ("tls", "wss", "inproc") and not allow_remote:
        _check_near(address, host)
    return address


def _check_near(address: str, host: str) -> None:
    try:
        found = {str(info[4][0]).partition("%")[0] for info in socket.getaddrinfo(host, None)}
    except OSError as error:
        raise ExecutorError(
            "The name of the scheduler's host is not known here",
            found=f"{address}: {error.strerror or error}",
            remedy="Give its IP address.",
        ) from error
    far = sorted(ip for ip in found if ipaddress.ip_address(ip).is_global)
    if far:
        raise OptionError(
            "The scheduler is neither on this machine nor on a private network",
            found=f"{address} is {', '.join(far)}",
            remedy="Dask's messages can run code here. If you trust it: --allow-remote (allow_remote=True), or tls://.",
        )


SSH, SLURM = "ssh:", "slurm"
_WORKER = ("--nthreads", "1", "--no-dashboard", "--memory-limit", "0", "--no-nanny")


@contextlib.contextmanager
def scheduler_of(where: str) -> Iterator[str]:
    """The address of the scheduler at `where`, started for the block where it names hosts or an allocation."""
    if where.startswith(SSH):
        with _over_ssh(where.removeprefix(SSH).removeprefix("//")) as address:
            yield address
    elif where == SLURM:
        with _in_allocation(os.environ) as address:
            yield address
    else:
        yield where


@contextlib.contextmanager
def _over_ssh(listed: str) -> Iterator[str]:
    hosts = [host.strip() for host in listed.split(",") if host.strip()]
    twice = sorted({host for host in hosts if hosts.count(host) > 1})
    if not hosts or twice:
        raise OptionError(
            "The hosts to be started over SSH must be named, each once",
            found=f"{', '.join(twice)} twice" if twice else repr(listed),
            remedy="For example ssh:h1,h2.",
        )
    if importlib.util.find_spec("asyncssh") is None:  # else SSHCluster fails with a traceback
        raise MissingPackageError(
            "Starting workers over SSH needs asyncssh", found="it is not installed", remedy="pip install asyncssh."
        )
    from distributed import SSHCluster

    logging.getLogger("distributed.deploy").setLevel(logging.WARNING)  # it repeats the logs of all workers
    try:
        # By default the scheduler would take the address of its host's name, which often is the loopback.
        address = socket.gethostbyname(hosts[0])
        if address.startswith("127.") and len(hosts) > 1:
            address = _address_towards(hosts[1])
        # The first host runs the scheduler, the others workers: so the first is listed twice.
        cluster = SSHCluster(
            [hosts[0], *hosts],
            worker_class="distributed.Worker",
            worker_options={"nthreads": 1, "memory_limit": 0, "dashboard": False},
            scheduler_options={"host": address, "port": 0, "dashboard": False, "dashboard_address": f"{address}:0"},
            remote_python=sys.executable,
        )
    except Exception as error:  # of asyncssh and of dask alike: unknown hosts, keys that are refused
        raise ExecutorError(
            "Workers could not be started over SSH",
            found=f"{', '.join(hosts)}: {error or type(error).__name__}",
            remedy="Check that `ssh HOST` works without a password, and that Python is at the same path there.",
        ) from error
    with contextlib.ExitStack() as ends:
        ends.callback(_close, cluster)
        client = ends.enter_context(client_of(cluster.scheduler_address))
        # Closing the cluster only ends the connections, after which some SSH servers leave the processes.
        ends.callback(client.shutdown)
        try:
            client.wait_for_workers(len(hosts), timeout=tuning.START_SECONDS)
        except TimeoutError as error:
            raise ExecutorError(
                "Not all workers that were started over SSH came",
                found=f"{len(client.nthreads())} of {len(hosts)} after {tuning.START_SECONDS:.0f} s",
                remedy=f"Check that all hosts reach {cluster.scheduler_address}, or name fewer.",
            ) from error
        yield cluster.scheduler_address


def _close(cluster: Any) -> None:
    with contextlib.suppress(OSError):  # the scheduler is gone already
        cluster.close(timeout=tuning.END_SECONDS)


@contextlib.contextmanager
def _in_allocation(given: Mapping[str, str]) -> Iterator[str]:
    """A scheduler on this node, and a worker on each node of the allocation."""
    nodes = allocated_nodes(given)
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as ends:
        log = Path(folder) / "scheduler.log"
        host = _own_address(nodes)
        scheduler = _start(ends, ["dask_scheduler", "--host", host, "--port", "0", "--no-dashboard"], [], log)
        address = _wait_for(scheduler, log, "Scheduler at:")
        srun = ["srun", f"--nodes={len(nodes)}", f"--ntasks={len(nodes)}", "--ntasks-per-node=1", "--export=ALL"]
        workers = _start(ends, ["dask_worker", address, *_WORKER], srun, Path(folder) / "workers.log")
        _wait_for(scheduler, log, "Register worker", len(nodes), besides=(workers, Path(folder) / "workers.log"))
        yield address


def allocated_nodes(given: Mapping[str, str]) -> list[str]:
    """The names of the nodes in SLURM_JOB_NODELIST, by `scontrol`. OptionError outside an allocation."""
    listed = given.get("SLURM_JOB_NODELIST", "")
    if not listed:
        raise OptionError(
            "There is no Slurm allocation here",
            found="SLURM_JOB_NODELIST is not set",
            remedy="Call this inside `salloc` or an sbatch script.",
        )
    for tool in ("scontrol", "srun"):
        if shutil.which(tool) is None:
            raise OptionError("A tool of Slurm is missing", found=f"no {tool} on the PATH", remedy="Load Slurm first.")
    done = subprocess.run(["scontrol", "show", "hostnames", listed], capture_output=True, text=True, check=False)
    if done.returncode:
        raise ExecutorError(
            "scontrol does not know the nodes of the allocation",
            found=f"{listed}: {done.stderr.strip()}",
            remedy="Check SLURM_JOB_NODELIST.",
        )
    return done.stdout.split()


def _own_address(nodes: list[str]) -> str:
    """The address of this node that leads to the others: a loopback address only if it is alone."""
    others = [node for node in nodes if node.partition(".")[0] != socket.gethostname().partition(".")[0]]
    return _address_towards(others[0]) if others else "127.0.0.1"


def _address_towards(host: str) -> str:
    """The address of this machine on its way to another one."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((host, 9))  # sends nothing: the kernel only chooses the interface
        except OSError as error:
            raise ExecutorError(
                "A host cannot be reached",
                found=f"{host}: {error.strerror or error}",
                remedy="Check that its name is known on this node.",
            ) from error
        return str(probe.getsockname()[0])


def _start(ends: contextlib.ExitStack, arguments: list[str], before: list[str], log: Path) -> subprocess.Popen[bytes]:
    command = [*before, sys.executable, "-P", "-m", f"distributed.cli.{arguments[0]}", *arguments[1:]]
    surroundings = os.environ | {"PYTHONPATH": os.pathsep.join(entry for entry in sys.path if entry)}
    with log.open("wb") as stream:
        process = subprocess.Popen(
            command, env=surroundings, stdin=subprocess.DEVNULL, stdout=stream, stderr=stream, start_new_session=True
        )
    ends.callback(_end, process)
    return process


def _end(process: subprocess.Popen[bytes]) -> None:
    for number in (signal.SIGTERM, signal.SIGKILL):
        if process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, number)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(tuning.END_SECONDS)


def _wait_for(
    scheduler: subprocess.Popen[bytes],
    log: Path,
    words: str,
    count: int = 1,
    besides: tuple[subprocess.Popen[bytes], Path] | None = None,
) -> str:
    """Wait until the log has `count` lines with `words`; what follows them in the last."""
    deadline = time.monotonic() + tuning.START_SECONDS
    while True:
        text = log.read_text(encoding="utf-8", errors="replace")
        lines = [line for line in text.splitlines() if words in line]
        if len(lines) >= count:
            return lines[-1].partition(words)[2].strip()
        failed = next((p for p in (scheduler, besides[0] if besides else None) if p and p.poll() is not None), None)
        if failed is not None or time.monotonic() > deadline:
            shown = log if besides is None else besides[1]
            last = shown.read_text(encoding="utf-8", errors="replace").strip().splitlines()[-1:]
            raise ExecutorError(
                "Dask could not be started in the allocation",
                found=f"{len(lines)} of {count} lines '{words}'" + (f": {last[0][:300]}" if last else ""),
                remedy="Check that Python and alpa_explore are at the same path on every node.",
            )
        time.sleep(0.1)
