"""A timeline: the tasks of a schedule with their times; makespan, bubbles, phases, critical path."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from alpa_explore.numerics.arrays import Floats, Ints
from alpa_explore.schedules.simulator.kernel import NOTHING, PREVIOUS
from alpa_explore.schedules.simulator.times import Links, StageTimes
from alpa_explore.schedules.task import Action, Schedule


class PathStep(NamedTuple):
    """A step of the critical path: a task, or the send of its result."""

    task: int
    """Index in the arrays of the schedule."""
    send: bool


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Timeline:
    """The result of `simulate`. Arrays have one entry for each task of `schedule`, the updates included."""

    schedule: Schedule
    """The simulated schedule with the update of every stage at the end of its submesh."""
    times: tuple[StageTimes, ...]
    links: Links
    start_seconds: Floats
    end_seconds: Floats
    send_start_seconds: Floats
    """NaN for a task that sends nothing over a link."""
    send_end_seconds: Floats
    cause: Ints
    """Why a task started no earlier: see `kernel.run_events`."""
    send_cause: Ints

    @property
    def makespan_seconds(self) -> float:
        """From the first start to the last end, updates included."""
        return float(self.end_seconds.max(initial=0.0))

    @property
    def has_sends(self) -> bool:
        """Whether sends take time."""
        return any(
            (t.send_forward_seconds, t.send_backward_seconds, *t.send_wait_seconds) != (0.0,) * 4 for t in self.times
        )

    @property
    def busy_seconds(self) -> Floats:
        """Seconds in which each submesh runs a task, shape [submeshes]."""
        seconds = self.end_seconds - self.start_seconds
        return np.add.reduceat(seconds, self.schedule.starts[:-1])

    @property
    def bubble_fractions(self) -> Floats:
        """Share of the makespan in which each submesh is idle, shape [submeshes]."""
        # Without waits the sum of the tasks may exceed the makespan by rounding.
        return np.maximum(1.0 - self.busy_seconds / max(self.makespan_seconds, 1e-300), 0.0)

    @property
    def bubble_fraction(self) -> float:
        """Mean of `bubble_fractions`."""
        return float(self.bubble_fractions.mean())

    def submesh(self, index: int) -> slice:
        """The slice of the arrays that holds the tasks of a submesh."""
        return slice(int(self.schedule.starts[index]), int(self.schedule.starts[index + 1]))

    def link_of(self, task: int) -> int:
        """The link that carries the result of a task; −1 when none does."""
        if np.isnan(self.send_start_seconds[task]):
            return NOTHING
        stage = int(self.schedule.stages[task])
        forward = self.schedule.actions[task] == Action.FORWARD
        return (self.links.forward if forward else self.links.backward)[stage]

    def phases(self, submesh: int) -> tuple[float, float]:
        """(end of the warm-up, start of the cool-down): start of the first backward pass, end of the last forward
        pass."""
        tasks = self.submesh(submesh)
        actions = self.schedule.actions[tasks]
        backward = self.start_seconds[tasks][(actions == Action.BACKWARD) | (actions == Action.BACKWARD_INPUT)]
        return float(backward.min()), float(self.end_seconds[tasks][actions == Action.FORWARD].max())

    def critical_path(self) -> tuple[PathStep, ...]:
        """A chain of tasks and sends, each starting when the one before it ends, the last ending at the makespan."""
        cause, send_cause = self.cause.tolist(), self.send_cause.tolist()
        sends = (~np.isnan(self.send_start_seconds)).tolist()
        task, send = int(self.end_seconds.argmax()), False
        steps = [PathStep(task, send=False)]
        while send or cause[task] != NOTHING:
            if send:
                send = send_cause[task] != NOTHING
                task = send_cause[task] if send else task
            elif cause[task] == PREVIOUS:
                task -= 1
            else:
                task = cause[task]
                send = sends[task]
            steps.append(PathStep(task, send=send))
        return tuple(reversed(steps))
