"""Exercises of lesson 09: memory and ZeRO."""

from __future__ import annotations

from random import Random
from typing import NamedTuple

from alpa_explore import units
from alpa_explore.course.definition import Exercise, Mistake
from alpa_explore.course.kinds import Choice, Number
from alpa_explore.figures.course.training.memory import zero_bytes
from alpa_explore.figures.course.training.schedules import schedule_facts
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


class Budget(NamedTuple):
    """A model whose parameters and their state may fill so much of a device."""

    model: str
    gibibytes: int

    def enough(self, replicas: int) -> bool:
        """Whether ZeRO-3 on so many replicas stays within it."""
        return Replicas(self.model, replicas, 3).bytes <= self.gibibytes * 2**30


class Held(NamedTuple):
    """A pipeline of equal stages, whose activations of one microbatch have so many GiB a stage."""

    devices: int
    microbatches: int
    gibibytes: float


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


def _least_replicas(budget: Budget) -> int:
    replicas = 1
    while not budget.enough(replicas):
        replicas += 1
    return replicas


def _replicas(random: Random) -> Replicas:
    return Replicas(
        random.choice(("llama-3.2-1b", "llama-3.2-3b", "llama-3-8b")),
        random.choice((4, 8, 16, 32)),
        random.choice((1, 2, 3)),
    )


def _full(random: Random) -> Full:
    while True:
        full = Full(
            random.choice(("llama-3-8b", "qwen3-14b", "llama-2-7b", "llama-2-13b")),
            random.choice((4, 8, 16)),
            random.choice((1, 2)),
            random.choice((5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0)),
        )
        if full.bytes() > _ROOM_GIB * 2**30 and len(full.remedies) == 1:
            return full


_ROOM_GIB = 70
"""Of exercise 09.4."""
_CHANGES = ("twice as many replicas", "the next stage of ZeRO", "full recomputation", "gradients in bf16")
_EFFECTS = (
    "More replicas divide only what this stage of ZeRO divides; each still has the activations of its sample.",
    "The next stage divides gradients or weights, and no activations.",
    "Recomputation leaves weights, gradients and optimizer state as they are.",
    "That halves the gradients and nothing else.",
)
_DIVIDED = ("nothing", "optimizer state", "optimizer state and gradients", "optimizer state, gradients and weights")

EXERCISES = (
    Exercise(
        id="09.1",
        draw=_replicas,
        kind=lambda _: Number(unit="B"),
        truth=lambda r: r.bytes,
        values={
            "divided": lambda n, _: _DIVIDED[n.stage],
            "parts": lambda n, _: " + ".join(
                f"{value / n.parameters:.3g} B of {part}"
                for part, value in zip(
                    ("weights", "gradients", "optimizer state"),
                    zero_bytes(n.parameters, n.replicas, n.stage).values(),
                    strict=True,
                )
            ),
            "before": lambda n, _: n.stage - 1,
        },
        wrong=lambda r, _: (
            r.parameters * 18,
            sum(zero_bytes(r.parameters, r.replicas, r.stage - 1).values()) if r.stage > 1 else None,
            None if r.stage > 1 else r.parameters * 18 / r.replicas,
        ),
        holds=lambda r: r.bytes < Replicas(r.model, r.replicas, r.stage - 1).bytes,
    ),
    Exercise(
        id="09.2",
        draw=lambda random: Budget(
            random.choice(("llama-3-8b", "llama-3-70b", "qwen3-14b", "qwen3-32b")), 5 * random.randint(4, 10)
        ),
        kind=lambda _: Number(tolerance=0),
        truth=_least_replicas,
        values={
            "parameters": lambda n, _: entry(n.model).parameter_count,
            "all": lambda n, _: 18 * entry(n.model).parameter_count,
            "ratio": lambda n, _: 18 * entry(n.model).parameter_count / (n.gibibytes * 2**30),
        },
        wrong=lambda b, truth: (truth - 1, -(-2 * entry(b.model).parameter_count // (b.gibibytes * 2**30))),
        holds=lambda b: _least_replicas(b) > 1,
    ),
    Exercise(
        id="09.3",
        draw=lambda random: Held(
            random.choice((4, 6, 8)), random.choice((2, 3, 16, 64)), random.choice((0.5, 1.5, 2.5, 3.0))
        ),
        kind=lambda _: Number(unit="B"),
        truth=lambda h: schedule_facts("1f1b", h.devices, h.microbatches).held * h.gibibytes * 2**30,
        values={"held": lambda n, _: min(n.devices, n.microbatches)},
        wrong=lambda h, _: (
            h.microbatches * h.gibibytes * 2**30 if h.microbatches > h.devices else None,
            None if h.microbatches > h.devices else h.devices * h.gibibytes * 2**30,
            h.gibibytes * 2**30,
        ),
        holds=lambda h: schedule_facts("1f1b", h.devices, h.microbatches).held == min(h.devices, h.microbatches),
    ),
    Exercise(
        id="09.4",
        draw=_full,
        kind=lambda _: Choice(options=tuple(_CHANGES)),
        truth=lambda f: f.remedies[0],
        values={
            "parts": lambda n, _: ", ".join(f"{units.bytes_(value)} of {part}" for part, value in n.parts.items()),
            "all": lambda n, _: n.bytes(),
            "room": lambda *_: _ROOM_GIB,
            "changes": lambda n, _: "\n".join(f"- {change}: {units.bytes_(n.bytes(change))}" for change in _CHANGES),
        },
        wrong=lambda f, truth: [
            Mistake(answer=change, reason=f"{effect} {units.bytes_(f.bytes(change))} are still too many.")
            for change, effect in zip(_CHANGES, _EFFECTS, strict=True)
            if change != truth
        ],
        holds=lambda f: f.bytes() > _ROOM_GIB * 2**30 and len(f.remedies) == 1,
    ),
)
"""In the order of their ids."""
