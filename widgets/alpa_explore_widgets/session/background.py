"""Work beside the notebook's thread: one job at a time, and the newest job wins, or each has its turn."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from typing import Generic, TypeVar

Job = TypeVar("Job")


class NewestWins(Generic[Job]):
    """Runs `work(job, cancel)` on a thread of its own.

    A job that arrives while another runs asks that one to stop (its `cancel` event is set) and waits; a job that waits
    is replaced by a newer one and never runs. The thread lives only while there is work. `work` says what went wrong to
    the state; an exception of its own goes to `threading.excepthook`.
    """

    def __init__(self, work: Callable[[Job, threading.Event], None], name: str) -> None:
        self._work, self._name = work, name
        self._changed = threading.Condition()
        self._waiting: list[Job] = []
        self._cancel: threading.Event | None = None
        """Of the job that runs; None when idle."""

    def submit(self, job: Job) -> None:
        """Run `job` as soon as what runs now has stopped."""
        with self._changed:
            self._waiting = [job]
            if self._cancel is not None:
                self._cancel.set()
                return
            self._cancel = threading.Event()
        threading.Thread(target=self._run, name=self._name, daemon=True).start()

    @property
    def has_newer(self) -> bool:
        """True when a job waits for the one that runs."""
        with self._changed:
            return bool(self._waiting)

    def cancel(self) -> None:
        """Ask the running job to stop and forget the waiting one."""
        with self._changed:
            self._waiting = []
            if self._cancel is not None:
                self._cancel.set()

    def wait(self, timeout: float | None = None) -> bool:
        """Block until there is no work (tests and scripts; a notebook never needs it). False when the time ran out."""
        with self._changed:
            return self._changed.wait_for(lambda: self._cancel is None, timeout)

    def _run(self) -> None:
        while True:
            with self._changed:
                if not self._waiting:
                    self._cancel = None
                    self._changed.notify_all()
                    return
                job = self._waiting.pop(0)
                cancel = self._cancel = threading.Event()
            try:
                self._work(job, cancel)
            except Exception:  # reported as any thread's, but the jobs that wait must still run
                threading.excepthook(threading.ExceptHookArgs((*sys.exc_info(), threading.current_thread())))


class EachInTurn(NewestWins[Job]):
    """The same, but no job is given up for another one: all run, in the order in which they came."""

    def submit(self, job: Job) -> None:
        """Run `job` when those before it are done."""
        with self._changed:
            self._waiting.append(job)
            if self._cancel is not None:
                return
            self._cancel = threading.Event()
        threading.Thread(target=self._run, name=self._name, daemon=True).start()
