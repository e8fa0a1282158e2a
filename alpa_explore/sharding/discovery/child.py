"""Run a function in a forked process, so that a crash in native code (a kernel without bounds checks) spares the
planner.

A fork and not a new interpreter: operators that a notebook or a library registered exist in the child, and starting it
takes milliseconds. Nothing in this module is specific to sharding.
"""

import faulthandler
import os
import signal
import time
import warnings
from collections.abc import Callable
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from typing import Any, NoReturn


class CrashError(Exception):
    """The child died or ran out of time before it returned a result; `step` is the last step that it reported."""

    def __init__(self, step: int | None, *, late: bool) -> None:
        super().__init__("took too long" if late else "crashed")
        self.step, self.late = step, late


def run_in_child(function: Callable[[Callable[[int], None]], Any], *, limit_seconds: float) -> Any:
    """What `function(report)` returns (pickled on its way); it calls report(step) before each step.

    CrashError when the child dies or takes too long; RuntimeError with the text of what the function raised.
    """
    reading, writing = Pipe(duplex=False)
    with warnings.catch_warnings():
        # Python 3.12 warns about fork in a multi-threaded process. A lock that another thread holds at the fork would
        # block the child for ever; the time limit ends that.
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        reading.close()
        _answer(function, writing)
    writing.close()
    deadline, step = time.monotonic() + limit_seconds, None
    try:
        while reading.poll(max(deadline - time.monotonic(), 0.0)):
            message = reading.recv()
            if isinstance(message, int):
                step = message
                continue
            value, problem = message
            if problem is not None:
                raise RuntimeError(problem)
            return value
    except (EOFError, OSError) as error:  # it died, in the middle of a message maybe
        raise CrashError(step, late=False) from error
    finally:
        reading.close()
        os.kill(child, signal.SIGKILL)  # safe: the process id is not reused before waitpid
        os.waitpid(child, 0)
    raise CrashError(step, late=True)


def _answer(function: Callable[[Callable[[int], None]], Any], writing: "Connection[Any, Any]") -> NoReturn:
    """Everything that the child runs. Its stderr is discarded: glibc prints 'corrupted size …' when it aborts."""
    code = 1
    try:
        faulthandler.disable()
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        try:
            answer = (function(writing.send), None)
        except Exception as error:  # the parent raises it: an exception itself may not survive pickling
            answer = (None, f"{type(error).__name__}: {error}")
        writing.send(answer)
        code = 0
    finally:
        os._exit(code)  # skips the exit handlers inherited from the parent
