"""A second thread that lends its time to a search, one slice of moves after the other."""

from __future__ import annotations

import queue
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class SecondThread:
    """What the two threads have in common. The searching one calls `beside` and `dismiss`, the other one `serve`."""

    def __init__(self) -> None:
        self._jobs: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._done: queue.SimpleQueue[Exception | None] = queue.SimpleQueue()
        self.ready = False
        """Whether the other thread waits for work, or is at it."""

    def serve(self) -> None:
        """Do what is asked for until `dismiss`."""
        self.ready = True
        while (job := self._jobs.get()) is not None:
            try:
                job()
            except Exception as fault:
                self._done.put(fault)
            else:
                self._done.put(None)

    def dismiss(self) -> None:
        """Nothing will be asked for any more."""
        self.ready = False
        self._jobs.put(None)

    @contextmanager
    def beside(self, job: Callable[[], None] | None) -> Iterator[None]:
        """Let the other thread do `job` during the block, and wait for it after the block."""
        if job is None:
            yield
            return
        self._jobs.put(job)
        fault: Exception | None = None
        try:
            yield
        finally:
            fault = self._done.get()
        if fault is not None:
            raise fault
