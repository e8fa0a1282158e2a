"""Exercises of lesson 16: is it hidden?"""

from __future__ import annotations

from math import isclose
from random import Random
from typing import NamedTuple

from alpa_explore.course.definition import Exercise
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
        draw=lambda random: Machine(
            random.choice((312, 989, 2250)), random.choice((55, 60, 65, 70)), random.choice((25, 50, 100, 200, 400))
        ),
        kind=lambda _: Number(),
        truth=lambda m: m.tokens,
        values={"reached": lambda n, _: n.teraflops * n.percent / 100},
        wrong=lambda m, truth: (truth * 100 / m.percent, 2 * truth),
        holds=lambda m: _is_hidden(m, 1.02) and not _is_hidden(m, 0.98),
    ),
    Exercise(
        id="16.2",
        draw=_blocks,
        kind=lambda _: Number(unit="s", tolerance=0.001),
        truth=lambda b: b.waits,
        values={"others": lambda n, _: n.blocks - 1, "exposed": lambda n, _: n.gather - n.forward},
        wrong=lambda b, _: (1e-3 * (b.blocks - 1) * (b.gather - b.forward), 1e-3 * b.blocks * b.gather),
        holds=lambda b: b.gather > b.forward,
    ),
    Exercise(
        id="16.3",
        draw=_accumulated,
        kind=lambda _: Number(unit="share"),
        truth=lambda a: a.share,
        values={
            "backward": lambda n, _: 2 * n.forward,
            "plural": lambda n, _: "es" * (n.microbatches > 1),
            "sums": lambda n, _: n.blocks * n.sum,
            "passes": lambda n, _: 3 * n.forward,
        },
        wrong=lambda a, _: (
            a.unhidden,
            a.of_last if a.microbatches > 1 and not isclose(a.of_last, a.unhidden, rel_tol=0.05) else None,
        ),
        holds=lambda a: a.sum > 2 * a.forward,
    ),
    Exercise(
        id="16.4",
        draw=_run,
        kind=lambda _: Number(unit="share"),
        truth=lambda r: r.mfu * 4 / 3,
        wrong=lambda r, _: (r.mfu, 2 * r.mfu),
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
