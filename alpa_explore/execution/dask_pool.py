"""Execute tasks on the workers of a Dask scheduler.

This module imports dask; `executors` imports it when it is needed.
"""

from __future__ import annotations

import pickle
import queue
import threading
import time
import uuid
import zlib
from collections.abc import Callable, Generator, Hashable, Sequence
from contextlib import ExitStack, suppress
from typing import Any, TypeVar

import cloudpickle
import distributed

from alpa_explore.errors import ExecutorError, OptionError
from alpa_explore.execution import tuning
from alpa_explore.execution.client import client_of
from alpa_explore.execution.progress import NOTHING_SHARED, TaskCount, Work, call

K = TypeVar("K", bound=Hashable)
Future = Any
"""distributed.Future."""

_ADVICE = "Run again: what was finished is kept. scheduler='serial' needs no workers."


def open_pool(where: Any, workers: int) -> DaskPool:
    """Connect to `where`: "processes" (workers are started here), an address, or a Client of the user."""
    if where == "processes":
        return _local_pool(workers)
    if not isinstance(where, str | distributed.Client):
        raise OptionError(
            "Unknown scheduler", found=repr(where), remedy="Give a name, an address 'tcp://…' or a dask Client."
        )
    end = ExitStack()
    return DaskPool(end.enter_context(client_of(where)), close=end.close)


def _local_pool(workers: int) -> DaskPool:
    from alpa_explore.execution.local_cluster import LocalCluster

    try:
        cluster = LocalCluster(workers)
    except ImportError as error:  # the keys of its connections are made by cryptography
        raise ExecutorError(
            "Worker processes cannot be started",
            found=str(error),
            remedy="pip install cryptography, or scheduler='threads' (--scheduler threads).",
        ) from error
    with ExitStack() as end:
        end.callback(cluster.close)
        client = end.enter_context(client_of(cluster))
        return DaskPool(client, close=end.pop_all().close, expected=workers)


