"""The price books of a search: read from the cache, sharpened by tasks on the executor, and written back.

The books of all problems on one mesh are one entry of the cache. What another process has written there since is kept.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256

from alpa_explore.cluster import LogicalMesh
from alpa_explore.errors import CancelledError
from alpa_explore.execution.executors import Executor
from alpa_explore.execution.progress import ProgressCallback
from alpa_explore.intra_op.composition.cut_blocks import Range
from alpa_explore.intra_op.stage.layered_graph import LayeredGraph
from alpa_explore.pricing.price_book import PriceBook, Reading, dump, load
from alpa_explore.pricing.stage_costs import Screened
from alpa_explore.pricing.tasks import Task, run_task
from alpa_explore.search.tuning import SECONDS_BETWEEN_WRITES
from alpa_explore.store.cache import Store

OnMesh = tuple[int, LogicalMesh]
"""(version, squeezed mesh)."""

_NOTHING = PriceBook()


@dataclass(frozen=True, slots=True, kw_only=True)
class SolveContext:
    """How problems are solved: the solver, the executor, the cache, and the progress and cancellation of the solves."""

    solver: str
    executor: Executor
    store: Store | None
    progress: ProgressCallback | None = None
    cancel: threading.Event | None = None


class Library:
    """The books of the problems of some versions of a layering."""

    def __init__(
        self,
        versions: Sequence[LayeredGraph],
        solving: SolveContext,
        tasks: Mapping[str, Task],
        unsampled: Mapping[str, Screened],
        *,
        leaner: bool,
    ) -> None:
        """`tasks` has for every problem a task for its range, `unsampled` what bounds its choices without a solve;
        `leaner` is that of `Reading`."""
        self.tasks, self._versions, self._solving, self._leaner = tasks, tuple(versions), solving, leaner
        self._unsampled = dict(unsampled)
        self._books: dict[str, PriceBook] = {}
        self._readings: dict[str, Reading] = {}
        self._grown: set[str] = set()
        """Problems about which a task has found something."""
        self._news: set[str] = set()
        self._unwritten: set[OnMesh] = set()
        self._written = time.monotonic()
        self.problems_on: dict[OnMesh, dict[Range, str]] = {}
        """The distinct problems on a mesh, by a range that has it."""
        for key, task in tasks.items():
            self.problems_on.setdefault(task.on, {})[task.ranges[0][0]] = key
        for on in self.problems_on:
            self._books |= self._stored(on)

    def __getitem__(self, key: str) -> PriceBook:
        return self._books.get(key, _NOTHING)

    def read(self, key: str) -> Reading:
        """What the book of a problem says now."""
        book, reading = self[key], self._readings.get(key)
        if reading is None or reading.book is not book:
            task = self.tasks[key]
            reading = self._readings[key] = Reading(
                book=book,
                inverse_b=task.inverse_b,
                memory_bytes=task.device.memory_bytes,
                least_held=task.least_held,
                most_held=task.ranges[0][1],
                leaner=self._leaner,
                unsampled=self._unsampled.get(key),
            )
        return reading

    def is_sampled(self, key: str) -> bool:
        """Whether the search has asked for choices of this problem. Those of an earlier search do not count: the plan
        does not depend on what the cache has."""
        return key not in self._unsampled

    def sampled(self, keys: Iterable[str]) -> None:
        """Have the choices of these problems count."""
        for key in keys:
            self._unsampled.pop(key, None)
            self._readings.pop(key, None)
            self._news.add(key)

    def news(self) -> set[str]:
        """The problems whose readings have changed since this was asked last."""
        news, self._news = self._news, set()
        return news

    def books(self) -> list[PriceBook]:
        """All that are known."""
        return list(self._books.values())

    @property
    def cached(self) -> int:
        """How many books needed no task."""
        return len(self._books.keys() - self._grown)

    def stop_if_cancelled(self) -> None:
        """CancelledError when cancelled, also where the cache knows all that is asked for."""
        if self._solving.cancel is not None and self._solving.cancel.is_set():
            raise CancelledError(
                "The search was cancelled",
                found=f"{len(self._books)} of {len(self.tasks)} problems have prices",
                remedy="Start again to continue: what was found is kept in the cache.",
            )

    def run(self, tasks: Sequence[Task]) -> None:
        """Run tasks, and add what they find. Those on meshes and others are not mixed; the progress counts all as the
        first. CancelledError when cancelled: what was found is kept."""
        if not tasks:
            return
        on_mesh = tasks[0].on_mesh
        # Long tasks first: the last worker to finish should finish a short one. Meshes of two axes have larger tables.
        order = sorted(range(len(tasks)), key=lambda i: -len(tasks[i].mesh.shape) if on_mesh else -_length(tasks[i]))
        results = self._solving.executor.map(
            run_task,
            {i: tasks[i] for i in order},
            shared=self._versions,
            name=tasks[0].search.value,
            progress=self._solving.progress,
            cancel=self._solving.cancel,
            # On meshes a task runs long enough, and none waits in a batch while another worker is idle.
            batch_size=1 if on_mesh else None,
            compiled=on_mesh,
        )
        try:
            for i, found in results:
                self._add(tasks[i].on, found)
                if time.monotonic() > self._written + SECONDS_BETWEEN_WRITES:
                    self._write()
        finally:
            self._write()

    def _add(self, on: OnMesh, found: Mapping[Range, PriceBook]) -> None:
        for layers, book in found.items():
            key = self.problems_on[on][layers]
            self._books[key] = replace(self[key].merged(book), solves=self[key].solves + book.solves)
            self._grown.add(key)
            self._news.add(key)
        self._unwritten.add(on)

    def _entry(self, on: OnMesh) -> str:
        """The name of an entry of the cache."""
        return f"{sha256(repr(sorted(self.problems_on[on].values())).encode()).hexdigest()}-prices"

    def _stored(self, on: OnMesh) -> dict[str, PriceBook]:
        """The books of a mesh as the cache has them now."""
        store = self._solving.store
        return {} if store is None or (stored := store.get(self._entry(on))) is None else load(stored)

    def _write(self) -> None:
        """Write to the cache what was found."""
        if (store := self._solving.store) is not None:
            for on in self._unwritten:
                books = self._stored(on)
                for key in self.problems_on[on].values():
                    if key in self._books:
                        books[key] = self[key].merged(books.get(key, _NOTHING))
                store.put(self._entry(on), dump(books))
        self._unwritten.clear()
        self._written = time.monotonic()


def _length(task: Task) -> int:
    (((first, last), _),) = task.ranges
    return last - first
