"""Exercises of lesson 03: collectives."""

from __future__ import annotations

import math
from random import Random
from textwrap import dedent
from typing import NamedTuple

from alpa_explore import units
from alpa_explore.cluster.device import Link
from alpa_explore.cost.collectives import collective_seconds
from alpa_explore.course.definition import Exercise, Mistake
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


def _mistakes(ring: Ring, _truth: float) -> list[Mistake]:
    p, alpha, beta, n = ring.devices, ring.alpha, ring.beta, ring.bytes
    return [
        Mistake(
            answer=ring.seconds(StepKind.ALL_GATHER),
            reason="That is an all-gather alone. An all-reduce is a reduce-scatter, then an all-gather: twice as many "
            "messages.",
        ),
        Mistake(
            answer=2 * (p - 1) * (alpha + n * beta),
            reason="Each message carries one chunk, 1/p of the tensor, not all of it.",
        ),
        Mistake(
            answer=2 * p * (alpha + n / p * beta),
            reason="A chunk is at home on one device already: it makes p − 1 steps, not p.",
        ),
    ]


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
        title="An all-reduce on a ring",
        draw=_ring,
        question=lambda ring: (
            f"Each of {ring.devices} devices on a ring holds a gradient of {units.bytes_(ring.bytes)}. A link moves "
            f"{ring.gigabytes_per_second} GB/s (10⁹ bytes per second), and every message waits {ring.microseconds} µs "
            "before its first byte arrives.\n\nHow long does a ring all-reduce of the gradient take?"
        ),
        kind=lambda _: Number(unit="s"),
        truth=lambda ring: ring.seconds(StepKind.ALL_REDUCE),
        why=lambda ring, truth: (
            f"The gradient is cut into p = {ring.devices} chunks of {units.bytes_(ring.bytes / ring.devices)}. The "
            f"reduce-scatter takes p − 1 = {ring.devices - 1} steps, the all-gather as many, and a step sends one "
            f"chunk:\n\n`2 · (p − 1) · (α + n / p · β) = {2 * (ring.devices - 1)} · ({units.seconds(ring.alpha)} + "
            f"{units.seconds(ring.bytes / ring.devices * ring.beta)}) = {units.seconds(truth)}`"
        ),
        mistakes=_mistakes,
        hints=lambda _: (
            "An all-reduce is two simpler collectives, one after the other. Which?",
            "In each step every device sends one chunk to its neighbour. How large is a chunk, and how many steps are "
            "there?",
            "A step takes α + n / p · β, with n bytes and p devices. Each of the two collectives has p − 1 steps.",
        ),
        code=lambda ring: dedent(f"""\
            p, n = {ring.devices}, {ring.mebibytes} * 2**20
            alpha, beta = {ring.microseconds}e-6, 1 / {ring.gigabytes_per_second}e9
            answer = 2 * (p - 1) * (alpha + n / p * beta)
            """),
        premise="the wait of a message is noticeable: without α the answer is another",
        holds=lambda ring: ring.alpha * 2 * (ring.devices - 1) > 0.001 * ring.seconds(StepKind.ALL_REDUCE),
    ),
    Exercise(
        id="03.2",
        title="Half of the bandwidth",
        draw=_ring,
        question=lambda ring: (
            f"{ring.devices} devices on a ring, {ring.gigabytes_per_second} GB/s and {ring.microseconds} µs a message. "
            "How many bytes must a tensor have so that its all-reduce spends as long waiting for messages as moving "
            "bytes?"
        ),
        kind=lambda _: Number(unit="B"),
        truth=_half,
        why=lambda ring, truth: (
            f"A step takes α + n / p · β. Both parts are equal at n = p · α / β = {ring.devices} · "
            f"{units.seconds(ring.alpha)} · {ring.gigabytes_per_second} GB/s = {units.bytes_(truth)}. The number of "
            "steps does not matter, so the same holds for an all-gather."
        ),
        mistakes=lambda ring, truth: [
            Mistake(answer=truth / ring.devices, reason="That is the size of a chunk. The tensor has p of them."),
            Mistake(
                answer=2 * (ring.devices - 1) * ring.alpha / ring.beta,
                reason="The number of steps multiplies both parts, and cancels.",
            ),
        ],
        hints=lambda _: (
            "Write down the time of one step. It has two parts.",
            "A chunk has n / p bytes. When does moving it take α?",
            "Solve α = n / p · β for n.",
        ),
        code=lambda ring: f"answer = {ring.devices} * {ring.microseconds}e-6 * {ring.gigabytes_per_second}e9\n",
        premise="at that size the cost model gives both parts the same time",
        holds=lambda ring: math.isclose(
            collective_seconds(StepKind.ALL_REDUCE, _half(ring), ring.devices, 1 / ring.beta, 0.0) * 2,
            collective_seconds(StepKind.ALL_REDUCE, _half(ring), ring.devices, 1 / ring.beta, ring.alpha),
        ),
    ),
    Exercise(
        id="03.3",
        title="A bucket",
        draw=_ring,
        question=lambda ring: (
            f"A model has {_MANY} gradients of equal size, {units.bytes_(ring.bytes)} together. {ring.devices} devices "
            f"sum them, with {ring.gigabytes_per_second} GB/s and {ring.microseconds} µs a message: one by one, in "
            f"{_MANY} all-reduces, or all in one bucket.\n\nHow many seconds does the bucket save?"
        ),
        kind=lambda _: Number(unit="s"),
        truth=_saved,
        why=lambda ring, truth: (
            f"The bytes take equally long. But {_MANY} all-reduces have {_MANY} · 2 (p − 1) messages that wait, the "
            f"bucket has 2 (p − 1): {_MANY - 1} · {2 * (ring.devices - 1)} · {units.seconds(ring.alpha)} = "
            f"{units.seconds(truth)}."
        ),
        mistakes=lambda ring, truth: [
            Mistake(answer=truth * _MANY / (_MANY - 1), reason="The bucket has messages as well: 2 (p − 1) of them."),
            Mistake(
                answer=(_MANY - 1) * ring.alpha,
                reason="An all-reduce is not one message: it has 2 (p − 1) steps, and each waits.",
            ),
        ],
        hints=lambda _: (
            "Does the time that moves bytes differ?",
            "Count the messages of one all-reduce, then of all of them.",
            f"{_MANY} · 2 (p − 1) messages become 2 (p − 1).",
        ),
        code=lambda ring: f"answer = {_MANY - 1} * 2 * ({ring.devices} - 1) * {ring.microseconds}e-6\n",
        premise="one by one takes noticeably longer",
        holds=lambda ring: _saved(ring) > 0.01 * ring.seconds(StepKind.ALL_REDUCE),
    ),
)
"""In the order of their ids."""
