"""A program: the instructions of every rank for each kind of task, and the order of the tasks.

The instructions of a forward, backward or update task are stored once; the schedule defines for which microbatches and
when they run. The size of a program therefore depends on stages, ranks and operators, not on microbatches.

Instructions read and write values, which are identified by numbers. Every rank has values of its own; the ranks of one
stage use the same numbers for the same tensors. A box is the part of a tensor that a rank holds: (start, stop) by dim.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import ClassVar, TypeAlias

from alpa_explore.graph import Operator, TrainingGraph
from alpa_explore.schedules.task import ONCE_AN_ITERATION, Action, Schedule, Task
from alpa_explore.sharding.local.steps import Reduction
from alpa_explore.sharding.reshard import StepKind

Box: TypeAlias = tuple[tuple[int, int], ...]


class _Instruction:
    """What it reads and writes is in the fields that `READS` and `WRITES` name."""

    __slots__ = ()
    READS: ClassVar[tuple[str, ...]] = ("source",)
    WRITES: ClassVar[tuple[str, ...]] = ("target",)

    @property
    def reads(self) -> tuple[int, ...]:
        """Values that must exist."""
        return tuple(getattr(self, name) for name in self.READS)

    @property
    def writes(self) -> tuple[int, ...]:
        """Values that exist afterwards."""
        return tuple(getattr(self, name) for name in self.WRITES)


@dataclass(frozen=True, slots=True, kw_only=True)
class Load(_Instruction):
    """Load the rank's box of an input of this microbatch."""

    READS = ()
    tensor: int
    box: Box
    target: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Count(_Instruction):
    """Compute the divisor of a mean loss: the mean number of targets of the microbatches of this iteration."""

    READS = ()
    loss: int
    """Index of the loss in `graph.operators`."""
    target: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Compute(_Instruction):
    """Run an operator on local shards (`sharding.local`); its Refs, inputs and outputs are numbers of values."""

    operator: Operator
    seed: tuple[int, ...] | None = None
    """For an operator that draws random numbers: what they depend on besides the microbatch."""

    @property
    def reads(self) -> tuple[int, ...]:
        """Values that must exist."""
        return self.operator.inputs

    @property
    def writes(self) -> tuple[int, ...]:
        """Values that exist afterwards."""
        return self.operator.outputs


@dataclass(frozen=True, slots=True, kw_only=True)
class Collective(_Instruction):
    """A collective of `ranks`, in this order.

    `joined` is the dim along which pieces are concatenated, `cut` the dim along which the result is split; None where
    the kind of collective has no such dim. `reduction` is how an all-reduce or a reduce-scatter combines the pieces. In
    a permutation the ranks have len(order) chunks of dim `cut` in all, and number order[i] becomes the i-th. `sizes` of
    an all-to-all of rows are two values: the rows that go to each rank, and those that come from each.
    """

    kind: StepKind
    ranks: tuple[int, ...]
    source: int
    target: int
    joined: int | None = None
    cut: int | None = None
    reduction: Reduction = Reduction.SUM
    order: tuple[int, ...] = ()
    sizes: tuple[int, ...] = ()

    @property
    def reads(self) -> tuple[int, ...]:
        """Values that must exist."""
        return (self.source, *self.sizes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Slice(_Instruction):
    """Take piece number `piece` of `pieces` along a dim; with one piece, the whole value under another number."""

    source: int
    target: int
    dim: int
    piece: int
    pieces: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Send(_Instruction):
    """Send a box of a value (in coordinates of the value) to another rank, without waiting."""

    WRITES = ()
    source: int
    to: int
    message: int
    """Identifies the message: unique between two ranks within one task."""
    box: Box


@dataclass(frozen=True, slots=True, kw_only=True)
class Receive(_Instruction):
    """Wait for boxes that other ranks send, and assemble them to a value."""

    READS = ()
    target: int
    message: int
    shape: tuple[int, ...]
    dtype: str
    pieces: tuple[tuple[int, Box], ...]
    """(sender, box in coordinates of the value); together they cover the value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Accumulate(_Instruction):
    """`target` += `source`."""

    READS = ("source", "target")
    source: int
    target: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Optimize(_Instruction):
    """One optimizer step on a piece of a weight; the optimizer state stays on the rank."""

    READS = ("weight", "gradient")
    kind: str
    """'optimizer.adam', …"""
    parameter: int
    """Index in `graph.parameters`."""
    box: Box
    """The part of the parameter that this rank updates."""
    weight: int
    gradient: int
    """The sum over microbatches; the step uses the mean."""
    target: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Assign(_Instruction):
    """Assign a value to a lasting value: the weight that the next iteration reads, the buffer that the next microbatch
    reads."""

    source: int
    target: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Free(_Instruction):
    """Free values that are not read again."""

    WRITES = ()
    values: tuple[int, ...]

    @property
    def reads(self) -> tuple[int, ...]:
        """All that it frees."""
        return self.values


Instruction: TypeAlias = (
    "Load | Count | Compute | Collective | Slice | Send | Receive | Accumulate | Optimize | Assign | Free"
)


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
