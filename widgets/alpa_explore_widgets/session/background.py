"""Background threads that take one job at a time: `NewestWins` drops jobs that a newer one replaces, `EachInTurn` runs
them all. `paced`: their reports."""

import sys
import threading
import time
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from alpa_explore.execution.progress import Progress
from alpa_explore_widgets.session import tuning

Job = TypeVar("Job")


class NewestWins(Generic[Job]):
    """Runs `work(job, cancel)` on a thread of its own.

    A job that is submitted while another one runs sets the `cancel` event of that one and waits for its end; a waiting
    job is replaced by a newer one and never runs. The thread exists only while there is work. `work` reports errors
    itself; an exception that it raises goes to `threading.excepthook`.
    """

    def __init__(self, work: Callable[[Job, threading.Event], None], name: str) -> None:
        self._work, self._name = work, name
        self._changed = threading.Condition()
        self._waiting: list[Job] = []
        self._cancel: threading.Event | None = None
        """The event of the running job; None when idle."""

    def submit(self, job: Job) -> None:
        """Cancel the running job and run `job` as soon as that has stopped."""
        with self._changed:
            self._waiting = [job]
            if self._cancel is not None:
                self._cancel.set()
                return
            self._cancel = threading.Event()
        threading.Thread(target=self._run, name=self._name, daemon=True).start()

    @property
    def has_newer(self) -> bool:
        """True when a job is waiting."""
        with self._changed:
            return bool(self._waiting)

    def cancel(self) -> None:
        """Cancel the running job and drop the waiting ones."""
        with self._changed:
            self._waiting = []
            if self._cancel is not None:
                self._cancel.set()

    def wait(self, timeout: float | None = None) -> bool:
        """Block until there is no work (for tests and scripts). Returns False on a timeout."""
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
            except Exception:  # reported as an exception of any thread is, but the waiting jobs must still run
                threading.excepthook(threading.ExceptHookArgs((*sys.exc_info(), threading.current_thread())))


class EachInTurn(NewestWins[Job]):
    """Like NewestWins, but every job runs to its end, in the order of submission."""

    def submit(self, job: Job) -> None:
        """Run `job` after those submitted before it."""
        with self._changed:
            self._waiting.append(job)
            if self._cancel is not None:
                return
            self._cancel = threading.Event()
        threading.Thread(target=self._run, name=self._name, daemon=True).start()


def paced(say: Callable[..., None], always: Callable[..., bool] = lambda *_: False) -> Callable[..., None]:
    """`say`, but at most every `tuning.REPORT_SECONDS`, and for reports that are said `always`: each is a message to
    the browser."""
    last = float("-inf")

    def said(*report: Any) -> None:
        nonlocal last
        if time.monotonic() - last >= tuning.REPORT_SECONDS or always(*report):
            last = time.monotonic()
            say(*report)

    return said


def is_end(progress: Progress) -> bool:
    """Whether a report is the first or the last of its pass."""
    return progress.done in (0, progress.total)
