"""Exercises of lesson 17: which layout?"""

from __future__ import annotations

from random import Random
from typing import NamedTuple

from alpa_explore.course.definition import Exercise
from alpa_explore.course.kinds import Number
from alpa_explore.figures.course.training.memory import zero_bytes
from alpa_explore.figures.course.training.schedules import schedule_facts
from alpa_explore.models.catalog import entry


class Fit(NamedTuple):
    """A model on some devices with ZeRO-1, and the room for weights, gradients and optimizer state."""

    model: str
    devices: int
    gibibytes: int

    @property
    def parameters(self) -> int:
        """Of the model."""
        return entry(self.model).parameter_count

    def held(self, divided: int) -> float:
        """Bytes on a device, where tensor parallelism and the pipeline divide the weights by `divided`."""
        return sum(zero_bytes(self.parameters / divided, self.devices // divided, 1).values())

    @property
    def least(self) -> int:
        """The least power of two that fits."""
        return next(1 << k for k in range(self.devices.bit_length()) if self.held(1 << k) <= self.gibibytes * 2**30)


class Bubble(NamedTuple):
    """A layout with 1F1B."""

    devices: int
    tensor: int
    pipeline: int
    microbatch: int
    batch: int

    @property
    def data(self) -> int:
        """Replicas."""
        return self.devices // (self.tensor * self.pipeline)

    @property
    def microbatches(self) -> int:
        """Of a replica."""
        return self.batch // (self.data * self.microbatch)

    @property
    def share(self) -> float:
        """Idle time of a device, by the simulator."""
        return schedule_facts("1f1b", self.pipeline, self.microbatches).bubble_fraction


class Training(NamedTuple):
    """A training run."""

    billions: int
    trillions: int
    devices: int
    percent: int
    """MFU."""
    teraflops: int

    @property
    def days(self) -> float:
        """By products alone."""
        flops = 6e21 * self.billions * self.trillions
        return flops / (1e12 * self.teraflops * self.devices * self.percent / 100) / 86400


def _fit(random: Random) -> Fit:
    while True:
        fit = Fit(
            random.choice(("llama-3-8b", "llama-3-70b", "llama-3.1-405b", "qwen3-32b")),
            2 ** random.randint(5, 10),
            5 * random.randint(3, 12),
        )
        room = fit.gibibytes * 2**30
        if fit.held(fit.devices) <= room < fit.held(1) and fit.held(fit.least) < 0.97 * room:
            return fit


def _bubble(random: Random) -> Bubble:
    while True:
        devices, tensor, pipeline = 2 ** random.randint(6, 9), random.choice((2, 4, 8)), random.choice((4, 8))
        bubble = Bubble(devices, tensor, pipeline, random.choice((1, 2)), random.choice((256, 512, 1024)))
        if bubble.data > 1 and bubble.pipeline <= bubble.microbatches <= 128:
            return bubble


EXERCISES = (
    Exercise(
        id="17.1",
        draw=_fit,
        kind=lambda _: Number(tolerance=0.0),
        truth=lambda f: f.least,
        values={
            "state": lambda n, _: 12 * n.parameters / n.devices,
            "of_weights": lambda n, truth: 6 * n.parameters / truth,
            "held": lambda n, truth: n.held(truth),
            "half": lambda _, truth: truth // 2,
            "weights_of_half": lambda n, truth: 6 * n.parameters / (truth // 2),
            "held_by_half": lambda n, truth: n.held(truth // 2),
        },
        wrong=lambda f, truth: (truth // 2, 2 * truth),
        holds=lambda f: f.least > 1,
    ),
    Exercise(
        id="17.2",
        draw=_bubble,
        kind=lambda _: Number(unit="share"),
        truth=lambda b: b.share,
        wrong=lambda b, truth: (
            (b.pipeline - 1) / (b.batch // b.microbatch + b.pipeline - 1),
            (b.pipeline - 1) / (b.microbatches * b.microbatch + b.pipeline - 1)
            if b.microbatch not in (1, b.data)
            else None,
        ),
        holds=lambda b: b.data > 1 and b.microbatches >= b.pipeline,
    ),
    Exercise(
        id="17.3",
        draw=lambda random: Training(
            random.choice((8, 32, 70, 405)),
            random.choice((1, 2, 15)),
            2 ** random.randint(9, 13),
            random.choice((35, 40, 45, 50)),
            random.choice((312, 989)),
        ),
        kind=lambda _: Number(),
        truth=lambda t: t.days,
        values={"mfu": lambda n, _: n.percent / 100, "seconds": lambda _, truth: truth * 86400},
        wrong=lambda t, truth: (truth * t.percent / 100, truth / 3),
        holds=lambda t: t.days > 1 / 24,
    ),
)
"""In the order of their ids."""
