"""Exercises of lesson 15: a transformer block on eight devices."""

from __future__ import annotations

from random import Random
from typing import NamedTuple

from alpa_explore.cluster import Cluster, Submesh, logical_mesh
from alpa_explore.cost.collectives import collective_seconds
from alpa_explore.cost.resharding import reshard_table
from alpa_explore.course.definition import Exercise, Mistake
from alpa_explore.course.kinds import Number
from alpa_explore.models.catalog import llama
from alpa_explore.models.configs import LlamaConfig
from alpa_explore.sharding.reshard import StepKind
from alpa_explore.sharding.spec import PARTIAL, REPLICATE, Spec


class Heads(NamedTuple):
    """The attention of a model under tensor parallelism."""

    model: str
    degree: int

    @property
    def config(self) -> LlamaConfig:
        """Its sizes."""
        return llama(self.model)

    @property
    def head(self) -> int:
        """Width of a head."""
        return self.config.hidden // self.config.heads

    @property
    def keys(self) -> int:
        """Heads of keys, and as many of values, on a device."""
        return max(self.config.key_heads // self.degree, 1)

    @property
    def elements(self) -> int:
        """Of the weights of q, k, v and the output product on a device."""
        return self.config.hidden * self.head * (2 * self.config.heads // self.degree + 2 * self.keys)


class Sums(NamedTuple):
    """The sums of a block."""

    tokens: int
    hidden: int
    degree: int
    gigabytes_per_second: int
    blocks: int

    @property
    def bytes(self) -> int:
        """Of the activations of a microbatch between the pairs, in bfloat16."""
        return 2 * self.tokens * self.hidden

    @property
    def seconds(self) -> float:
        """Of one all-reduce."""
        return collective_seconds(
            StepKind.ALL_REDUCE, self.bytes, self.degree, 1e9 * self.gigabytes_per_second, _WAIT_SECONDS
        )


class Chain(NamedTuple):
    """Products in a row, and how each is divided."""

    loops: tuple[str, ...]

    @property
    def collectives(self) -> list[str]:
        """What is sent in the forward pass, in order, if both ends are whole on every device."""
        mesh = logical_mesh(Cluster.parse("1x4:h100"), Submesh(1, 4), (1, 4)).squeezed()
        table, spec, sent = reshard_table((4096, 4096), 2 * 4096 * 4096, mesh), _WHOLE, list[str]()
        for reads, writes in [*(_LOOPS[loop] for loop in self.loops), (_WHOLE, _WHOLE)]:
            sent += [step.kind.value for step, _ in table.path(spec, reads) if step.kind is not StepKind.SLICE]
            spec = writes
        return sent


_WAIT_SECONDS = 5e-6
_WHOLE: Spec = (REPLICATE,)
_LOOPS: dict[str, tuple[Spec, Spec]] = {"columns": (_WHOLE, (1,)), "inner": ((1,), (PARTIAL,))}
_MODELS = ("llama-3-8b", "llama-3-70b", "llama-3.2-1b", "llama-3.2-3b", "llama-3.1-405b")


def _heads(random: Random) -> Heads:
    while True:
        heads = Heads(random.choice(_MODELS), random.choice((2, 4, 8, 16, 32)))
        if not heads.config.heads % heads.degree:
            return heads


def _sums(random: Random) -> Sums:
    return Sums(
        1024 * random.choice((2, 4, 8)),
        random.choice((4096, 5120, 8192)),
        random.choice((2, 4, 8)),
        random.choice((100, 200, 400)),
        random.choice((32, 40, 80)),
    )


def _chain(random: Random) -> Chain:
    """Four to seven products that are not divided in the best way."""
    while True:
        chain = Chain(tuple(random.choice(("columns", "inner")) for _ in range(random.randint(4, 7))))
        if len(chain.collectives) != sum(loop == "inner" for loop in chain.loops) and chain.collectives:
            return chain


EXERCISES = (
    Exercise(
        id="15.1",
        draw=_heads,
        kind=lambda _: Number(tolerance=0.0),
        truth=lambda h: h.elements,
        values={"heads": lambda n, _: n.config.heads // n.degree},
        wrong=lambda h, truth: (
            truth - h.config.hidden * h.head * h.config.heads // h.degree,
            *(
                [Mistake(answer=wrong, reason="A head of keys cannot be divided further: each device needs one whole.")]
                if (wrong := 2 * h.config.hidden * h.head * (h.config.heads + h.config.key_heads) // h.degree) != truth
                else [Mistake(answer=4 * h.config.hidden**2 // h.degree, reason="Keys and values have fewer heads.")]
            ),
        ),
        holds=lambda h: h.config.key_heads < h.config.heads,
    ),
    Exercise(
        id="15.2",
        draw=_sums,
        kind=lambda _: Number(unit="s"),
        truth=lambda s: 4 * s.blocks * s.seconds,
        wrong=lambda s, truth: (truth / 2, truth / 4),
        holds=lambda s: s.seconds > 4 * (s.degree - 1) * _WAIT_SECONDS,
    ),
    Exercise(
        id="15.3",
        draw=_chain,
        kind=lambda _: Number(tolerance=0.0),
        truth=lambda c: len(c.collectives),
        values={
            "count": lambda n, _: len(n.loops),
            "loops": lambda n, _: ", ".join(n.loops),
            "collectives": lambda n, _: ", ".join(n.collectives),
        },
        wrong=lambda c, truth: (
            sum(loop == "inner" for loop in c.loops),
            len(c.loops) if len(c.loops) != truth else None,
        ),
        holds=lambda c: len(c.collectives) > sum(loop == "inner" for loop in c.loops),
    ),
)
"""In the order of their ids."""
