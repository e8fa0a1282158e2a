"""A Python for the Dask workers of emulated hosts that has already imported torch: their agents fork from it.

An agent starts in 3 processor seconds, of which all but a few hundredths are imports, and a run of two hosts that is
retried starts four. `ForkedPython` starts one process that imports what agents import, and writes a program that takes
the arguments of `python -P -m alpa_explore.runtime.ranks.agent …`. The program sends them, its environment and its open
files to that process, which forks; the fork enters the program's namespaces and is an agent from then on, in a session
of its own. The program ends with the agent's exit code, and the agent is killed when the program is.

The workers of one test in test_launch.py have Python itself, and so have torchrun and Slurm in test_scripts.py.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import json
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, NoReturn

Main = Callable[[list[str]], int]
AGENT = "alpa-agent"
"""The name of forked agents and their ranks."""
_PROGRAM = """#!{python} -ISu
import json, os, socket, sys
if sys.argv[1:4] != ["-P", "-m", "alpa_explore.runtime.ranks.agent"]:
    os.execv({python!r}, [{python!r}, *sys.argv[1:]])
with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as line:
    line.connect({address!r})
    files = [int(name) for name in os.listdir("/proc/self/fd")]
    files = [file for file in files if file != line.fileno() and os.path.exists(f"/proc/self/fd/{{file}}")]
    job = {{"arguments": sys.argv[4:], "environment": dict(os.environ), "folder": os.getcwd(), "files": files}}
    socket.send_fds(line, [json.dumps(job).encode()], files)
    sys.exit(int(line.recv(99) or 1))
"""
_FILES = 64
"""Most open files of an agent at its start."""


class ForkedPython:
    """The process that agents fork from; use it in `with`."""

    def __init__(self, folder: Path) -> None:
        self.program = folder / "python"
        """Starts an agent."""
        self._address = str(folder / "socket")

    def __enter__(self) -> ForkedPython:
        self.program.write_text(_PROGRAM.format(python=sys.executable, address=self._address))
        self.program.chmod(0o755)
        path = os.pathsep.join(p for p in sys.path if p)
        command = [sys.executable, "-P", "-m", "tests.hosts.forked_python", self._address]
        self._process = subprocess.Popen(
            command, env=os.environ | {"PYTHONPATH": path}, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        assert self._process.stdout.readline() == b"ready\n"
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.communicate()  # it ends when its standard input does


def _enter(line: socket.socket, job: dict[str, Any], files: list[int]) -> None:
    """Take the place of the program at the other end: its session, namespaces, open files, environment and folder."""
    os.setsid()
    libc = ctypes.CDLL(None, use_errno=True)
    pid = int.from_bytes(line.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)[:4], sys.byteorder)
    for kind in ("net", "uts", "mnt"):
        with open(f"/proc/{pid}/ns/{kind}", "rb") as namespace:
            if libc.setns(namespace.fileno(), 0):
                raise OSError(ctypes.get_errno(), f"setns {kind}")
    libc.prctl(15, AGENT.encode())  # PR_SET_NAME
    # First out of the way: a file may have come under the number that another one shall have.
    above = max([*job["files"], *files]) + 1
    moved = [os.dup2(file, above + place) for place, file in enumerate(files)]
    os.closerange(3, above)
    for file, number in zip(moved, job["files"], strict=True):
        os.dup2(file, number)
        os.close(file)
    os.environ.clear()
    os.environ.update(job["environment"])
    sys.path[:0] = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    os.chdir(job["folder"])


def _be_agent(main: Main, line: socket.socket, job: dict[str, Any], files: list[int]) -> NoReturn:
    code = 1
    try:
        _enter(line, job, files)
        code = main(job["arguments"])
    except SystemExit as ended:
        code = int(ended.code or 0)
    finally:
        sys.stdout.flush()
        os._exit(code)


def _serve(address: str, main: Main) -> None:
    """Fork an agent, which runs `main`, for each program that connects, until standard input ends."""
    server = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    server.bind(address)
    server.listen(64)
    print("ready", flush=True)
    agents: dict[int, tuple[socket.socket, int]] = {}
    """A file that can be read when the agent has ended -> its program, and its process."""
    while True:
        lines = {line.fileno(): ended for ended, (line, _) in agents.items()}
        readable, _, _ = select.select([0, server, *agents, *lines], [], [])
        for ended in set(agents) & {lines.get(file, file) for file in readable if isinstance(file, int)}:
            line, pid = agents.pop(ended)
            if ended not in readable:  # the program was killed
                os.kill(pid, signal.SIGKILL)
            status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
            os.close(ended)
            with line, contextlib.suppress(ConnectionError):  # both were killed
                line.send(str(status).encode())
        if 0 in readable:
            return
        if server in readable:
            line, _ = server.accept()
            message, files, _, _ = socket.recv_fds(line, 2**20, _FILES)
            if not message:  # the program was killed
                line.close()
                continue
            if not (pid := os.fork()):
                _be_agent(main, line, json.loads(message), files)
            for file in files:
                os.close(file)
            agents[os.pidfd_open(pid)] = line, pid


if __name__ == "__main__":
    import torch

    from alpa_explore.programs.execution.optimizer_step import PieceOptimizer
    from alpa_explore.runtime.ranks import agent

    PieceOptimizer("optimizer.adam", torch.zeros(1), 1e-3)
    gc.freeze()
    _serve(sys.argv[1], agent.main)
