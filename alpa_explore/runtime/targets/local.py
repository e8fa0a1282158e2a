"""Target `local`: an agent on this machine starts a process per rank. The ranks connect through a file, not a port."""

from __future__ import annotations

import atexit
import functools
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from alpa_explore import units
from alpa_explore.errors import OptionError
from alpa_explore.runtime import tuning
from alpa_explore.runtime.folder import full_disk

if TYPE_CHECKING:
    from alpa_explore.plans.plan import Plan

_READ_AT_IMPORT = ("CUDA", "KMP_", "LD_", "MKL_", "NCCL_", "OMP_", "OPENBLAS_", "PYTHON", "PYTORCH_", "TORCH")
"""How the names of variables begin that Python and torch read when they start: another value needs another template."""


class AgentProcess:
    """An agent that was asked for; it runs when the template has imported torch."""

    def __init__(self, arguments: Sequence[str], environment: Mapping[str, str], log: Path) -> None:
        """`arguments` are those of `runtime.ranks.agent`; output goes to `log`."""
        self._log = log
        self._channel, its_end = socket.socketpair()
        self._said = b""
        self._ended = False
        with its_end, log.open("wb") as output, tempfile.TemporaryFile("w+") as request:
            json.dump({"arguments": list(arguments), "environment": dict(environment)}, request)
            request.flush()
            request.seek(0)
            place = os.open(".", os.O_RDONLY)
            try:
                descriptors = [its_end.fileno(), output.fileno(), request.fileno(), place]
                self._template = _templates().fork(environment, descriptors)
            finally:
                os.close(place)

    def poll(self) -> int | None:
        """The exit code; None while the agent runs, or waits for its start. 1 where the template ended before it."""
        while not self._ended and self._listen(0):
            pass
        numbers = self._said.split(b"\n")[:-1]
        return int(numbers[1]) if len(numbers) == 2 else 1 if self._ended else None

    def stop(self, seconds: float) -> bool:
        """Close the agent's standard input, by which it ends its ranks and itself; whether it did within `seconds`.

        One that did not is killed, and one that has not started never starts a rank.
        """
        if self.poll() is not None:
            return True
        self._channel.shutdown(socket.SHUT_WR)
        end = time.monotonic() + seconds
        while self.poll() is None and self._listen(max(end - time.monotonic(), 0)):
            pass
        if self.poll() is not None:
            return True
        if self._pid is not None:
            os.killpg(self._pid, signal.SIGKILL)
            while self.poll() is None:
                self._listen(None)
        return False

    def _listen(self, seconds: float | None) -> bool:
        """Wait for a word of the template, and take it; whether there was one, or the end."""
        self._channel.settimeout(seconds)
        try:
            said = self._channel.recv(4096)
        except (BlockingIOError, TimeoutError):
            return False
        self._said += said
        if not said:
            self._ended = True
            self._channel.close()
            if self._pid is None:
                self._log.write_bytes(self._template.output())
        return True

    @property
    def _pid(self) -> int | None:
        pid, line, _ = self._said.partition(b"\n")
        return int(pid) if line else None


class _Template:
    """A running template."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self.key = {name: value for name, value in environment.items() if name.startswith(_READ_AT_IMPORT)}
        self._output = tempfile.TemporaryFile()  # noqa: SIM115  # as long as the template
        self._asking, its_end = socket.socketpair()
        with its_end:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", "alpa_explore.runtime.ranks.template"],  # -P: as for an agent
                env=dict(environment),
                stdin=its_end.fileno(),
                stdout=self._output,
                stderr=self._output,
                start_new_session=True,  # Ctrl-C reaches the program that started the run, and it alone
            )

    def serves(self, other: Mapping[str, str]) -> bool:
        """Whether it runs, and was started with the same variables, as far as those matter."""
        return self._process.poll() is None and self.key == {
            name: value for name, value in other.items() if name.startswith(_READ_AT_IMPORT)
        }

    def fork(self, descriptors: Sequence[int]) -> None:
        """Ask for an agent. OSError where the template has just ended."""
        socket.send_fds(self._asking, [b"+"], descriptors)

    def end(self) -> None:
        """Let it end when its agents have."""
        self._asking.close()

    def kill(self) -> None:
        """End it at once; agents that run go on until their channels close."""
        self._process.kill()
        self._process.wait()

    def output(self) -> bytes:
        """What it wrote, such as why it ended."""
        self._output.seek(0)
        return self._output.read()


class _Templates:
    """The template of this process: none before the first run."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.last: _Template | None = None

    def fork(self, environment: Mapping[str, str], descriptors: Sequence[int]) -> _Template:
        """Ask the template for an agent; a new one where there is none for these variables."""
        with self._lock:
            if self.last is not None and not self.last.serves(environment):
                self.last.end()
                self.last = None
            if self.last is None:
                self.last = _Template(environment)
                atexit.register(self.last.kill)
            self.last.fork(descriptors)
            return self.last


