"""Execute tasks in this process, in threads, or on the workers of a Dask scheduler.

    with Executor() as executor:
        for key, value in executor.map(solve, {key: problem, ...}, shared=graph, name="sharding"):
            ...

`Executor(scheduler)` takes

    "auto", None   in this process; after 2 s, when the remaining tasks would take 12 s of a processor, worker processes
                   are started in the background (1 to 4 s) and get the remaining tasks. If they cannot be started, all
                   tasks are executed in this process, with a warning. On few cores, tasks of compiled kernels are
                   executed in threads instead, which import and build nothing again.
    "serial"       in this process, one after the other
    "threads"      threads of this process (solver libraries release the interpreter lock)
    "processes"    worker processes on this machine, listening on 127.0.0.1 only; kept until the executor is closed
    "tcp://…"      the workers of a running Dask scheduler (they need alpa_explore installed)
    a Client       the same; the client belongs to the user and is not closed

Dask is imported when it is first needed. Tasks are sent in batches, pickled; when a worker dies its batch is repeated.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Generator, Hashable, Iterator, Mapping
from concurrent import futures
from contextlib import contextmanager
from dataclasses import replace
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar

from alpa_explore.errors import ExecutorError, OptionError
from alpa_explore.execution import tuning
from alpa_explore.execution.progress import NOTHING_SHARED, Function, ProgressCallback, TaskCount, Work

if TYPE_CHECKING:
    from alpa_explore.execution.dask_pool import DaskPool

K = TypeVar("K", bound=Hashable)
Results = Generator[tuple[K, Any], None, None]

_PLACES = ("auto", "serial", "threads", "processes")


class Executor:
    """Executes tasks; keeps its workers or its connection until it is closed."""

    def __init__(
        self, scheduler: Any = None, *, workers: int | None = None, warm_up: Callable[[], None] | None = None
    ) -> None:
        """`scheduler`: see the module. `workers`: number of processes or threads, by default one per core. `warm_up` is
        executed by every worker that "auto" starts, before its first task."""
        self._warm_up = warm_up
        self.scheduler = "auto" if scheduler is None else scheduler
        if isinstance(self.scheduler, str) and self.scheduler not in _PLACES and "://" not in self.scheduler:
            raise OptionError(
                "Unknown scheduler",
                found=repr(scheduler),
                remedy=f"Use one of {', '.join(_PLACES)}, an address such as tcp://127.0.0.1:8786, or a dask Client.",
            )
        if workers is not None and workers < 1:
            raise OptionError("An executor needs a worker", found=f"workers={workers}", remedy="Give 1 or more.")
        self.workers = workers or available_cores()
        self.warnings: list[str] = []
        """Problems that did not stop the execution."""
        self._pool: DaskPool | None = None
        self._starting: threading.Thread | None = None
        self._closing = threading.Event()
        self._start_or_close = threading.Lock()  # a thread is started before another one may join it
        self._lock = threading.Lock()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End what was started here: local workers, or the connection to a scheduler. May be called again.

        Workers that are still being started are ended at once, not waited for.
        """
        with self._start_or_close:
            self._closing.set()
        if self._starting is not None:
            self._starting.join()
        with self._lock:
            if self._pool is not None:
                self._pool.close()
                self._pool = None

    @property
    def on_few_cores(self) -> bool:
        """Whether "auto" executes tasks of compiled kernels in threads."""
        return 1 < self.workers <= tuning.MOST_THREADS

    @contextmanager
    def preparing(self) -> Iterator[None]:
        """Context in which tasks for this executor are prepared.

        When that takes long there are probably many tasks, and "auto" starts its workers meanwhile.
        """
        timer = threading.Timer(tuning.PREPARING_SECONDS, self._start_beside)
        timer.daemon = True
        if self.scheduler == "auto" and self.workers > 1:
            timer.start()
        try:
            yield
        finally:
            timer.cancel()

    def map(
        self,
        function: Function,
        tasks: Mapping[K, Any],
        *,
        shared: Any = NOTHING_SHARED,
        name: str = "tasks",
        progress: ProgressCallback | None = None,
        cancel: threading.Event | None = None,
        batch_size: int | None = None,
        compiled: bool = False,
    ) -> Iterator[tuple[K, Any]]:
        """(key, function(task)) of every task, in the order in which they finish; with "serial" in the given order.

        `shared` is one value that every task reads; it is sent to each worker once and is the same object for all tasks
        there. `name` is the name of the pass in `progress`, which counts single tasks. `batch_size` is the number of
        tasks that are sent together (default: eight batches per worker). `compiled` says that the tasks spend most of
        their time in kernels that release the interpreter lock.

        Nothing is executed before the first result is requested. Raises the error of a task, with its type, after the
        results that preceded it; CancelledError when `cancel` is set (checked between tasks: a running task is not
        stopped); ExecutorError when the workers or their scheduler are gone. Results that were yielded stay valid.
        """
        counter = TaskCount(name, len(tasks), progress)
        work = Work(
            function=function, tasks=tasks, shared=shared, counter=counter, cancel=cancel, batch_size=batch_size
        )
        results: Results[K] = self._results(work, compiled)
        try:
            for key, value in results:
                counter.add()
                yield key, value
        finally:
            results.close()

    def _results(self, work: Work, compiled: bool) -> Results[Any]:
        here = self.scheduler == "auto" and self._pool is None
        if self.scheduler == "serial":
            yield from _serial(work)
        elif self.scheduler == "threads" or (here and compiled and self.on_few_cores):
            yield from _threads(work, self.workers)
        elif here:
            left = dict(work.tasks)
            for key, value in _serial(work):
                del left[key]
                yield key, value
                if self._worth_moving(work.counter, len(left)):
                    self._start_beside()
                if self._pool is not None and len(left) > 1:
                    yield from self._pool.run(replace(work, tasks=left))
                    return
        elif work.tasks:
            yield from self.start().run(work)

    def _worth_moving(self, counter: TaskCount, left: int) -> bool:
        if self.workers < 2 or left < 2 or counter.elapsed < tuning.AUTO_STAY_SECONDS or self.warnings:
            return False
        # Where other programs keep the processors busy, workers would only share them.
        return counter.busy / counter.done * left > tuning.AUTO_LEFT_SECONDS

    def _start_beside(self) -> None:
        """Start workers in a background thread; a failure becomes a warning."""

        def start() -> None:
            try:
                self.start()
            except _ClosedError:
                pass
            except (ExecutorError, ImportError, OSError, RuntimeError) as error:
                self.warnings.append(f"Worker processes could not be started, so the work stays in this one: {error}")

        with self._start_or_close:
            if self._starting is None and not self._closing.is_set():
                self._starting = threading.Thread(target=start, name="alpa-explore-start", daemon=True)
                self._starting.start()

    def start(self) -> DaskPool:
        """The workers, started where they are not yet running. Raises ExecutorError, CancelledError."""
        from alpa_explore.execution import dask_pool

        with self._lock:
            if self._pool is None:
                where = "processes" if self.scheduler == "auto" else self.scheduler
                if self.scheduler == "auto" and self._closing.is_set():
                    raise _ClosedError
                pool = dask_pool.open_pool(where, self.workers)
                if self.scheduler == "auto":
                    self._wait_beside(pool)
                    if self._warm_up is not None:
                        try:
                            pool.warm(self._warm_up)
                        except BaseException:
                            pool.close()  # nobody else knows of it yet
                            raise
                self._pool = pool
            return self._pool

    def _wait_beside(self, pool: DaskPool) -> None:
        """Wait for the workers of a new pool; end the pool when that fails or the executor is closed meanwhile."""
        try:
            pool.wait(self._closing)
            if self._closing.is_set():
                raise _ClosedError
        except BaseException:
            pool.close()
            raise


class _ClosedError(Exception):
    """The executor was closed while its workers were being started."""


def _serial(work: Work) -> Results[Any]:
    for key, task in work.tasks.items():
        work.check()
        yield key, work.one(task)


def _threads(work: Work, workers: int) -> Results[Any]:
    with futures.ThreadPoolExecutor(workers, thread_name_prefix="alpa-explore") as pool:
        keys = {pool.submit(work.one, task): key for key, task in work.tasks.items()}
        waiting = set(keys)
        try:
            while waiting:
                work.check()
                done, waiting = futures.wait(waiting, timeout=0.1, return_when=futures.FIRST_COMPLETED)
                for future in sorted(done, key=lambda future: future.exception() is not None):  # errors last
                    yield keys[future], future.result()
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def available_cores() -> int:
    """The number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