class DaskPool:
    """A connected client, and how to close it; `expected` is the number of workers that are being started."""

    def __init__(self, client: Any, *, close: Callable[[], None], expected: int = 1) -> None:
        self.client, self.close, self.expected = client, close, expected
        self._warming: list[Future] = []
        self._last_shared: tuple[Any, Future] | None = None

    def warm(self, function: Callable[[], None]) -> None:
        """Submit `function` to every worker, to be executed before its first task; does not wait."""
        blob = _pack(function)
        for address in self.client.nthreads():
            name = f"alpa-explore-warm-{uuid.uuid4().hex[:12]}"
            self._warming.append(self.client.submit(_run_alone, blob, workers=[address], key=name, pure=False))

    def run(self, work: Work) -> Generator[tuple[Any, Any], None, None]:
        """(key, value) of the tasks as batches finish; raises the error of the first failing task."""
        batches = _batches(list(work.tasks), self.wait(), work.batch_size)
        if not batches:
            return
        finished: queue.SimpleQueue[Future] = queue.SimpleQueue()
        name, is_shared = f"alpa-explore-{work.counter.name}-{uuid.uuid4().hex[:12]}", work.shared is not NOTHING_SHARED
        keys: dict[str, Sequence[Any]] = {}
        pending: dict[str, Future] = {}
        try:
            common = self._on_every_worker(work, name, finished) if is_shared else None
            for number, batch in enumerate(batches):
                payload = _pack((work.function, [work.tasks[key] for key in batch]))
                future = self.client.submit(_run_batch, payload, common, is_shared, key=f"{name}-{number}", pure=False)
                keys[future.key], pending[future.key] = batch, future
                future.add_done_callback(finished.put)
            while pending:
                future = self._next(finished, work)
                values, error = self._outcome(future, work.counter)
                del pending[future.key]
                yield from zip(keys[future.key], values, strict=False)
                if error is not None:
                    raise error
        finally:
            if pending and self.client.status == "running":
                with suppress(OSError):  # the connection may break just now
                    self.client.cancel(list(pending.values()))

    def _on_every_worker(self, work: Work, name: str, finished: queue.SimpleQueue[Future]) -> Future:
        """The future of the shared value, with a copy on every worker. The last shared value is reused."""
        last = self._last_shared
        if last is None or last[0] is not work.shared or last[1].status != "finished":
            # As the result of a task it is computed again when its last worker dies. It must be on every worker before
            # the batches are submitted, else the scheduler would place them all on the worker that has it.
            common = self.client.submit(_unpack, _pack(work.shared), key=f"{name}-shared", pure=False)
            common.add_done_callback(finished.put)
            if (sent := self._next(finished, work)).status != "finished":
                self._outcome(sent, work.counter)  # raises what kept it from a worker, such as a missing module
            last = self._last_shared = work.shared, common
        self.client.replicate(last[1])  # workers may have come since
        return last[1]

    def wait(self, stop: threading.Event | None = None) -> int:
        """Wait for a first worker, and shortly for all expected ones; the number of threads that they have together.

        Returns early, whatever has started by then, once `stop` is set.
        """
        if self.expected > 1:
            self._wait_for(self.expected, tuning.CONNECT_SECONDS, stop)
        if not self._wait_for(1, tuning.WORKERS_SECONDS, stop):
            raise ExecutorError(
                "The dask scheduler has no workers",
                found=f"none came within {tuning.WORKERS_SECONDS} s",
                remedy="Start workers (`dask worker ADDRESS`), or leave the scheduler out.",
            )
        return sum(self.client.nthreads().values()) or 1

    def _wait_for(self, count: int, seconds: float, stop: threading.Event | None) -> bool:
        """Wait until `count` workers have come or `stop` is set; False when neither happens in time."""
        end = time.monotonic() + seconds
        while stop is None or not stop.is_set():
            left = end - time.monotonic()
            if left <= 0:
                return False
            with suppress(TimeoutError):
                self.client.wait_for_workers(count, timeout=left if stop is None else min(left, tuning.LOOK_SECONDS))
                return True
        return True

    def _next(self, finished: queue.SimpleQueue[Future], work: Work) -> Future:
        """The next finished batch; meanwhile checks for cancellation and for a dead scheduler or workers."""
        workers_seen = time.monotonic()
        looked = workers_seen
        while True:
            work.check()
            try:
                future = finished.get(timeout=tuning.LOOK_SECONDS)
                if future.status not in ("lost", "pending"):
                    return future
                # Its worker died with the result before it was fetched; the scheduler computes it again.
                future.add_done_callback(finished.put)
            except queue.Empty:
                self._check_alive(work.counter)
            now = time.monotonic()
            if now - looked > 5:
                looked = now
                if self.client.nthreads():
                    workers_seen = now
            if now - workers_seen > tuning.WORKERS_SECONDS:
                raise self._gone(
                    "All workers are gone", f"none came back within {tuning.WORKERS_SECONDS} s", work.counter
                )

    def _check_alive(self, counter: TaskCount) -> None:
        if self.client.status != "running":
            raise self._gone("The dask scheduler is gone", "it closed the connection", counter)

    def _outcome(self, future: Future, counter: TaskCount) -> tuple[list[Any], Exception | None]:
        """The values of a batch up to the first error, and that error."""
        try:
            if future.status in ("finished", "error"):
                values, error = _unpack(future.result())
                return values, error
        except distributed.KilledWorker as error:
            raise self._gone(
                "A task ended every worker that ran it", f"{error.allowed_failures + 1} workers died", counter
            ) from error
        except OSError as error:
            raise self._gone("A result could not be fetched", str(error) or repr(error), counter) from error
        self._check_alive(counter)
        raise self._gone("The dask scheduler dropped a task", f"it is {future.status}", counter)

    def _gone(self, what: str, found: str, counter: TaskCount) -> ExecutorError:
        return ExecutorError(
            what, found=f"{found}; {counter.done} of {counter.total} tasks of {counter.name} were done", remedy=_ADVICE
        )


def _batches(keys: list[K], slots: int, batch_size: int | None) -> list[list[K]]:
    """Divide tasks into batches, every n-th one into the same batch: callers put long tasks first."""
    count = -(-len(keys) // batch_size) if batch_size else min(len(keys), slots * tuning.BATCHES_PER_WORKER)
    return [keys[number::count] for number in range(count)]


def _run_alone(blob: bytes) -> None:
    """Run on a worker."""
    _unpack(blob)()


def _run_batch(payload: bytes, shared: Any, is_shared: bool) -> bytes:
    """Run on a worker."""
    function, tasks = _unpack(payload)
    values: list[Any] = []
    for task in tasks:
        try:
            values.append(call(function, shared if is_shared else NOTHING_SHARED, task))
        except Exception as error:
            return _pack((values, _portable(error)))
    return _pack((values, None))


def _portable(error: Exception) -> Exception:
    """The error itself if it can be pickled, else a RuntimeError with its text."""
    try:
        copy: Exception = pickle.loads(cloudpickle.dumps(error))
        return copy
    except Exception:
        return RuntimeError(f"{type(error).__name__}: {error}")


def _pack(value: Any) -> bytes:
    # Bytes, because dask would traverse other values; compressed, because graphs shrink tenfold.
    return zlib.compress(cloudpickle.dumps(value), 1)


def _unpack(blob: bytes) -> Any:
    return pickle.loads(zlib.decompress(blob))
