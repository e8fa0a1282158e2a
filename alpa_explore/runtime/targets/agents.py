"""Agents on this machine, forked from one template, which imports torch once for all runs of this process."""

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
