"""Exercises of lesson 03: collectives."""

from __future__ import annotations

import math
from random import Random
from typing import NamedTuple

from alpa_explore.cluster.device import Link
from alpa_explore.cost.collectives import collective_seconds
from alpa_explore.course.definition import Exercise
from alpa_explore.course.kinds import Number
from alpa_explore.figures.course.planning.message_sizes import half_bytes
from alpa_explore.sharding.reshard import StepKind

_MANY = 10
"""Gradients of exercise 03.3."""


class Ring(NamedTuple):
    """A message and the ring that it goes round."""

    devices: int
    mebibytes: int
    gigabytes_per_second: int
    microseconds: int

    @property
    def bytes(self) -> int:
        """Of the tensor on every device."""
        return self.mebibytes * 2**20

    @property
    def beta(self) -> float:
        """Seconds a byte."""
        return 1e-9 / self.gigabytes_per_second

    @property
    def alpha(self) -> float:
        """Seconds a message."""
        return 1e-6 * self.microseconds

    def seconds(self, kind: StepKind) -> float:
        """Of a collective on this ring, by the cost model."""
        return collective_seconds(kind, self.bytes, self.devices, 1 / self.beta, self.alpha)


def _ring(random: Random) -> Ring:
    return Ring(
        devices=random.choice((4, 8, 16)),
        mebibytes=random.choice((64, 128, 256)),
        gigabytes_per_second=random.choice((25, 50, 100)),
        microseconds=random.choice((5, 10, 20)),
    )


def _mistakes(ring: Ring, _truth: float) -> list[float]:
    p, alpha, beta, n = ring.devices, ring.alpha, ring.beta, ring.bytes
    return [ring.seconds(StepKind.ALL_GATHER), 2 * (p - 1) * (alpha + n * beta), 2 * p * (alpha + n / p * beta)]


def _half(ring: Ring) -> float:
    """n½: bytes at which an all-reduce waits as long as it moves bytes."""
    link = Link(bandwidth=1 / ring.beta, latency_seconds=ring.alpha)
    return half_bytes(ring.devices, link)


def _saved(ring: Ring) -> float:
    """Seconds that one bucket saves over an all-reduce for each of its gradients."""
    link = 1 / ring.beta, ring.alpha
    together = collective_seconds(StepKind.ALL_REDUCE, ring.bytes, ring.devices, *link)
    return _MANY * collective_seconds(StepKind.ALL_REDUCE, ring.bytes / _MANY, ring.devices, *link) - together


EXERCISES = (
    Exercise(
        id="03.1",
        draw=_ring,
        kind=lambda _: Number(unit="s"),
        truth=lambda ring: ring.seconds(StepKind.ALL_REDUCE),
        values={
            "part": lambda n, _: n.bytes / n.devices,
            "steps": lambda n, _: n.devices - 1,
            "twice": lambda n, _: 2 * (n.devices - 1),
            "each": lambda n, _: n.bytes / n.devices * n.beta,
        },
        wrong=_mistakes,
        holds=lambda ring: ring.alpha * 2 * (ring.devices - 1) > 0.001 * ring.seconds(StepKind.ALL_REDUCE),
    ),
    Exercise(
        id="03.2",
        draw=_ring,
        kind=lambda _: Number(unit="B"),
        truth=_half,
        wrong=lambda ring, truth: (truth / ring.devices, 2 * (ring.devices - 1) * ring.alpha / ring.beta),
        holds=lambda ring: math.isclose(
            collective_seconds(StepKind.ALL_REDUCE, _half(ring), ring.devices, 1 / ring.beta, 0.0) * 2,
            collective_seconds(StepKind.ALL_REDUCE, _half(ring), ring.devices, 1 / ring.beta, ring.alpha),
        ),
    ),
    Exercise(
        id="03.3",
        draw=_ring,
        kind=lambda _: Number(unit="s"),
        truth=_saved,
        values={"many": lambda *_: _MANY, "steps": lambda *_: _MANY - 1, "twice": lambda n, _: 2 * (n.devices - 1)},
        wrong=lambda ring, truth: (truth * _MANY / (_MANY - 1), (_MANY - 1) * ring.alpha),
        holds=lambda ring: _saved(ring) > 0.01 * ring.seconds(StepKind.ALL_REDUCE),
    ),
)
"""In the order of their ids."""
