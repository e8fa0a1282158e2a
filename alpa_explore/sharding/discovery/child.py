"""Run a function in a forked process, so that a crash in native code (a kernel without bounds checks) spares the
planner.

A fork and not a new interpreter: operators that a notebook or a library registered exist in the child, and starting it
takes milliseconds. Nothing in this module is specific to sharding.
"""

import faulthandler
import os
import pickle
import select
import signal
import struct
import time
import warnings
from collections.abc import Callable
from typing import Any, NoReturn

_ANSWER = -1
_HEAD = struct.Struct("<q")


class CrashError(Exception):
    """The child died or ran out of time before it returned a result; `step` is the last step that it reported."""

    def __init__(self, step: int | None, *, late: bool) -> None:
        super().__init__("took too long" if late else "crashed")
        self.step, self.late = step, late


def run_in_child(function: Callable[[Callable[[int], None]], Any], *, limit_seconds: float) -> Any:
    """What `function(report)` returns (pickled on its way); it calls report(step) before each step.

    CrashError when the child dies or takes too long; RuntimeError with the text of what the function raised.
    """
    reading, writing = os.pipe()
    with warnings.catch_warnings():
        # Python 3.12 warns about fork in a multi-threaded process. A lock that another thread holds at the fork would
        # block the child for ever; the time limit ends that.
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        os.close(reading)
        _answer(function, writing)
    os.close(writing)
    try:
        received = _read_all(reading, time.monotonic() + limit_seconds)
    finally:
        os.close(reading)
        os.kill(child, signal.SIGKILL)  # safe: the process id is not reused before waitpid
        os.waitpid(child, 0)
    steps, answer = _parse(received or b"")
    if answer is None:
        raise CrashError(steps, late=received is None)
    value, problem = pickle.loads(answer)
    if problem is not None:
        raise RuntimeError(problem)
    return value


def _answer(function: Callable[[Callable[[int], None]], Any], writing: int) -> NoReturn:
    """Everything that the child runs. Its stderr is discarded: glibc prints 'corrupted size …' when it aborts."""
    code = 1
    try:
        faulthandler.disable()
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        answer: tuple[Any, str | None]
        try:
            answer = (function(lambda step: _write(writing, _HEAD.pack(step))), None)
        except Exception as error:  # the parent raises it: an exception itself may not survive pickling
            answer = (None, f"{type(error).__name__}: {error}")
        _write(writing, _HEAD.pack(_ANSWER) + pickle.dumps(answer))
        code = 0
    finally:
        os._exit(code)  # skips the exit handlers inherited from the parent


def _write(target: int, data: bytes) -> None:
    while data:
        data = data[os.write(target, data) :]


def _read_all(source: int, deadline: float) -> bytes | None:
    """All bytes up to end of file; None when the deadline passes first."""
    received = b""
    while (left := deadline - time.monotonic()) > 0:
        if not select.select([source], [], [], left)[0]:
            break
        chunk = os.read(source, 1 << 16)
        if not chunk:
            return received
        received += chunk
    return None


def _parse(received: bytes) -> tuple[int | None, bytes | None]:
    """(last step reported, pickled answer)."""
    step, place = None, 0
    while place + _HEAD.size <= len(received):
        (number,) = _HEAD.unpack_from(received, place)
        place += _HEAD.size
        if number == _ANSWER:
            return step, received[place:]
        step = number
    return step, None
