"""Exercises of lesson 16: is it hidden?"""

from __future__ import annotations

from math import isclose
from random import Random
from textwrap import dedent
from typing import NamedTuple

from alpa_explore import units
from alpa_explore.course.definition import Exercise, Mistake
from alpa_explore.course.kinds import Number
from alpa_explore.figures.course.training.hidden import BlockSeconds, Overlap, overlap


class Machine(NamedTuple):
    """What a device computes and sends in a second."""

    teraflops: int
    percent: int
    """Of the peak that products reach."""
    gigabytes: int

    @property
    def tokens(self) -> float:
        """From which gathering the weights is hidden behind the forward pass."""
        return 1e12 * self.teraflops * self.percent / 100 / (1e9 * self.gigabytes)


class Blocks(NamedTuple):
    """Blocks whose weights are gathered one ahead, in milliseconds."""

    blocks: int
    forward: int
    gather: int

    @property
    def waits(self) -> float:
        """Seconds of the forward pass in which nothing is computed."""
        each = BlockSeconds(forward=1e-3 * self.forward, backward=0.0, gather=1e-3 * self.gather)
        ends = [task.end for task in overlap(self.blocks, each).tasks if task.kind == "forward"]
        return max(ends) - 1e-3 * self.blocks * self.forward


class Accumulated(NamedTuple):
    """Data parallelism with gradients that are summed once in several microbatches, in milliseconds."""

    blocks: int
    microbatches: int
    forward: int
    sum: int

    @property
    def last(self) -> Overlap:
        """The last microbatch: a backward pass takes twice as long as a forward pass."""
        each = BlockSeconds(forward=1e-3 * self.forward, backward=2e-3 * self.forward, sum=1e-3 * self.sum)
        return overlap(self.blocks, each)

    @property
    def busy(self) -> float:
        """Seconds of computing of all microbatches."""
        return 3e-3 * self.forward * self.blocks * self.microbatches

    @property
    def share(self) -> float:
        """Of the time of all microbatches in which the device waits."""
        return self.last.exposed_seconds / (self.busy + self.last.exposed_seconds)

    @property
    def of_last(self) -> float:
        """The same of the last microbatch alone."""
        return self.last.exposed_seconds / self.last.seconds

    @property
    def unhidden(self) -> float:
        """The same if sums hid behind nothing."""
        sums = 1e-3 * self.blocks * self.sum
        return sums / (self.busy + sums)


class Run(NamedTuple):
    """A run with full recomputation."""

    billions: int
    tokens: int
    """Of a device in a second."""
    teraflops: int

    @property
    def mfu(self) -> float:
        """By products alone."""
        return 6e9 * self.billions * self.tokens / (1e12 * self.teraflops)


def _run(random: Random) -> Run:
    while True:
        run = Run(random.choice((7, 8, 13, 32, 70)), 100 * random.randint(5, 120), random.choice((312, 989, 2250)))
        if 0.25 < run.mfu < 0.55:
            return run


def _accumulated(random: Random) -> Accumulated:
    forward = random.randint(2, 6)
    return Accumulated(
        random.choice((8, 16, 32)), random.choice((1, 2, 4, 8)), forward, 2 * forward + random.randint(1, 9)
    )


def _blocks(random: Random) -> Blocks:
    forward = random.randint(2, 9)
    return Blocks(random.choice((16, 24, 32, 40)), forward, forward + random.randint(1, 6))


