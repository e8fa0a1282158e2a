"""What a device of a stage holds over one iteration, by part: weights, gradients, optimizer state, the activations of
each microbatch in flight, workspace, and what the software keeps back.

The parts add up to the memory of the schedule's simulator (`schedules.simulator.memory`), whose peak is that of the
plan. A microbatch takes the lowest free slot when its forward pass starts, and leaves it when its backward pass ends.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from heapq import heappop, heappush

import numpy as np

from alpa_explore.figures import tuning
from alpa_explore.numerics.arrays import Floats
from alpa_explore.plans.plan import Plan
from alpa_explore.plans.report.tables import stage_named
from alpa_explore.plans.timeline import plan_timeline
from alpa_explore.schedules.simulator.memory import MemoryCurve, memory_curve
from alpa_explore.schedules.simulator.timeline import Timeline
from alpa_explore.schedules.task import Action

WEIGHTS, GRADIENTS, OPTIMIZER = "weights", "gradients", "optimizer state"
RESIDENT = "weights, gradients, optimizer state"
"""All three where a plan file does not divide them."""
ACTIVATIONS, WORKSPACE, RESERVE = "activations", "workspace", "reserve of the software"
_FREED_BY = (Action.BACKWARD, Action.BACKWARD_WEIGHT)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class HeldPart:
    """A part of the memory: from `HeldMemory.seconds[i]` to `seconds[i + 1]` it takes `bytes[i]`."""

    name: str
    """One of the names above."""
    bytes: Floats
    slot: int = 0
    """Of activations: the place among the microbatches in flight."""
    microbatches: Floats | None = None
    """Of activations: the microbatch, NaN for none, or, where several share the part, their number."""
    shared: bool = False
    """Whether several microbatches share the part."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class HeldMemory:
    """The memory of a device of one stage over an iteration."""

    timeline: Timeline
    submesh: int
    seconds: Floats
    parts: tuple[HeldPart, ...]
    """From what is always there to what comes and goes."""
    limit_bytes: float
    """The memory of a device."""

    @property
    def total_bytes(self) -> Floats:
        """All parts together."""
        return np.asarray(sum(part.bytes for part in self.parts))

    @property
    def peak_bytes(self) -> float:
        """The most at any time."""
        return float(self.total_bytes.max())

    def at_peak(self) -> dict[str, float]:
        """Name of a part -> its bytes when the total is largest, activations of all microbatches together."""
        peak = int(self.total_bytes.argmax())
        found: dict[str, float] = {}
        for part in self.parts:
            found[part.name] = found.get(part.name, 0.0) + float(part.bytes[peak])
        return found


def held_memory(plan: Plan, stage: int = 0, *, timeline: Timeline | None = None) -> HeldMemory:
    """The memory of a device of a stage under a timeline, by default that of the plan's own schedule. OptionError for a
    stage that the plan does not have."""
    shown, timeline = stage_named(plan, stage), timeline or plan_timeline(plan)
    device, curve = plan.device_of(shown), memory_curve(timeline, stage)
    least = min((float(b) for b in curve.workspace_bytes if b), default=0.0)
    reserve = min(device.reserved_bytes, least)  # it is part of the workspace of every task, and stays between tasks
    weights = WEIGHTS if curve.gradient_bytes or curve.optimizer_bytes else RESIDENT
    steady = ((weights, curve.weight_bytes), (GRADIENTS, curve.gradient_bytes), (OPTIMIZER, curve.optimizer_bytes))
    everywhere = np.ones(len(curve.seconds))
    parts = [HeldPart(name=name, bytes=size * everywhere) for name, size in (*steady, (RESERVE, reserve)) if size]
    parts += _activations(timeline, stage, curve)
    parts.append(HeldPart(name=WORKSPACE, bytes=np.maximum(curve.workspace_bytes - reserve, 0.0)))
    return HeldMemory(
        timeline=timeline,
        submesh=stage,
        seconds=curve.seconds,
        parts=tuple(parts),
        limit_bytes=float(device.memory_bytes),
    )


def _activations(timeline: Timeline, submesh: int, curve: MemoryCurve) -> Iterator[HeldPart]:
    """A part for each slot; for a group of slots where there are many."""
    spans = list(_in_slots(timeline, submesh))
    slots = 1 + max((slot for slot, *_ in spans), default=-1)
    group = -(-slots // tuning.MEMORY_SLOTS) if slots else 1
    length = len(curve.seconds)
    for first in range(0, slots, group):
        held, numbers = np.zeros(length), np.full(length, np.nan)
        count = np.zeros(length)
        for slot, start, end, microbatch, size in spans:
            if first <= slot < first + group:
                held[start:end] += size
                count[start:end] += 1
                numbers[start:end] = microbatch
        shared = group > 1
        yield HeldPart(
            name=ACTIVATIONS,
            bytes=held,
            slot=first // group,
            microbatches=np.where(count > 0, count, np.nan) if shared else numbers,
            shared=shared,
        )


def _in_slots(timeline: Timeline, submesh: int) -> Iterator[tuple[int, int, int, int, float]]:
    """(slot, first index, end index, microbatch, bytes) of the activations of each microbatch and stage: indices of the
    arrays of `memory_curve`, which have one entry for the beginning and two for each task."""
    tasks, schedule = timeline.submesh(submesh), timeline.schedule
    columns = (schedule.actions[tasks], schedule.stages[tasks], schedule.microbatches[tasks])
    free: list[int] = []
    taken: dict[tuple[int, int], tuple[int, int]] = {}
    slots = 0
    for place, (action, stage, microbatch) in enumerate(zip(*(c.tolist() for c in columns), strict=True)):
        if action == Action.FORWARD:
            slot = heappop(free) if free else slots
            slots = max(slots, slot + 1)
            taken[stage, microbatch] = (slot, 1 + 2 * place)
        elif action in _FREED_BY and (stage, microbatch) in taken:
            slot, start = taken.pop((stage, microbatch))
            heappush(free, slot)
            yield slot, start, 2 + 2 * place, microbatch, timeline.times[stage].activation_bytes
