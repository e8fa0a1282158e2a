"""Tasks through the cache and the executor: results in the cache are read, the other tasks run on the workers."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from alpa_explore.execution.executors import Executor
from alpa_explore.execution.progress import ProgressCallback
from alpa_explore.intra_op.composition.cut_blocks import Range
from alpa_explore.intra_op.stage.layered_graph import LayeredGraph
from alpa_explore.pricing import cache_entries
from alpa_explore.pricing.frontier import Frontier, added
from alpa_explore.pricing.mesh_tasks import MemoryTask, MeshTask
from alpa_explore.pricing.stage_tasks import StageTask, solve_stage
from alpa_explore.store.cache import Store


@dataclass(kw_only=True, eq=False)
class TaskRunner:
    """Runs the tasks whose results are not in the cache; `cached` counts the results that were."""

    layered: LayeredGraph
    executor: Executor
    store: Store | None
    progress: ProgressCallback | None
    cancel: threading.Event | None
    cached: int = 0
    finished: dict[str, tuple[str, Mapping[Range, Frontier]]] = field(default_factory=dict)
    """Task on meshes -> its pass, and what it has found: also of a pass that is cancelled before all tasks are done."""

    def solve(self, tasks: Mapping[str, StageTask]) -> dict[str, Frontier]:
        """The frontier of every task."""
        if not tasks:
            return {}
        names = {key: f"{key}-{task.search.value}{task.least_held}-{task.held}" for key, task in tasks.items()}
        done = {key: next(iter(cache_entries.load(entry).values())) for key, entry in self._stored(names)}
        self.cached += len(done)
        # Long problems first: the last worker to finish should finish a short one.
        todo = sorted((k for k in tasks if k not in done), key=lambda k: tasks[k].first - tasks[k].last)
        pass_name = next(iter(tasks.values())).search.value
        for key, frontier in self._map(solve_stage, {k: tasks[k] for k in todo}, pass_name):
            done[key] = frontier
            self._keep(names[key], cache_entries.dump({(tasks[key].first, tasks[key].last): frontier}))
        return done

    def on_meshes(
        self, function: Callable[..., Any], tasks: Mapping[str, MeshTask | MemoryTask], name: str
    ) -> dict[str, dict[Range, Frontier]]:
        """The frontiers of the ranges of every task; those that cannot be composed are left out."""
        done = self.stored_on_meshes(tasks, name)
        jobs = {key: Job(function, task, name) for key, task in tasks.items() if key not in done}
        return done | self.run_on_meshes(jobs)

    def stored_on_meshes(self, tasks: Collection[str], name: str) -> dict[str, dict[Range, Frontier]]:
        """The results of these tasks that are in the cache."""
        done = {key: cache_entries.load(stored) for key, stored in self._stored(entry_names(tasks, name))}
        self.cached += sum(map(len, done.values()))
        return done

    def run_on_meshes(
        self, jobs: Mapping[str, Job], *, known: Mapping[str, Mapping[Range, Frontier]] | None = None
    ) -> dict[str, dict[Range, Frontier]]:
        """The results of tasks that are not in the cache; those of tasks in `known` add to what is known. The progress
        counts them all as those of the first."""
        done: dict[str, dict[Range, Frontier]] = {}
        # Meshes of two axes have the larger tables.
        todo = sorted(jobs, key=lambda k: -len(jobs[k].task.mesh.shape))
        name = next((job.name for job in jobs.values()), "")
        # One task per batch: each runs long enough, and none waits in a batch while another worker is idle.
        for key, frontiers in self._map(run_job, {k: jobs[k] for k in todo}, name, batch_size=1, compiled=True):
            if known is not None and key in known:
                frontiers = {r: added(known[key][r], frontier) for r, frontier in frontiers.items()}
            done[key] = frontiers
            self.finished[key] = jobs[key].name, frontiers
            self._keep(entry_name(key, jobs[key].name), cache_entries.dump(frontiers))
        return done

    def _stored(self, names: Mapping[str, str]) -> Iterator[tuple[str, dict[str, Any]]]:
        for key, name in names.items():
            if self.store is not None and (stored := self.store.get(name)) is not None:
                yield key, stored

    def _keep(self, name: str, entry: dict[str, Any]) -> None:
        if self.store is not None:
            self.store.put(name, entry)

    def _map(
        self,
        function: Callable[..., Any],
        tasks: Mapping[str, Any],
        name: str,
        batch_size: int | None = None,
        *,
        compiled: bool = False,
    ) -> Iterator[tuple[str, Any]]:
        if tasks:
            yield from self.executor.map(
                function,
                tasks,
                shared=self.layered,
                name=name,
                progress=self.progress,
                cancel=self.cancel,
                batch_size=batch_size,
                compiled=compiled,
            )


class Job(NamedTuple):
    """A task on a mesh, and what is done with it."""

    function: Callable[[LayeredGraph, Any], dict[Range, Frontier]]
    task: MeshTask | MemoryTask
    name: str
    """Of its pass, in the progress and in the cache."""


def run_job(layered: LayeredGraph, job: Job) -> dict[Range, Frontier]:
    """The frontiers of the ranges of a task (runs on a Dask worker)."""
    return job.function(layered, job.task)


def entry_names(keys: Collection[str], name: str) -> dict[str, str]:
    """For each task on a mesh the key of its result in the cache; `name` is that of the pass."""
    return {key: entry_name(key, name) for key in keys}


def entry_name(key: str, name: str) -> str:
    """The same for one task."""
    return f"{key}-{name.replace(' ', '-')}"