EXERCISES = (
    Exercise(
        id="16.1",
        title="Tokens that hide a gather",
        draw=lambda random: Machine(
            random.choice((312, 989, 2250)), random.choice((55, 60, 65, 70)), random.choice((25, 50, 100, 200, 400))
        ),
        question=lambda m: (
            f"A device computes {m.teraflops} TFLOP/s at its peak, of which products reach {m.percent} %, and gets "
            f"{m.gigabytes} GB/s. FSDP gathers weights in bfloat16, all but a negligible part of them from other "
            "devices.\n\nHow many tokens must a device compute in the forward pass so that the gathers are hidden?"
        ),
        kind=lambda _: Number(),
        truth=lambda m: m.tokens,
        why=lambda m, truth: (
            "A weight is 2 bytes to gather, and 2 FLOPs for each token: both take equally long at T = FLOP/s / "
            "(B/s) = "
            f"{m.teraflops * m.percent / 100:.4g} · 10¹² / {m.gigabytes} · 10⁹ = {truth:.4g} tokens. The size of the "
            "model does not matter."
        ),
        mistakes=lambda m, truth: [
            Mistake(answer=truth * 100 / m.percent, reason="That is with the whole peak, which products do not reach."),
            Mistake(answer=2 * truth, reason="A weight has 2 bytes, but also 2 FLOPs a token: the 2 cancels."),
        ],
        hints=lambda _: (
            "Write down the seconds of both for a model of N weights and T tokens.",
            "2 · N / (B/s) = 2 · N · T / (FLOP/s): solve for T.",
        ),
        code=lambda m: f"answer = {m.teraflops}e12 * {m.percent} / 100 / {m.gigabytes}e9\n",
        premise="the simulator hides all but the first gather at this number, and not below it",
        holds=lambda m: _is_hidden(m, 1.02) and not _is_hidden(m, 0.98),
    ),
    Exercise(
        id="16.2",
        title="What is left over",
        draw=_blocks,
        question=lambda b: (
            f"{b.blocks} equal blocks take {b.forward} ms each in the forward pass. FSDP gathers the weights of a "
            "block in "
            f"{b.gather} ms, and of the next one while a block computes; one gather runs at a time.\n\nFor how long "
            "does "
            "the device wait in the forward pass?"
        ),
        kind=lambda _: Number(unit="s", tolerance=0.001),
        truth=lambda b: b.waits,
        why=lambda b, truth: (
            f"The first gather is not hidden: {b.gather} ms. Each of the other {b.blocks - 1} takes "
            f"{b.gather - b.forward} ms longer than the block that hides it: {b.gather} + {b.blocks - 1} · "
            f"{b.gather - b.forward} ms = {units.seconds(truth)}."
        ),
        mistakes=lambda b, _: [
            Mistake(
                answer=1e-3 * (b.blocks - 1) * (b.gather - b.forward),
                reason="And the first gather: nothing is computed before it is there.",
            ),
            Mistake(
                answer=1e-3 * b.blocks * b.gather,
                reason="That is all that is gathered. The blocks compute during most of it.",
            ),
        ],
        hints=lambda _: (
            "Which gather can hide behind nothing?",
            "How much longer than a block does a gather take? Count how often this happens.",
        ),
        code=lambda b: dedent(f"""\
            blocks, forward, gather = {b.blocks}, {b.forward}e-3, {b.gather}e-3
            answer = gather + (blocks - 1) * (gather - forward)
            """),
        premise="gathering takes longer than computing",
        holds=lambda b: b.gather > b.forward,
    ),
    Exercise(
        id="16.3",
        title="Gradients once in B microbatches",
        draw=_accumulated,
        question=lambda a: (
            f"Data parallelism: {a.blocks} equal blocks take {a.forward} ms forward and {2 * a.forward} ms backward "
            "each. "
            f"The gradients of a block are summed in {a.sum} ms, one block after the other, beginning when its last "
            f"backward pass is done. An iteration has {a.microbatches} microbatch{'es' * (a.microbatches > 1)}; leave "
            "its update out.\n\nFor which share of the iteration does the device wait?"
        ),
        kind=lambda _: Number(unit="share"),
        truth=lambda a: a.share,
        why=lambda a, truth: (
            f"The first sum begins after {2 * a.forward} ms of the last backward pass, and {a.blocks} of them take "
            f"{a.blocks * a.sum} ms: {units.seconds(a.last.exposed_seconds)} longer than the pass. All computing takes "
            f"{a.microbatches} · {a.blocks} · {3 * a.forward} ms, so the share is {units.percent(truth)}. Twice the "
            "microbatches nearly halve it; under FSDP, which sends for every microbatch, they would not."
        ),
        mistakes=lambda a, _: [
            Mistake(
                answer=a.unhidden,
                reason="That hides nothing. While one block is summed, those before it run their backward pass.",
            ),
            *(
                [Mistake(answer=a.of_last, reason="That is the share of the last microbatch. The others send nothing.")]
                if a.microbatches > 1 and not isclose(a.of_last, a.unhidden, rel_tol=0.05)
                else []
            ),
        ],
        hints=lambda _: (
            "When is the gradient of the first block ready, that of the last layer? And when does the last sum end?",
            "The wait is backward of one block + all sums − the whole backward pass; divide by it and all computing.",
        ),
        code=lambda a: dedent(f"""\
            blocks, count, forward, one_sum = {a.blocks}, {a.microbatches}, {a.forward}, {a.sum}
            waits = 2 * forward + blocks * one_sum - blocks * 2 * forward
            answer = waits / (count * blocks * 3 * forward + waits)
            """),
        premise="a sum takes longer than the backward pass that hides it",
        holds=lambda a: a.sum > 2 * a.forward,
    ),
    Exercise(
        id="16.4",
        title="MFU and HFU",
        draw=_run,
        question=lambda r: (
            f"A model of {r.billions} billion parameters trains with full recomputation. A device computes "
            f"{r.tokens:,} "
            f"tokens a second; its peak is {r.teraflops} TFLOP/s. Count products alone, 6 FLOPs for a parameter and "
            "token, and for HFU also the forward pass that is repeated.\n\nWhat is the HFU?"
        ),
        kind=lambda _: Number(unit="share"),
        truth=lambda r: r.mfu * 4 / 3,
        why=lambda r, truth: (
            f"MFU counts what the model needs: 6 · {r.billions} · 10⁹ · {r.tokens:,} / {r.teraflops} · 10¹² = "
            f"{units.percent(r.mfu)}. The hardware did 8 FLOPs, 2 of them twice: HFU = 4/3 · MFU = "
            f"{units.percent(truth)}. Without recomputation both are equal."
        ),
        mistakes=lambda r, _: [
            Mistake(answer=r.mfu, reason="That is the MFU. The hardware also ran the forward pass a second time."),
            Mistake(answer=2 * r.mfu, reason="Only the forward pass is repeated, a third of the FLOPs."),
        ],
        hints=lambda _: (
            "How many FLOPs a parameter and token does the hardware run, if the forward pass runs twice?",
            "2 forward, 2 again, 4 backward.",
        ),
        code=lambda r: f"answer = 8 * {r.billions}e9 * {r.tokens} / {r.teraflops}e12\n",
        premise="it is a share below one",
        holds=lambda r: r.mfu * 4 / 3 < 1 and isclose(r.mfu * 4 / 3, 8e-3 * r.billions * r.tokens / r.teraflops),
    ),
)
"""In the order of their ids."""


def _is_hidden(machine: Machine, times: float) -> bool:
    """Whether the simulator hides all but the first gather, with `times` the tokens that are needed."""
    weights, tokens = 1e9, machine.tokens * times
    forward = 2 * weights * tokens / (1e12 * machine.teraflops * machine.percent / 100)
    each = BlockSeconds(forward=forward, backward=0.0, gather=2 * weights / (1e9 * machine.gigabytes))
    ends = [task.end for task in overlap(8, each).tasks if task.kind == "forward"]
    return isclose(max(ends), each.gather + 8 * forward)
