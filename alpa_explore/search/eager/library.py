"""The price books of a search: read from the cache, sharpened by tasks on the executor, and written back.

The books of all problems on one mesh are one entry of the cache. Of two processes that write the same one at once the
last one wins: what the other has found is found again when it is needed.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256

from alpa_explore.execution.executors import Executor
from alpa_explore.execution.progress import ProgressCallback
from alpa_explore.intra_op.composition.cut_blocks import Range
from alpa_explore.intra_op.stage.layered_graph import LayeredGraph
from alpa_explore.pricing.price_book import PriceBook, dump, load
from alpa_explore.pricing.tasks import Task, run_task
from alpa_explore.search.tuning import SECONDS_BETWEEN_WRITES
from alpa_explore.store.cache import Store

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
    """The books of the problems of one layering."""

    def __init__(self, layered: LayeredGraph, solving: SolveContext) -> None:
        self._layered, self._solving = layered, solving
        self._books: dict[str, PriceBook] = {}
        self._entry_of: dict[str, str] = {}
        """Problem -> its entry in the cache."""
        self._keys_in: dict[str, tuple[str, ...]] = {}
        self._reserved: dict[str, float] = {}
        """Entry -> bytes of a device that the software keeps back."""
        self._grown: set[str] = set()
        """Problems about which a task has found something."""
        self._unwritten: set[str] = set()
        """Entries."""
        self._written = time.monotonic()

    def __getitem__(self, key: str) -> PriceBook:
        return self._books.get(key, _NOTHING)

    def books(self) -> list[PriceBook]:
        """All that are known."""
        return list(self._books.values())

    @property
    def cached(self) -> int:
        """How many books needed no task."""
        return len(self._books.keys() - self._grown)

    def open(self, keys: Collection[str], reserved_bytes: float) -> None:
        """Read the books of the problems on one mesh, which are one entry. The software keeps back `reserved_bytes` of
        a device, which may depend on its memory."""
        entry = f"{sha256(repr(sorted(keys)).encode()).hexdigest()}-prices"
        self._keys_in[entry], self._reserved[entry] = tuple(keys), reserved_bytes
        self._entry_of |= dict.fromkeys(keys, entry)
        stored = None if self._solving.store is None else self._solving.store.get(entry)
        if stored is not None:
            more = reserved_bytes - stored["reserved"]
            self._books |= {key: book.with_reserve(more) if more else book for key, book in load(stored).items()}

    def run(self, tasks: Sequence[tuple[Task, Mapping[Range, str]]]) -> None:
        """Run tasks, each with the problems of its ranges, and add what they find. Those on meshes and others are not
        mixed; the progress counts all as the first. CancelledError when cancelled: what was found is kept."""
        if not tasks:
            return
        on_mesh = tasks[0][0].on_mesh
        # Long tasks first: the last worker to finish should finish a short one. Meshes of two axes have larger tables.
        order = sorted(
            range(len(tasks)), key=lambda i: -len(tasks[i][0].mesh.shape) if on_mesh else -_length(tasks[i][0])
        )
        results = self._solving.executor.map(
            run_task,
            {i: tasks[i][0] for i in order},
            shared=self._layered,
            name=tasks[0][0].search.value,
            progress=self._solving.progress,
            cancel=self._solving.cancel,
            # On meshes a task runs long enough, and none waits in a batch while another worker is idle.
            batch_size=1 if on_mesh else None,
            compiled=on_mesh,
        )
        with self._writing():
            for i, found in results:
                self._add({tasks[i][1][layers]: book for layers, book in found.items()})

    def _add(self, found: Mapping[str, PriceBook]) -> None:
        for key, book in found.items():
            self._books[key] = self[key].merged(book)
        self._grown |= found.keys()
        self._unwritten |= {self._entry_of[key] for key in found}
        if time.monotonic() > self._written + SECONDS_BETWEEN_WRITES:
            self._write()

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """Write to the cache what is found, also where the search is cancelled."""
        try:
            yield
        finally:
            self._write()

    def _write(self) -> None:
        if (store := self._solving.store) is not None:
            for entry in self._unwritten:
                known = {key: self._books[key] for key in self._keys_in[entry] if key in self._books}
                store.put(entry, {"reserved": self._reserved[entry], **dump(known)})
        self._unwritten.clear()
        self._written = time.monotonic()


def _length(task: Task) -> int:
    (((first, last), _),) = task.ranges
    return last - first
