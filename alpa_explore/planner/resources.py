"""The resources of a planner call: executor, cache of solves, progress and cancellation."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, replace
from typing import Any

from alpa_explore.cluster import Cluster
from alpa_explore.execution.executors import Executor
from alpa_explore.execution.progress import Progress, ProgressCallback
from alpa_explore.numerics.memory import no_collection
from alpa_explore.planner import tuning
from alpa_explore.planner.kernels_meanwhile import kernels_meanwhile
from alpa_explore.pricing.warm_up import warm_up_worker
from alpa_explore.search.library import SolveContext
from alpa_explore.search.profile_stages import SOLVED_BY, SOLVED_WITH
from alpa_explore.store.cache import SolveCache
from alpa_explore.store.code_version import code_version
from alpa_explore.tracing.cancelling import cancelled_by


class Clock:
    """`with clock("layering"): …` adds ("layering", seconds) to `seconds`, and announces the pass."""

    def __init__(self, progress: ProgressCallback | None = None) -> None:
        self._progress = progress
        self.seconds: list[tuple[str, float]] = []

    @contextmanager
    def __call__(self, name: str) -> Iterator[None]:
        """Measure the block as this pass."""
        if self._progress is not None:
            self._progress(Progress(pass_name=name, done=0, total=0, elapsed_seconds=0.0))
        start = time.perf_counter()
        yield
        self.seconds.append((name, time.perf_counter() - start))


@dataclass(frozen=True, slots=True, kw_only=True)
class Resources:
    """The resources of one planner call; they are open until it returns."""

    executor: Executor
    store: SolveCache | None
    progress: ProgressCallback | None
    cancel: threading.Event | None

    @property
    def warnings(self) -> tuple[str, ...]:
        """Problems of cache and executor that did not stop the work."""
        return (*(self.store.warnings if self.store is not None else ()), *self.executor.warnings)

    @contextmanager
    def capturing(self, *, many: bool) -> Iterator[None]:
        """Makes the capture in this block cancellable; if it takes long, kernels are compiled, and the workers started
        where `many` problems follow that threads do not solve, meanwhile."""
        workers = self.executor.preparing() if many and not self.executor.on_few_cores else nullcontext()
        with kernels_meanwhile(self.cancel), cancelled_by(self.cancel), workers:
            yield

    def solving(self, solver: str) -> SolveContext:
        """How `profile_stages` solves."""
        return SolveContext(
            solver=solver, executor=self.executor, store=self.store, progress=self.progress, cancel=self.cancel
        )

    def named(self, prefix: str) -> Resources:
        """The same resources, with `prefix` before the name of every pass in the progress."""
        progress = self.progress
        if progress is None:
            return self
        return replace(self, progress=lambda seen: progress(replace(seen, pass_name=f"{prefix}: {seen.pass_name}")))


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """Where a planner call runs and who watches it; the fields are arguments of `ax.plan`."""

    scheduler: Any = None
    cache: bool = True
    progress: ProgressCallback | None = None
    cancel: threading.Event | None = None

    @contextmanager
    def resources(self) -> Iterator[Resources]:
        """Resources that are closed at the end of the block, in which no garbage is collected: a plan makes a million
        objects that it keeps, and hardly a cycle."""
        with no_collection(), ExitStack() as stack:
            executor = stack.enter_context(Executor(self.scheduler, warm_up=warm_up_worker))
            store = solve_cache() if self.cache else None
            yield Resources(executor=executor, store=store, progress=self.progress, cancel=self.cancel)


def solve_cache() -> SolveCache:
    """The cache in the user's cache folder of what this code, with these libraries, has captured and solved."""
    return SolveCache(code_version=code_version(SOLVED_BY, SOLVED_WITH))


def many_problems(cluster: Cluster) -> bool:
    """Whether a new plan on this cluster has so many meshes that workers are worth starting before the first solve."""
    return cluster.devices >= tuning.DEVICES_WORTH_WORKERS
