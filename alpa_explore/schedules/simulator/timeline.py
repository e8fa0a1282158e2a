"""A timeline: the tasks of a schedule with their times, and what can be read from them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from alpa_explore.numerics.arrays import Floats, Ints
from alpa_explore.schedules.simulator.kernel import NOTHING, OWN
from alpa_explore.schedules.simulator.times import Links, StageTimes
from alpa_explore.schedules.task import Action, Schedule


class Step(NamedTuple):
    """A piece of the critical path: a task, or the send of its result."""

    task: int
    """Place in the arrays of the schedule."""
    send: bool


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Timeline:
    """What `simulate` found. Arrays have one entry for each task of `schedule`, which here ends with the updates."""

    schedule: Schedule
    """With an update for every stage behind the tasks that were given."""
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
    def busy_seconds(self) -> Floats:
        """Of each submesh."""
        seconds = self.end_seconds - self.start_seconds
        return np.add.reduceat(seconds, self.schedule.starts[:-1])

    @property
    def bubble_fractions(self) -> Floats:
        """Share of the makespan in which each submesh runs nothing."""
        return np.asarray(1.0 - self.busy_seconds / max(self.makespan_seconds, 1e-300))

    @property
    def bubble_fraction(self) -> float:
        """The mean over submeshes."""
        return float(self.bubble_fractions.mean())

    def submesh(self, index: int) -> slice:
        """The part of the arrays that belongs to a submesh."""
        return slice(int(self.schedule.starts[index]), int(self.schedule.starts[index + 1]))

    def link_of(self, task: int) -> int:
        """The link that carries the result of a task; −1 when none does."""
        if np.isnan(self.send_start_seconds[task]):
            return NOTHING
        stage = int(self.schedule.stages[task])
        forward = self.schedule.actions[task] == Action.FORWARD
        return (self.links.forward if forward else self.links.backward)[stage]

    def phases(self, submesh: int) -> tuple[float, float]:
        """(end of the warm-up, start of the cool-down): the first backward starts, the last forward ends."""
        own = self.submesh(submesh)
        actions = self.schedule.actions[own]
        backward = self.start_seconds[own][(actions == Action.BACKWARD) | (actions == Action.BACKWARD_INPUT)]
        return float(backward.min()), float(self.end_seconds[own][actions == Action.FORWARD].max())

    def critical_path(self) -> tuple[Step, ...]:
        """The chain of tasks and sends, each starting when the one before ends, that ends with the makespan."""
        steps: list[Step] = []
        here: Step | None = Step(int(self.end_seconds.argmax()), send=False)
        while here is not None:
            steps.append(here)
            here = self._before(here)
        return tuple(reversed(steps))

    def _before(self, step: Step) -> Step | None:
        if step.send:
            blocker = int(self.send_cause[step.task])
            return Step(step.task, send=False) if blocker == NOTHING else Step(blocker, send=True)
        cause = int(self.cause[step.task])
        if cause == OWN:
            return Step(step.task - 1, send=False)
        if cause == NOTHING:
            return None
        return Step(cause, send=bool(~np.isnan(self.send_start_seconds[cause])))
