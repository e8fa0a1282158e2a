"""Searches for choices that fit in memory, for composed problems: recalled from another B, or run as tasks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256

from alpa_explore.intra_op.composition.cut_blocks import Range
from alpa_explore.pricing.frontier import Frontier
from alpa_explore.pricing.mesh_tasks import MemoryTask, bound_within_memory, compose_within_memory
from alpa_explore.pricing.stage_tasks import Search, StageTask
from alpa_explore.search.eager.convergence import Convergence
from alpa_explore.search.eager.known_within_memory import KnownWithinMemory
from alpa_explore.search.eager.task_runner import Job, TaskRunner, entry_name
from alpa_explore.search.stages.stage_problems import StageProblems

COMPOSITION = {Search.BOUNDED_WITHIN_MEMORY: bound_within_memory, Search.COMPOSED_WITHIN_MEMORY: compose_within_memory}
"""The searches, and what a task of each runs."""


@dataclass(eq=False)
class WithinMemory:
    """Writes to `convergence` what is found."""

    tasks: Mapping[str, StageTask]
    convergence: Convergence
    problems: StageProblems
    runner: TaskRunner
    known: KnownWithinMemory
    _recalled: set[str] = field(default_factory=set)
    """Problems for which the cache was asked."""

    def recall(self, keys: Sequence[str]) -> bool:
        """Take what the cache has for these problems from a larger B, once; whether there is any."""
        found = False
        for key in (key for key in keys if key not in self._recalled):
            self._recalled.add(key)
            task = self._task(key, ())
            for frontier in self.known.find(self._alike(task), task.device.memory_bytes, task.inverse_b):
                self.convergence.add(key, frontier)
                found = True
        return found

    def jobs(self, search: Search, keys: Sequence[str]) -> dict[str, Job]:
        """The jobs for these problems, for each number of microbatches held at which memory is short. Results that are
        in the cache are recorded, and need no job."""
        todo: dict[str, MemoryTask] = {}
        for key in keys:
            task = self.tasks[key]
            counts = tuple(
                held for held in range(task.least_held, task.held + 1) if self.convergence.short_of_memory(key, held)
            )
            todo[f"{key}-{sha256(repr(counts).encode()).hexdigest()[:16]}"] = self._task(key, counts)
        stored = self.runner.stored_on_meshes(todo, search.value)
        jobs = {name: Job(COMPOSITION[search], task, search.value) for name, task in todo.items()}
        self.record({name: jobs.pop(name) for name in stored}, stored)
        return jobs

    def record(self, jobs: Mapping[str, Job], found: Mapping[str, Mapping[Range, Frontier]]) -> None:
        """Take the results of jobs, which the cache has by now, and let other B find them there."""
        for name, job in jobs.items():
            (frontier,) = found[name].values()
            self.convergence.add(name.partition("-")[0], frontier)
            assert isinstance(job.task, MemoryTask), "the jobs of this class"
            self.known.add(self._alike(job.task), job.task, entry_name(name, job.name))

    def _task(self, key: str, counts: tuple[int, ...]) -> MemoryTask:
        task = self.tasks[key]
        return MemoryTask(
            range=(task.first, task.last),
            counts=counts,
            mesh=task.mesh,
            device=task.device,
            inverse_b=task.inverse_b,
            discoveries=task.discoveries,
        )

    def _alike(self, task: MemoryTask) -> str:
        (alike,) = self.problems.alike([task.range], task.mesh, task.device, task.discoveries).values()
        return alike
