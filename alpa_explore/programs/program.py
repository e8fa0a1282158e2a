"""A program: the instructions of every rank for each kind of task, and the order of the tasks.

The instructions of a forward, backward or update task are stored once; the schedule defines for which microbatches and
when they run. The size of a program therefore depends on stages, ranks and operators, not on microbatches.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from alpa_explore.graph import TrainingGraph
from alpa_explore.programs.instruction import Box, Instruction
from alpa_explore.schedules.task import ONCE_AN_ITERATION, Action, Schedule, Task


@dataclass(frozen=True, slots=True, kw_only=True)
class Lasting:
    """A value that outlives a microbatch: a weight, a buffer, or the sum of a gradient."""

    value: int
    tensor: int
    """The tensor of the graph; for a sum of gradients, the gradient that the update reads."""
    box: Box
    """The part of the tensor that the rank holds."""
    zero: bool
    """True for a sum of gradients, which is set to zero at the start of every iteration."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class StageProgram:
    """The instructions of one stage."""

    ranks: tuple[int, ...]
    tasks: Mapping[Action, Mapping[int, tuple[Instruction, ...]]] = field(repr=False)
    """action -> rank -> instructions; in the order in which they run. The backward task is BACKWARD, or BACKWARD_INPUT
    and BACKWARD_WEIGHT; the update is UPDATE, or ONCE_AN_ITERATION (see `programs.lowering.lower`)."""
    lasting: Mapping[int, tuple[Lasting, ...]] = field(repr=False)
    """Rank -> the values that outlive a microbatch."""
    loss: int | None
    """The value of the loss after the forward task; None for a stage that does not compute it."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Program:
    """The instructions of all stages, and the schedule that orders their tasks."""

    graph: TrainingGraph
    schedule: Schedule
    stages: tuple[StageProgram, ...]
    frozen: tuple[str, ...] = ()
    """Buffers that the forward pass of the module writes and the ranks do not: they keep their first values."""

    @property
    def ranks(self) -> tuple[int, ...]:
        """All ranks, ascending."""
        return tuple(sorted({rank for stage in self.stages for rank in stage.ranks}))

    def order(self, rank: int) -> tuple[Task, ...]:
        """The tasks of a rank in an iteration: those of the schedule, then the updates of its stages.

        Where an update is in three parts, each part runs for all stages of the rank before the next part begins.
        """
        submesh = self.schedule.submesh_of_stage[self._stages_of(rank)[0]]
        return (*self.schedule.order(submesh), *self.updates(rank))

    def updates(self, rank: int) -> tuple[Task, ...]:
        """The update tasks of a rank, in order; they follow the tasks of the schedule."""
        stages = self._stages_of(rank)
        return tuple(Task(a, stage, 0) for a in ONCE_AN_ITERATION for stage in stages if a in self.stages[stage].tasks)

    def _stages_of(self, rank: int) -> list[int]:
        return [number for number, stage in enumerate(self.stages) if rank in stage.ranks]

    def of_rank(self, rank: int) -> Program:
        """The same program with the instructions of one rank only."""
        stages = [
            replace(
                stage,
                lasting={r: of_ranks for r, of_ranks in stage.lasting.items() if r == rank},
                tasks={
                    a: {r: instructions for r, instructions in of_ranks.items() if r == rank}
                    for a, of_ranks in stage.tasks.items()
                },
            )
            for stage in self.stages
        ]
        return replace(self, stages=tuple(stages))

    def instructions(self, rank: int | None = None) -> Iterator[tuple[int, tuple[int, Action], Instruction]]:
        """(rank, (stage, action), instruction) of one rank, or of all, stage by stage, each rank's in order."""
        for number, stage in enumerate(self.stages):
            for action, of_ranks in stage.tasks.items():
                for one in of_ranks if rank is None else (rank,):
                    for instruction in of_ranks.get(one, ()):
                        yield one, (number, action), instruction

    @property
    def instruction_count(self) -> int:
        """The number of instructions of all tasks and ranks."""
        return sum(1 for _ in self.instructions())
