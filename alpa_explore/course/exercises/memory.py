"""Exercises of lesson 09: memory and ZeRO."""

from __future__ import annotations

from itertools import count
from types import SimpleNamespace
from typing import NamedTuple

from alpa_explore.figures.course.training.memory import zero_bytes
from alpa_explore.figures.course.training.schedules import schedule_facts as schedule_facts
from alpa_explore.models.catalog import entry


class Replicas(NamedTuple):
    """A model on data-parallel devices."""

    model: str
    replicas: int
    stage: int

    @property
    def parameters(self) -> int:
        """Of the model."""
        return entry(self.model).parameter_count

    @property
    def bytes(self) -> float:
        """Of weights, gradients and optimizer state on a device."""
        return sum(zero_bytes(self.parameters, self.replicas, self.stage).values())


class Full(NamedTuple):
    """A model that does not fit by little."""

    model: str
    replicas: int
    stage: int
    gibibytes: float
    """Of activations."""

    @property
    def parameters(self) -> int:
        """Of the model."""
        return entry(self.model).parameter_count

    @property
    def activations(self) -> float:
        """Bytes."""
        return self.gibibytes * 2**30

    @property
    def parts(self) -> dict[str, float]:
        """What belongs to parameters, in bytes on a device."""
        return zero_bytes(self.parameters, self.replicas, self.stage)

    def bytes(self, change: str = "") -> float:
        """All together after one of the changes, or before."""
        replicas = self.replicas * (2 if change == "twice as many replicas" else 1)
        stage = self.stage + (change == "the next stage of ZeRO")
        gradient_bytes = 2 if change == "gradients in bf16" else 4
        kept = 0.25 if change == "full recomputation" else 1.0
        parts = zero_bytes(self.parameters, replicas, stage, gradient_bytes=gradient_bytes)
        return sum(parts.values()) + kept * self.activations

    @property
    def remedies(self) -> list[str]:
        """The changes with which it fits."""
        return [change for change in _CHANGES if self.bytes(change) <= _ROOM_GIB * 2**30]


def _least_replicas(budget: SimpleNamespace) -> int:
    """Of ZeRO-3, with which the parameters of a model and their state fill no more than so much of a device."""
    room = budget.gibibytes * 2**30
    return next(replicas for replicas in count(1) if Replicas(budget.model, replicas, 3).bytes <= room)


_FULL_MODELS = ("llama-3-8b", "qwen3-14b", "llama-2-7b", "llama-2-13b")
_ROOM_GIB = 70
"""Of exercise 09.4."""
_EFFECTS = {
    "twice as many replicas": "More replicas divide only what this stage of ZeRO divides; each still has the "
    "activations of its sample.",
    "the next stage of ZeRO": "The next stage divides gradients or weights, and no activations.",
    "full recomputation": "Recomputation leaves weights, gradients and optimizer state as they are.",
    "gradients in bf16": "That halves the gradients and nothing else.",
}
"""Change -> what it leaves as it is."""
_CHANGES = tuple(_EFFECTS)
_DIVIDED = ("nothing", "optimizer state", "optimizer state and gradients", "optimizer state, gradients and weights")
