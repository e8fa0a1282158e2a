"""A schedule: for every submesh of the pipeline the order in which it runs its tasks, without times.

A task is (action, stage, microbatch). Stages are numbered in the order in which data flows; a submesh runs one stage,
or several where stages are interleaved. The dependencies between tasks follow from these numbers:

    F(s, m) after F(s−1, m);   B(s, m), I(s, m) after F(s, m) and B or I(s+1, m);   W(s, m) after I(s, m)

Where the pipeline holds several copies of the model (DualPipe: two), the stages of copy c are c·d … (c + 1)·d − 1, and
microbatch m runs through the stages of copy ⌊m · copies / B⌋ only.

Tasks are kept in arrays, concatenated over submeshes: 64 stages with 1,024 microbatches have up to 200,000 tasks.
"""

import enum
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from alpa_explore.numerics.arrays import Ints


class Action(enum.IntEnum):
    """What a task does with a microbatch."""

    FORWARD = 0
    BACKWARD = 1
    """Gradients of the inputs and of the weights together."""
    BACKWARD_INPUT = 2
    """The gradient of the input alone, for which the previous stage waits."""
    BACKWARD_WEIGHT = 3
    """The gradients of the weights; nothing but the update waits for them."""
    UPDATE = 4
    """Gradient synchronisation and optimizer step, once per iteration. Not listed in schedules: the simulator appends
    it."""
    SEND_GRADIENTS = 5
    """The part of the update that other stages of the same rank wait for, before any of their updates; see
    `programs.lowering`. In no schedule and not simulated: its predicted time is part of the update's."""
    RECEIVE_WEIGHTS = 6
    """The part of the update that waits for the updates of other stages, after all of them; likewise."""


LETTERS = {
    Action.FORWARD: "F",
    Action.BACKWARD: "B",
    Action.BACKWARD_INPUT: "I",
    Action.BACKWARD_WEIGHT: "W",
    Action.UPDATE: "U",
    Action.SEND_GRADIENTS: "S",
    Action.RECEIVE_WEIGHTS: "R",
}
"""As in the schedule files of torch.distributed.pipelining."""


ONCE_AN_ITERATION = (Action.SEND_GRADIENTS, Action.UPDATE, Action.RECEIVE_WEIGHTS)
"""What runs after the schedule, once for all microbatches, in this order."""


class Task(NamedTuple):
    """One entry of a schedule."""

    action: Action
    stage: int
    microbatch: int

    def __str__(self) -> str:
        return f"{self.stage}{LETTERS[self.action]}{self.microbatch}"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Schedule:
    """The orders of all submeshes. Task i of submesh p is at index `starts[p] + i` of the arrays."""

    name: str
    num_stages: int
    num_microbatches: int
    starts: Ints
    """Index of the first task of each submesh, and the total; shape [submeshes + 1]."""
    actions: Ints
    stages: Ints
    microbatches: Ints
    submesh_of_stage: tuple[int, ...]
    copies: int = 1
    """Copies of the model; `num_stages` counts the stages of all of them."""

    @property
    def depth(self) -> int:
        """Stages that a microbatch runs through."""
        return self.num_stages // self.copies

    @property
    def num_submeshes(self) -> int:
        """Number of submeshes."""
        return len(self.starts) - 1

    def order(self, submesh: int) -> tuple[Task, ...]:
        """The tasks of one submesh, in order."""
        run = slice(self.starts[submesh], self.starts[submesh + 1])
        columns = (self.actions[run].tolist(), self.stages[run].tolist(), self.microbatches[run].tolist())
        return tuple(Task(Action(a), s, m) for a, s, m in zip(*columns, strict=True))

    def task(self, index: int) -> Task:
        """The task at an index of the arrays."""
        return Task(Action(int(self.actions[index])), int(self.stages[index]), int(self.microbatches[index]))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Schedule) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def _key(self) -> tuple[object, ...]:
        arrays = (self.starts, self.actions, self.stages, self.microbatches)
        return (self.num_stages, self.num_microbatches, self.copies, *(a.tobytes() for a in arrays))


def order_of(stage: int, *, warm_up: int, rounds: Sequence[tuple[Action, Ints]], num_microbatches: int) -> Ints:
    """The order of one stage, shape [tasks, (action, stage, microbatch)].

    It starts with `warm_up` forward passes. Each of `rounds` is (action, microbatch in every round): round after round,
    one task of each follows. Tasks whose microbatch is not in 0 … B − 1 are left out.
    """
    numbers = np.stack([microbatches for _, microbatches in rounds], axis=1)
    actions = np.broadcast_to(np.array([action for action, _ in rounds]), numbers.shape)
    exists = (numbers >= 0) & (numbers < num_microbatches)
    first = np.arange(warm_up)
    action = np.concatenate([np.full(warm_up, Action.FORWARD), actions[exists]])
    return np.stack([action, np.full(len(action), stage), np.concatenate([first, numbers[exists]])], axis=1)


def schedule_of(
    name: str, orders: Sequence[Sequence[tuple[int, int, int]] | Ints], num_microbatches: int, *, copies: int = 1
) -> Schedule:
    """The schedule with these orders of (action, stage, microbatch), one per submesh; `check` tests whether it can
    run."""
    flat = np.concatenate([np.array(order, dtype=np.int64).reshape(-1, 3) for order in orders])
    starts = np.cumsum([0, *map(len, orders)], dtype=np.int64)
    num_stages = int(flat[:, 1].max(initial=-1)) + 1
    rows = np.repeat(np.arange(len(orders)), np.diff(starts))
    submesh_of_stage = np.zeros(num_stages, dtype=np.int64)
    submesh_of_stage[flat[:, 1]] = rows
    columns = [np.ascontiguousarray(flat[:, c]) for c in range(3)]
    for array in (starts, *columns):
        array.flags.writeable = False
    return Schedule(
        name=name,
        num_stages=num_stages,
        num_microbatches=num_microbatches,
        starts=starts,
        actions=columns[0],
        stages=columns[1],
        microbatches=columns[2],
        submesh_of_stage=tuple(submesh_of_stage.tolist()),
        copies=copies,
    )
