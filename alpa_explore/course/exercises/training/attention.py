"""Exercises of lesson 10: attention and context parallelism."""

from __future__ import annotations

from math import isclose
from random import Random
from textwrap import dedent
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
        title="When attention dominates",
        draw=_long,
        question=lambda n: (
            f"A block of {n.model} multiplies each token by matrices of {n.matrices:,} elements in all. Its "
            f"{n.config.heads} heads of {n.config.hidden // n.config.heads} compare a token with all tokens before it. "
            f"The sequence has {n.sequence:,} tokens.\n\nWhich share of the block's multiply-adds are scores and "
            "weighted values?"
        ),
        kind=lambda _: Number(unit="share"),
        truth=lambda n: n.share,
        why=lambda n, truth: (
            f"A token sees S / 2 = {n.sequence // 2:,} keys in the mean. Scores and weighted values are 2 · heads · "
            f"head · S / 2 = {n.scores:,.0f} multiply-adds, of {n.scores + n.matrices:,.0f}: {units.percent(truth)}. "
            "The first grows with S, the matrices do not."
        ),
        mistakes=lambda n, _: [
            Mistake(
                answer=2 * n.scores / (2 * n.scores + n.matrices),
                reason="That compares each token with the whole sequence. A causal model looks back only: half of it.",
            ),
            *(
                [Mistake(answer=n.scores / n.matrices, reason="That is scores over matrices, not over the sum.")]
                if not isclose(2 * n.scores, n.matrices, rel_tol=0.1)
                else []
            ),
        ],
        hints=lambda _: (
            "How many keys does a token see, in the mean over the sequence?",
            "Scores: heads · head multiply-adds for each key seen. The weighted values: as many again.",
        ),
        code=lambda n: dedent(f"""\
            heads, head, sequence = {n.config.heads}, {n.config.hidden // n.config.heads}, {n.sequence}
            matrices = {n.matrices}
            scores = 2 * heads * head * sequence / 2
            answer = scores / (scores + matrices)
            """),
        premise="neither part is negligible",
        holds=lambda n: 0.01 < n.share < 0.99,
    ),
    Exercise(
        id="10.2",
        title="Early and late devices",
        draw=_shared,
        question=lambda s: (
            f"{s.devices} devices share a causal sequence; each has one run of it, device 0 the first.\n\nHow many "
            f"times the mean work does device {s.asked} compute?"
        ),
        kind=lambda _: Number(tolerance=0.005),
        truth=lambda s: float(causal_shares(s.devices, ORDERS[0])[s.asked] * s.devices),
        why=lambda s, truth: (
            f"Device d sees d whole runs and half of its own: in proportion to d + ½. Device {s.asked} has "
            f"{s.asked}.5, the mean is {s.devices}/2: (2d + 1) / p = {truth:.4g}. In zig-zag order every device has a "
            "short and a long chunk, and the ratio is 1."
        ),
        mistakes=lambda s, _: [
            Mistake(
                answer=2 * (s.asked + 1) / s.devices,
                reason="Nearly: half of the pairs within its own run are not visible either.",
            ),
            Mistake(answer=1.0, reason="That is zig-zag order. With one run each, later devices see more keys."),
        ],
        hints=lambda _: (
            "Count the coloured cells of the figure, device by device.",
            "A device computes all runs before its own and half of its own.",
        ),
        code=lambda s: f"answer = ({s.asked} + 0.5) / ({s.devices} / 2)\n",
        premise="the device is busier than the mean, by more than half of its own run",
        holds=lambda s: causal_shares(s.devices, ORDERS[0])[s.asked] * s.devices > 1 + 1 / s.devices,
    ),
    Exercise(
        id="10.3",
        title="From which length on is a ring free?",
        draw=_ring,
        question=lambda ring: (
            f"A ring of {ring.devices} {ring.device.upper()}, each on another node of eight, computes attention with "
            f"32 heads of queries and {ring.kv_heads} of keys and values, of 128 each, in zig-zag order.\n\nWhich is "
            "the shortest of these sequences whose exchange is hidden in the forward pass?"
        ),
        kind=lambda _: Choice(options=tuple(f"{length:,}" for length in _LENGTHS)),
        truth=_shortest,
        why=lambda ring, truth: (
            "Work grows with the square of the sequence, messages with its length:\n\n"
            + "\n".join(
                f"- {length:,}: {units.seconds(times.computing_seconds)} of attention, "
                f"{units.seconds(times.exchanging_seconds)} of exchange"
                for length in _LENGTHS
                for times in (ring_times(ring.cluster, length, ring.devices, stride=8, kv_heads=ring.kv_heads),)
            )
            + f"\n\nFrom {truth} positions on nothing waits. More heads of keys and values are more to send, at the "
            "same work."
        ),
        mistakes=lambda ring, truth: [
            Mistake(
                answer=f"{length:,}",
                reason="At this length computing is still shorter than what it should hide."
                if length < int(truth.replace(",", ""))
                else "It is hidden, but a shorter sequence is, too.",
            )
            for length in _LENGTHS
            if f"{length:,}" != truth
        ],
        hints=lambda _: (
            '`ring_times(ax.Cluster.parse("8x8:…"), sequence, devices, stride=8, kv_heads=…)` of the lesson has '
            "computing, exchange and what is not hidden (`exposed_seconds`).",
            "Try the lengths one after the other, from the shortest.",
        ),
        code=lambda ring: dedent(f"""\
            from alpa_explore.cluster import Cluster
            from alpa_explore.figures.course.training.attention import ring_times
            cluster, lengths = Cluster.parse("8x8:{ring.device}"), {_LENGTHS}
            for length in lengths:
                if not ring_times(cluster, length, {ring.devices}, stride=8, kv_heads={ring.kv_heads}).exposed_seconds:
                    answer = f"{{length:,}}"
                    break
            """),
        premise="the shortest sequence waits, and the longest does not",
        holds=lambda ring: not ring.hides(_LENGTHS[0]) and ring.hides(_LENGTHS[-1]),
    ),
)
"""In the order of their ids."""