# Memo: one of each process, for all its runs.
@functools.cache
def _templates() -> _Templates:
    return _Templates()


def check_devices(plan: Plan, device: str) -> None:
    """OptionError, with the missing amount, where this machine has too few devices or too little memory."""
    check_available(sum(len(stage.devices) for stage in plan.stages), available_devices(device), device)
    # What the software keeps back on a GPU, a process on a CPU does not.
    needed = sum(len(s.devices) * (s.peak_bytes - plan.device_of(s).reserved_bytes) for s in plan.stages)
    memory = float(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    if device == "cpu" and needed > memory:
        raise OptionError(
            "The plan needs more memory than this machine has",
            found=f"{units.bytes_(needed)} for all its ranks, {units.bytes_(memory)} here: "
            f"{units.bytes_(needed - memory)} are missing",
            remedy="Plan a smaller model or a smaller microbatch.",
        )


def available_devices(device: str) -> int:
    """The number of ranks that this machine can have."""
    if device == "cpu":
        return tuning.PROCESSES_A_CORE * (os.cpu_count() or 1)
    import torch  # seconds, which a Dask worker without GPUs has no need of

    return torch.cuda.device_count()


def check_available(needed: int, available: int, device: str) -> None:
    """OptionError where there are fewer devices than needed."""
    kind = "GPUs" if device == "cuda" else f"CPU processes ({tuning.PROCESSES_A_CORE} a core)"
    if needed > available:
        raise OptionError(
            "The plan needs more devices than are attached",
            found=f"{needed} in the plan, {available} {kind} attached: {needed - available} are missing",
            remedy="Attach more, plan for fewer devices, or write a script (torchrun, slurm) for other machines."
            + (" The device 'cpu' runs it here." * (device == "cuda")),
        )


class LocalRanks:
    """The ranks of a run, started."""

    def __init__(self, folder: Path, world: int) -> None:
        self.folder = folder
        self._killed = False
        meet = f"file:{folder / 'job' / 'store'}"
        self._agent = AgentProcess([str(folder), "0", str(world), meet], environment(), folder / "agent-0.log")

    def poll(self) -> dict[str, Any] | None:
        """How the run ended; None while it goes on."""
        if self._killed:
            return {"state": "stopped"}
        code = self._agent.poll()
        return None if code is None else agent_outcome(self.folder, 0, code)

    def stop(self) -> None:
        """End the ranks; returns when they are gone."""
        self._killed = not self._agent.stop(tuning.STOP_SECONDS) or self._killed


def agent_outcome(folder: Path, first: int, code: int) -> dict[str, Any]:
    """How the ranks of an agent ended: its report, or what can be seen where it wrote none."""
    path, log = folder / f"agent-{first}.json", folder / f"agent-{first}.log"
    if path.exists():
        outcome: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        return outcome
    log_lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    at = f"exit code {code} on {socket.gethostname()}" + (f": {log_lines[-1][:300]}" if log_lines else "")
    told = {"what": f"The agent of rank {first} ended", "found": at, "remedy": f"Look at {log}."}
    full = full_disk(folder, at)
    return {"state": "failed", "rank": None, "may_pass": full is None, **(full or told)}


def agent_command(folder: Path, first: int, count: int, meet: str) -> list[str]:
    """The command that starts an agent. -P: files in the current folder cannot shadow modules."""
    return [sys.executable, "-P", "-m", "alpa_explore.runtime.ranks.agent", str(folder), str(first), str(count), meet]


def environment(sockets: Mapping[str, str] | None = None) -> dict[str, str]:
    """The environment of an agent: the module path of this process, and one thread per rank for numerical libraries.

    `sockets` are the variables by which gloo and NCCL find the network, by default those of the loopback: all ranks are
    on this machine, whose name may not resolve. What the environment of this process says of them wins.
    """
    one_thread = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
    path = {"PYTHONPATH": os.pathsep.join(entry for entry in sys.path if entry)}
    if sockets is None:
        loopback = [name for _, name in socket.if_nameindex() if name in ("lo", "lo0")]
        sockets = {"GLOO_SOCKET_IFNAME": loopback[0]} if loopback else {}
    # The agent forks its ranks: were its process to open a CUDA device (counting devices does), theirs could not.
    no_cuda = {"PYTORCH_NVML_BASED_CUDA_CHECK": "1"}
    return {**sockets, **os.environ, **one_thread, **path, **no_cuda}
