"""Exercises of lesson 10: attention and context parallelism."""

from __future__ import annotations

from math import isclose
from random import Random
from typing import NamedTuple

from alpa_explore import units
from alpa_explore.cluster import Cluster
from alpa_explore.course.definition import Exercise, Mistake
from alpa_explore.course.kinds import Choice, Number
from alpa_explore.figures.course.training.attention import ORDERS, causal_shares, ring_times
from alpa_explore.models.catalog import llama
from alpa_explore.models.configs import LlamaConfig

_LENGTHS = (8192, 16384, 32768, 65536, 131072)


class Long(NamedTuple):
    """A model on a long sequence."""

    model: str
    sequence: int

    @property
    def config(self) -> LlamaConfig:
        """Its sizes."""
        return llama(self.model)

    @property
    def matrices(self) -> int:
        """Elements of the matrices of a block: multiply-adds of a token with them."""
        config = self.config
        keys = config.hidden // config.heads * config.key_heads
        return 2 * config.hidden * (config.hidden + keys) + 3 * config.hidden * config.ffn

    @property
    def scores(self) -> float:
        """Multiply-adds of a token with the keys and values that it sees, in the mean: half of the sequence."""
        return self.config.hidden * self.sequence

    @property
    def share(self) -> float:
        """Of the multiply-adds of the block."""
        return self.scores / (self.scores + self.matrices)


class Shared(NamedTuple):
    """A causal sequence on devices that have a run of it each, and one of them."""

    devices: int
    asked: int


class Ring(NamedTuple):
    """A ring of devices on as many nodes, and the model whose attention it computes."""

    device: str
    devices: int
    kv_heads: int

    @property
    def cluster(self) -> Cluster:
        """Eight nodes of eight."""
        return Cluster.parse(f"8x8:{self.device}")

    def hides(self, sequence: int) -> bool:
        """Whether computing hides the whole exchange."""
        times = ring_times(self.cluster, sequence, self.devices, stride=8, kv_heads=self.kv_heads)
        return times.exposed_seconds == 0


def _shortest(ring: Ring) -> str:
    return f"{next(length for length in _LENGTHS if ring.hides(length)):,}"


def _shared(random: Random) -> Shared:
    devices = random.choice((4, 8, 16, 32))
    return Shared(devices, random.randint(devices // 2 + 1, devices - 1))


def _ring(random: Random) -> Ring:
    """A ring that waits with the shortest sequence, and not with the longest."""
    while True:
        ring = Ring(random.choice(("a100", "h100", "h200")), random.choice((2, 4, 8)), random.choice((2, 4, 8, 16, 32)))
        if not ring.hides(_LENGTHS[0]) and ring.hides(_LENGTHS[-1]):
            return ring


def _long(random: Random) -> Long:
    return Long(
        random.choice(("llama-3.2-1b", "llama-3.2-3b", "llama-2-7b", "llama-2-13b", "llama-3-8b", "llama-3-70b")),
        random.choice(_LENGTHS),
    )


EXERCISES = (
    Exercise(
        id="10.1",
        draw=_long,
        kind=lambda _: Number(unit="share"),
        truth=lambda n: n.share,
        values={
            "head": lambda n, _: n.config.hidden // n.config.heads,
            "seen": lambda n, _: n.sequence // 2,
            "all": lambda n, _: n.scores + n.matrices,
        },
        wrong=lambda n, _: (
            2 * n.scores / (2 * n.scores + n.matrices),
            n.scores / n.matrices if not isclose(2 * n.scores, n.matrices, rel_tol=0.1) else None,
        ),
        holds=lambda n: 0.01 < n.share < 0.99,
    ),
    Exercise(
        id="10.2",
        draw=_shared,
        kind=lambda _: Number(tolerance=0.005),
        truth=lambda s: float(causal_shares(s.devices, ORDERS[0])[s.asked] * s.devices),
        wrong=lambda s, _: (2 * (s.asked + 1) / s.devices, 1.0),
        holds=lambda s: causal_shares(s.devices, ORDERS[0])[s.asked] * s.devices > 1 + 1 / s.devices,
    ),
    Exercise(
        id="10.3",
        draw=_ring,
        kind=lambda _: Choice(options=tuple(f"{length:,}" for length in _LENGTHS)),
        truth=_shortest,
        values={
            "device": lambda n, _: n.device.upper(),
            "times": lambda n, _: "\n".join(
                f"- {length:,}: {units.seconds(times.computing_seconds)} of attention, "
                f"{units.seconds(times.exchanging_seconds)} of exchange"
                for length in _LENGTHS
                for times in (ring_times(n.cluster, length, n.devices, stride=8, kv_heads=n.kv_heads),)
            ),
            "lengths": lambda *_: _LENGTHS,
        },
        wrong=lambda ring, truth: [
            Mistake(
                answer=f"{length:,}",
                reason="At this length computing is still shorter than what it should hide."
                if length < int(truth.replace(",", ""))
                else "It is hidden, but a shorter sequence is, too.",
            )
            for length in _LENGTHS
            if f"{length:,}" != truth
        ],
        holds=lambda ring: not ring.hides(_LENGTHS[0]) and ring.hides(_LENGTHS[-1]),
    ),
)
"""In the order of their ids."""
