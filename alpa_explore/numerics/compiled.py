"""`compiled`: numba's njit, with its machine code cached on disk where there is a place for it; and a report of
whether kernels are being compiled just now."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from numba import njit
from numba.core import event

Function = TypeVar("Function", bound=Callable[..., Any])


def compiled(**options: Any) -> Callable[[Function], Function]:
    """Decorator: compile the function at its first call, and release the GIL while it runs.

    The first call ever takes about a second; later processes load the machine code from disk. numba invalidates that
    cache by the source file of the function alone, so a kernel must not read constants of other modules: pass them as
    arguments. A kernel copies arrays in loops: `a[:] = b` takes 1.5 s longer to compile, for the text of an error.
    """

    def decorate(function: Function) -> Function:
        try:
            dispatcher: Function = njit(cache=True, nogil=True, **options)(function)
        except RuntimeError:
            # Neither the package's folder nor the user's cache folder is writable: every process compiles anew.
            dispatcher = njit(nogil=True, **options)(function)
        return dispatcher

    return decorate


@contextmanager
def compilation_reported(report: Callable[[bool], None]) -> Iterator[None]:
    """In the block, call `report(True)` when a kernel begins to be compiled in this process, on any thread, and
    `report(False)` when none is any more. Machine code that is loaded from disk is not reported.

    The calls come from a thread of their own: numba holds its lock while it compiles, and `report` may take another.
    """
    reports: queue.SimpleQueue[bool | None] = queue.SimpleQueue()

    def pass_on() -> None:
        for compiling in iter(reports.get, None):
            report(compiling)

    threading.Thread(target=pass_on, name="alpa-explore compilation", daemon=True).start()
    counter = _Counter(reports.put)
    try:
        with event.install_listener("numba:compile", counter):
            yield
    finally:
        counter.stop()
        reports.put(None)


class _Counter(event.Listener):
    """Counts the compilations that are under way; one often starts others."""

    def __init__(self, changed: Callable[[bool], None]) -> None:
        self._changed = changed
        self._lock = threading.Lock()
        self._under_way = 0

    def on_start(self, _event: object) -> None:
        """A compilation begins."""
        with self._lock:
            self._under_way += 1
            if self._under_way == 1:
                self._changed(True)

    def on_end(self, _event: object) -> None:
        """A compilation has ended; it may have begun before the block."""
        with self._lock:
            self._under_way -= 1
            if self._under_way == 0:
                self._changed(False)

    def stop(self) -> None:
        """Report the end of those that go on after the block."""
        with self._lock:
            if self._under_way > 0:
                self._changed(False)
