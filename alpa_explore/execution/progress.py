"""The progress of a pass, for progress bars and progress lines; calling, counting and cancelling its tasks."""

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from alpa_explore.errors import CancelledError
from alpa_explore.execution.available_memory import require_memory


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """The number of finished tasks of one pass."""

    pass_name: str
    done: int
    total: int
    """0 for a pass that counts no tasks, or whose results are all known."""
    elapsed_seconds: float
    """Since the pass began."""

    @property
    def eta_seconds(self) -> float | None:
        """Estimated seconds left at the average speed so far; None before the first task is done."""
        if self.done >= self.total:
            return 0.0
        return self.elapsed_seconds / self.done * (self.total - self.done) if self.done else None


ProgressCallback = Callable[[Progress], None]
"""Called once with done = 0 and after each task, in the thread that runs the pass; it must return quickly."""


Function = Callable[..., Any]
"""function(task), or function(shared, task) where there is a shared value."""

NOTHING_SHARED: Any = object()
"""Sentinel: the function takes only the task. (None may be a shared value.)"""


def call(function: Function, shared: Any, task: Any) -> Any:
    """Execute one task in this thread. MachineMemoryError where there is no memory for it."""
    require_memory()
    return function(task) if shared is NOTHING_SHARED else function(shared, task)


class TaskCount:
    """Counts the finished tasks of one pass and calls the progress callback."""

    def __init__(self, name: str, total: int, progress: ProgressCallback | None) -> None:
        self.name, self.total, self.done = name, total, 0
        self._progress = progress
        self._start, self._busy_start = time.perf_counter(), time.thread_time()
        self._report()

    @property
    def elapsed(self) -> float:
        """Seconds since the pass began."""
        return time.perf_counter() - self._start

    @property
    def busy(self) -> float:
        """Seconds of the processor in this thread since the pass began: fewer where other programs take turns."""
        return time.thread_time() - self._busy_start

    def add(self, count: int = 1) -> None:
        """Count one more finished task, or so many."""
        self.done += count
        self._report()

    def check(self, cancel: threading.Event | None) -> None:
        """Raise CancelledError when the user has cancelled."""
        if cancel is not None and cancel.is_set():
            raise CancelledError(
                "The work was cancelled",
                found=f"{self.done} of {self.total} tasks of {self.name} were done",
                remedy="Start again to continue: finished tasks are kept.",
            )

    def _report(self) -> None:
        if self._progress is not None:
            self._progress(
                Progress(pass_name=self.name, done=self.done, total=self.total, elapsed_seconds=self.elapsed)
            )


@dataclass(frozen=True, kw_only=True)
class Work:
    """The tasks of one pass, and what they are done with."""

    function: Function
    tasks: Mapping[Any, Any]
    shared: Any
    """One value that every task reads, or NOTHING_SHARED."""
    counter: TaskCount
    cancel: threading.Event | None
    batch_size: int | None
    """Tasks that are sent together; None for eight batches a worker."""

    def one(self, task: Any) -> Any:
        """The value of one task."""
        return call(self.function, self.shared, task)

    def check(self) -> None:
        """Raise CancelledError when the user has cancelled."""
        self.counter.check(self.cancel)
