"""Runs a function in a forked process: kernels do not check everything, and a crash must not take the planner along.

A fork, not a new interpreter: operators that a notebook or a library registered are known to it, and it costs
milliseconds. Nothing here is particular to sharding.
"""

from __future__ import annotations

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
    """The child died before it answered, or took too long; `step` is the last that it had reported."""

    def __init__(self, step: int | None, *, late: bool) -> None:
        super().__init__("took too long" if late else "crashed")
        self.step, self.late = step, late


def run_in_child(function: Callable[[Callable[[int], None]], Any], *, limit_seconds: float) -> Any:
    """What `function(report)` returns (pickled on its way); it calls report(step) before each step.

    CrashError when the child dies or takes too long; RuntimeError with the text of what the function raised.
    """
    reading, writing = os.pipe()
    with warnings.catch_warnings():
        # Python 3.12 warns of forks beside threads: a lock that another thread held ends at the time limit.
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        os.close(reading)
        _answer(function, writing)
    os.close(writing)
    try:
        said = _read_all(reading, time.monotonic() + limit_seconds)
    finally:
        os.close(reading)
        os.kill(child, signal.SIGKILL)  # still ours until it is waited for
        os.waitpid(child, 0)
    steps, answer = _parse(said or b"")
    if answer is None:
        raise CrashError(steps, late=said is None)
    value, problem = pickle.loads(answer)
    if problem is not None:
        raise RuntimeError(problem)
    return value


def _answer(function: Callable[[Callable[[int], None]], Any], writing: int) -> NoReturn:
    """The child's whole life. Its last words on stderr ('corrupted size …') are nobody's business."""
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
        os._exit(code)  # no handlers of the parent: they are not the child's to run


def _write(target: int, data: bytes) -> None:
    while data:
        data = data[os.write(target, data) :]


def _read_all(source: int, deadline: float) -> bytes | None:
    """All bytes until the end, None when the deadline passes first."""
    found = b""
    while (left := deadline - time.monotonic()) > 0:
        if not select.select([source], [], [], left)[0]:
            break
        part = os.read(source, 1 << 16)
        if not part:
            return found
        found += part
    return None


def _parse(said: bytes) -> tuple[int | None, bytes | None]:
    """(last step reported, pickled answer)."""
    step, place = None, 0
    while place + _HEAD.size <= len(said):
        (number,) = _HEAD.unpack_from(said, place)
        place += _HEAD.size
        if number == _ANSWER:
            return step, said[place:]
        step = number
    return step, None
