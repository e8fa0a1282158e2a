"""A real Slurm on this machine: a controller, and two nodes that are this machine under two loopback addresses.

It runs as the current user, from a configuration in a folder of its own, and needs Debian's slurmctld, slurmd and
slurm-client. Nothing of a Slurm that may be installed here is used or changed but its programs.
"""

from __future__ import annotations

import getpass
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

NODES = ("127.0.0.1", "127.0.0.2")
"""Nodes are named by their addresses, which every machine can resolve."""
_PROGRAMS = ("slurmctld", "slurmd", "sbatch", "srun", "scontrol", "squeue", "scancel", "sinfo")
_PATH = os.pathsep.join((os.environ.get("PATH", ""), "/usr/sbin", "/sbin"))
_CONFIGURATION = """\
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={controller}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/none
CredType=cred/none
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SwitchType=switch/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SlurmdParameters=config_overrides
MinJobAge=300
{nodes}
PartitionName=all Nodes=ALL Default=YES MaxTime=10 State=UP
"""


def missing() -> str | None:
    """What this machine lacks and how to get it, or None."""
    absent = [name for name in _PROGRAMS if shutil.which(name, path=_PATH) is None]
    how = "apt-get install --no-install-recommends slurmctld slurmd slurm-client"
    return f"no {', '.join(absent)} here: {how}" if absent else None


class Slurm:
    """A running Slurm."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.environment = {**os.environ, "PATH": _PATH, "SLURM_CONF": str(folder / "slurm.conf")}

    def ask(self, *command: str) -> str:
        """The output of a command of Slurm."""
        done = subprocess.run(command, env=self.environment, capture_output=True, text=True, timeout=30, check=False)
        assert done.returncode == 0, f"{command}: {done.stderr}"
        return done.stdout.strip()

    def submit(self, script: Path, *options: str) -> str:
        """The number of the new job."""
        return self.ask("sbatch", "--parsable", *options, str(script))

    def finish(self, job: str, seconds: float) -> dict[str, str]:
        """What `scontrol show job` says of a job when it is over, for example JobState=COMPLETED."""
        end = time.monotonic() + seconds
        while True:
            shown = dict(part.split("=", 1) for part in self.ask("scontrol", "show", "job", job).split() if "=" in part)
            if shown["JobState"] not in ("PENDING", "CONFIGURING", "RUNNING", "COMPLETING"):
                return shown
            assert time.monotonic() < end, f"job {job} is {shown['JobState']} after {seconds} s"
            time.sleep(0.1)


@contextmanager
def slurm(folder: Path, *, cores: int = 4) -> Iterator[Slurm]:
    """Start the two nodes, each said to have so many cores; at the end, end their jobs and them."""
    controller, *ports = _free_ports(1 + len(NODES))
    nodes = "\n".join(
        f"NodeName={node} NodeHostname={socket.gethostname()} NodeAddr={node} Port={port} CPUs={cores}"
        for node, port in zip(NODES, ports, strict=True)
    )
    for name in ("state", *NODES):
        (folder / name).mkdir(parents=True)
    (folder / "slurm.conf").write_text(
        _CONFIGURATION.format(
            host=socket.gethostname(), controller=controller, user=getpass.getuser(), folder=folder, nodes=nodes
        )
    )
    running = Slurm(folder)
    with ExitStack() as started:
        for command in (["slurmctld", "-i"], *(["slurmd", "-N", node] for node in NODES)):
            with (folder / f"{'-'.join(command)}.out").open("wb") as output:
                process = subprocess.Popen([*command, "-D"], env=running.environment, stdout=output, stderr=output)
            started.callback(_end, process)
        _wait_until_idle(running)
        try:
            yield running
        finally:
            running.ask("scancel", "--quiet", "--user", getpass.getuser())
            _wait_until_idle(running)


def _wait_until_idle(running: Slurm) -> None:
    end = time.monotonic() + 30
    while True:
        done = subprocess.run(
            ["sinfo", "--noheader", "--Node", "--format=%T"],
            env=running.environment,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.stdout.split() == ["idle"] * len(NODES):
            return
        logs = "\n".join(p.read_text(errors="replace")[-1500:] for p in running.folder.glob("*.log"))
        assert time.monotonic() < end, f"the nodes are not idle: {done.stdout}{done.stderr}\n{logs}"
        time.sleep(0.1)


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(10)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _free_ports(count: int) -> list[int]:
    with ExitStack() as opened:
        return [opened.enter_context(socket.create_server(("", 0))).getsockname()[1] for _ in range(count)]
