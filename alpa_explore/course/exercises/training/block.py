"""Exercises of lesson 15: a transformer block on eight devices."""

from __future__ import annotations

from random import Random
from textwrap import dedent
from typing import NamedTuple

from alpa_explore import units
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
        title="Heads on a device",
        draw=_heads,
        question=lambda h: (
            f"{h.model} has h = {h.config.hidden:,}, {h.config.heads} heads of queries and {h.config.key_heads} of "
            "keys "
            f"and of values, of {h.head} each. Tensor parallelism divides its heads among {h.degree} devices; where "
            ""
            "there are fewer heads of keys than devices, a head is copied to several.\n\nHow many weights of q, k, v "
            "and "
            "the output product has a device?"
        ),
        kind=lambda _: Number(tolerance=0.0),
        truth=lambda h: h.elements,
        why=lambda h, truth: (
            f"A device has {h.config.heads // h.degree} heads of queries, for which q and the output product have "
            f"{h.config.hidden:,} × {h.head} weights each, and {h.keys} of keys and of values: {h.config.hidden:,} · "
            f"{h.head} · (2 · {h.config.heads // h.degree} + 2 · {h.keys}) = {truth:,}."
        ),
        mistakes=lambda h, truth: [
            Mistake(
                answer=truth - h.config.hidden * h.head * h.config.heads // h.degree,
                reason="That leaves the output product out: it is divided along its inner loop, by the same heads.",
            ),
            *(
                [Mistake(answer=wrong, reason="A head of keys cannot be divided further: each device needs one whole.")]
                if (wrong := 2 * h.config.hidden * h.head * (h.config.heads + h.config.key_heads) // h.degree) != truth
                else [Mistake(answer=4 * h.config.hidden**2 // h.degree, reason="Keys and values have fewer heads.")]
            ),
        ],
        hints=lambda h: (
            "How many heads of queries has a device, and how many of keys?",
            f"A head of q is a matrix of {h.config.hidden:,} × {h.head}; so is a head of k, of v and of the output.",
        ),
        code=lambda h: dedent(f"""\
            hidden, head, p = {h.config.hidden}, {h.head}, {h.degree}
            queries, keys = {h.config.heads} // p, max({h.config.key_heads} // p, 1)
            answer = hidden * head * (2 * queries + 2 * keys)
            """),
        premise="keys and values have fewer heads than queries",
        holds=lambda h: h.config.key_heads < h.config.heads,
    ),
    Exercise(
        id="15.2",
        title="What the sums of a model take",
        draw=_sums,
        question=lambda s: (
            f"A model has {s.blocks} blocks of width {s.hidden:,}. {s.degree} devices on a ring share each matrix, "
            "and a "
            f"microbatch has {s.tokens:,} tokens in bfloat16. A link moves {s.gigabytes_per_second} GB/s, and a "
            "message "
            "waits 5 µs.\n\nHow long do the all-reduces of activations of all blocks take, forward and backward, for a "
            "microbatch?"
        ),
        kind=lambda _: Number(unit="s"),
        truth=lambda s: 4 * s.blocks * s.seconds,
        why=lambda s, truth: (
            f"Each of the two pairs of a block has a sum forward and one backward: 4 · {s.blocks} all-reduces of 2 · "
            f"{s.tokens:,} · {s.hidden:,} bytes = {units.bytes_(s.bytes)}, of {units.seconds(s.seconds)} each: "
            f"{units.seconds(truth)}."
        ),
        mistakes=lambda s, truth: [
            Mistake(answer=truth / 2, reason="That is the forward pass. The backward pass has as many sums."),
            Mistake(answer=truth / 4, reason="That is one all-reduce a block. There are two pairs, and two passes."),
        ],
        hints=lambda _: (
            "How many sums has a block, in both passes?",
            "An all-reduce has 2 (p − 1) steps of α + n / p · β, with n = 2 · tokens · width.",
        ),
        code=lambda s: dedent(f"""\
            n, p = 2 * {s.tokens} * {s.hidden}, {s.degree}
            one = 2 * (p - 1) * (5e-6 + n / p / {s.gigabytes_per_second}e9)
            answer = 4 * {s.blocks} * one
            """),
        premise="moving bytes takes longer than waiting",
        holds=lambda s: s.seconds > 4 * (s.degree - 1) * _WAIT_SECONDS,
    ),
    Exercise(
        id="15.3",
        title="Count the collectives",
        draw=_chain,
        question=lambda c: (
            f"{len(c.loops)} products stand in a row, with an activation function after each. They are divided by "
            f"{', '.join(c.loops)}. The first input and the last output are whole on every device, and activation "
            "functions may not be applied to pending sums.\n\nHow many collectives does the forward pass have?"
        ),
        kind=lambda _: Number(tolerance=0.0),
        truth=lambda c: len(c.collectives),
        why=lambda c, truth: (
            f"{', '.join(c.collectives)}: {truth}. Columns reads all of its input and leaves a part of the columns; "
            "inner "
            "reads such a part and leaves a sum that is pending. Only columns, then inner, meet without sending."
        ),
        mistakes=lambda c, truth: [
            Mistake(
                answer=sum(loop == "inner" for loop in c.loops),
                reason="Those are the pending sums. Columns in front of columns must be gathered, too.",
            ),
            *(
                [Mistake(answer=len(c.loops), reason="Columns and the inner after it need nothing between them.")]
                if len(c.loops) != truth
                else []
            ),
        ],
        hints=lambda _: (
            "Write down for each product what it reads and what it leaves: all, a part of the columns, a pending sum.",
            "Where the left one leaves what the right one reads, nothing is sent; a slice is free.",
        ),
        code=lambda c: dedent(f"""\
            loops, spec, answer = {list(c.loops)}, "all", 0
            for loop in [*loops, "end"]:
                reads = "part" if loop == "inner" else "all"
                answer += spec != reads and spec != "all"  # a slice is free
                spec = "part" if loop == "columns" else "pending"
            """),
        premise="it is more than the number of pending sums",
        holds=lambda c: len(c.collectives) > sum(loop == "inner" for loop in c.loops),
    ),
)
"""In the order of their ids."""
