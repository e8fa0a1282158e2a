"""Memory of one device of each submesh over time.

Resident all the time: weights, gradients and optimizer state of its stages. Varying: the activations of a microbatch,
from the start of its forward to the end of its backward pass (of W, where the backward pass is split), and the
workspace of the running task.
"""

from dataclasses import dataclass

import numpy as np

from alpa_explore.numerics.arrays import Floats
from alpa_explore.schedules.simulator.timeline import Timeline
from alpa_explore.schedules.task import Action


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class MemoryCurve:
    """Of one submesh: from `seconds[i]` to `seconds[i + 1]` a device holds entry i of the other arrays."""

    weight_bytes: float
    gradient_bytes: float
    optimizer_bytes: float
    seconds: Floats
    activation_bytes: Floats
    workspace_bytes: Floats
    held: Floats
    """Number of microbatches whose activations are held, summed over the stages of the submesh."""

    @property
    def resident_bytes(self) -> float:
        """Bytes that are held all the time."""
        return self.weight_bytes + self.gradient_bytes + self.optimizer_bytes

    @property
    def total_bytes(self) -> Floats:
        """All bytes held, at each of `seconds`."""
        return np.asarray(self.resident_bytes + self.activation_bytes + self.workspace_bytes)

    @property
    def peak_bytes(self) -> float:
        """The most at any time."""
        return float(self.total_bytes.max(initial=self.resident_bytes))


def memory_curve(timeline: Timeline, submesh: int) -> MemoryCurve:
    """The bytes that a device of a submesh holds over time."""
    tasks = timeline.submesh(submesh)
    schedule = timeline.schedule
    actions, stages = schedule.actions[tasks], schedule.stages[tasks]
    start, end = timeline.start_seconds[tasks], timeline.end_seconds[tasks]
    activation = np.array([t.activation_bytes for t in timeline.times])[stages]
    workspace = np.array([t.workspace_bytes for t in timeline.times])[stages]
    takes = actions == Action.FORWARD
    frees = (actions == Action.BACKWARD) | (actions == Action.BACKWARD_WEIGHT)
    runs = actions != Action.UPDATE
    # Tasks of a submesh run one after another: at equal times the end of the earlier one comes first.
    moments = _from_zero(start, end)
    held = np.cumsum(_from_zero(takes * 1.0, frees * -1.0))
    bytes_held = np.cumsum(_from_zero(takes * activation, frees * -activation))
    working = _from_zero(runs * workspace, np.zeros(len(start)))
    stage_times = [timeline.times[s] for s in sorted(set(stages.tolist()))]
    return MemoryCurve(
        weight_bytes=sum(t.weight_bytes for t in stage_times),
        gradient_bytes=sum(t.gradient_bytes for t in stage_times),
        optimizer_bytes=sum(t.optimizer_bytes for t in stage_times),
        seconds=moments,
        activation_bytes=np.maximum(bytes_held, 0.0),
        workspace_bytes=working,
        held=held,
    )


def _from_zero(at_start: Floats, at_end: Floats) -> Floats:
    """One entry for the beginning, then two for each task."""
    return np.concatenate([[0.0], np.stack([at_start, at_end], axis=1).ravel()])
