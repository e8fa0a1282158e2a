"""A real Slurm on this machine: a controller, and two nodes: this machine under two loopback addresses, or other hosts.

It runs as the current user, from a configuration in a folder of its own, and needs Debian's slurmctld, slurmd and
slurm-client. Nothing of a Slurm that may be installed here is used or changed but its programs.
"""

import getpass
import os
import shutil
import socket
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from tests.ports import reserved_ports
from tests.waiting import LIMIT_SECONDS, limit_seconds, until

LOOPBACK = {"127.0.0.1": "127.0.0.1", "127.0.0.2": "127.0.0.2"}
"""Name of a node -> its address. These are named by their addresses, which every machine can resolve."""
_PROGRAMS = ("slurmctld", "slurmd", "sbatch", "srun", "scontrol", "squeue", "scancel", "sinfo")
_PATH = os.pathsep.join((os.environ.get("PATH", ""), "/usr/sbin", "/sbin"))
_CONFIGURATION = """\
ClusterName=test
SlurmctldHost={host}({address})
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

    def __init__(self, folder: Path, count: int) -> None:
        self.folder, self.count = folder, count
        self.environment = {**os.environ, "PATH": _PATH, "SLURM_CONF": str(folder / "slurm.conf")}

    def ask(self, *command: str) -> str:
        """The output of a command of Slurm."""
        done = subprocess.run(
            command, env=self.environment, capture_output=True, text=True, timeout=limit_seconds(), check=False
        )
        assert done.returncode == 0, f"{command}: {done.stderr}"
        return done.stdout.strip()

    def submit(self, script: Path, *options: str) -> str:
        """The number of the new job."""
        return self.ask("sbatch", "--parsable", *options, str(script))

    def finish(self, job: str, seconds: float = LIMIT_SECONDS) -> dict[str, str]:
        """What `scontrol show job` says of a job when it is over, for example JobState=COMPLETED."""

        def shown() -> dict[str, str]:
            return dict(part.split("=", 1) for part in self.ask("scontrol", "show", "job", job).split() if "=" in part)

        goes_on = ("PENDING", "CONFIGURING", "RUNNING", "COMPLETING")
        return until(
            lambda: found if (found := shown())["JobState"] not in goes_on else None,
            lambda: f"job {job} has ended: {shown()['JobState']}",
            seconds=seconds,
        )


@contextmanager
def slurm(
    folder: Path,
    nodes: Mapping[str, str] = LOOPBACK,
    *,
    controller: str = "127.0.0.1",
    start: Callable[..., subprocess.Popen[Any]] | None = None,
) -> Iterator[Slurm]:
    """Start a Slurm with nodes (name -> address) of four cores each; at the end, end their jobs and them.

    `controller` is this machine's address for the nodes. `start(number, command, **options of Popen)` starts a process
    on a node; the default is on this machine.
    """
    start = start or (lambda _number, command, **options: subprocess.Popen(command, **options))
    running = Slurm(folder, len(nodes))
    with reserved_ports(1 + len(nodes)) as (controller_port, *ports), ExitStack() as started:
        lines = [
            f"NodeName={name} NodeHostname={name} NodeAddr={address} Port={port} CPUs=4"
            for (name, address), port in zip(nodes.items(), ports, strict=True)
        ]
        for name in ("state", *nodes):
            (folder / name).mkdir(parents=True)
        (folder / "slurm.conf").write_text(
            _CONFIGURATION.format(
                host=socket.gethostname(),
                address=controller,
                controller=controller_port,
                user=getpass.getuser(),
                folder=folder,
                nodes="\n".join(lines),
            )
        )
        # Nothing here uses cgroups, but a slurmd that looks for them fails where none are mounted.
        (folder / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\n")
        daemons = [(None, ["slurmctld", "-D", "-i"])]
        daemons += [(number, ["slurmd", "-D", "-N", name]) for number, name in enumerate(nodes)]
        for number, command in daemons:
            with (folder / f"{command[0]}-{number}.out").open("wb") as output:
                options = {"env": running.environment, "stdout": output, "stderr": output}
                process = subprocess.Popen(command, **options) if number is None else start(number, command, **options)
            started.callback(_end, process)
        _wait_until_idle(running)
        try:
            yield running
        finally:
            running.ask("scancel", "--quiet", "--user", getpass.getuser())
            _wait_until_idle(running)


def _wait_until_idle(running: Slurm) -> None:
    states: list[str] = []

    def idle() -> bool:
        command = ["sinfo", "--noheader", "--Node", "--format=%T"]
        done = subprocess.run(command, env=running.environment, capture_output=True, text=True, check=False)
        states[:] = done.stdout.split() or [done.stderr]
        return states == ["idle"] * running.count

    def logs() -> str:
        return "\n".join(p.read_text(errors="replace")[-1500:] for p in running.folder.glob("*.log"))

    until(idle, lambda: f"the nodes are idle: {states}\n{logs()}")


def _end(process: subprocess.Popen[Any]) -> None:
    process.terminate()
    try:
        process.wait(limit_seconds())
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
