"""Exercises of lesson 07: the pipeline."""

from __future__ import annotations

from random import Random
from textwrap import dedent
from typing import NamedTuple

import numpy as np

from alpa_explore import units
from alpa_explore.course.definition import Exercise, Mistake
from alpa_explore.course.kinds import Number
from alpa_explore.inter_op.pipeline_dp import PipelineResult, pipeline_dp
from alpa_explore.numerics.arrays import Floats

_MOST_MICROBATCHES = 2000
"""Where the search of exercise 07.3 ends."""


class Stages(NamedTuple):
    """Stages of a pipeline, a layer each, and its microbatches."""

    milliseconds: tuple[int, ...]
    microbatches: int

    @property
    def result(self) -> PipelineResult:
        """Of the planner's program, where nothing can be chosen: each layer runs on one device only."""
        size = len(self.milliseconds)
        latency = np.full((size, size + 1, 1, size), np.inf)
        for k, value in enumerate(self.milliseconds):
            latency[k, k + 1] = 1e-3 * value
        return pipeline_dp(latency, [1], size, self.microbatches)


class Two(NamedTuple):
    """Two layers on two devices: together on both, or one on each."""

    together: int
    """Milliseconds of both layers on two devices."""
    apart: tuple[int, int]
    """Of each on one."""

    def at(self, count: int) -> PipelineResult:
        """The better of the two for B = `count`."""
        latency = np.full((2, 3, 2, 2), np.inf)
        latency[0, 2, 1] = 1e-3 * self.together
        latency[0, 1, 0], latency[1, 2, 0] = 1e-3 * self.apart[0], 1e-3 * self.apart[1]
        return pipeline_dp(latency, [1, 2], 2, count)

    @property
    def first(self) -> int:
        """The least B with which two stages are better."""
        return next(b for b in range(1, _MOST_MICROBATCHES) if len(self.at(b).stages) == 2)


class Small(NamedTuple):
    """Three layers on four devices: milliseconds of each run of layers on one and on two devices."""

    one: tuple[int, ...]
    two: tuple[int, ...]
    microbatches: int

    @property
    def runs(self) -> tuple[tuple[int, int], ...]:
        """(first layer, end) of each entry."""
        return ((0, 1), (1, 2), (2, 3), (0, 2), (1, 3), (0, 3))

    @property
    def latency(self) -> Floats:
        """The table as the planner has it."""
        latency = np.full((3, 4, 2, 3), np.inf)
        for (k, i), one, two in zip(self.runs, self.one, self.two, strict=True):
            latency[k, i, 0], latency[k, i, 1] = 1e-3 * one, 1e-3 * two
        return latency

    @property
    def result(self) -> PipelineResult:
        """The planner's."""
        return pipeline_dp(self.latency, [1, 2], 4, self.microbatches)

    def words(self) -> str:
        """The table in words."""
        names = ("0", "1", "2", "0–1", "1–2", "0–2")
        return "; ".join(f"{n}: {a} or {b}" for n, a, b in zip(names, self.one, self.two, strict=True))

    def all_totals(self) -> list[float]:
        """T of every partition on all four devices."""
        cost = {run: (1e-3 * a, 1e-3 * b) for run, a, b in zip(self.runs, self.one, self.two, strict=True)}
        chains = (((0, 1), (1, 3)), ((0, 2), (2, 3)), ((0, 1), (1, 2), (2, 3)))
        totals = []
        for chain in chains:
            for shapes in np.ndindex(*(2,) * len(chain)):
                if sum(shape + 1 for shape in shapes) == 4:
                    times = [cost[run][shape] for run, shape in zip(chain, shapes, strict=True)]
                    totals.append(sum(times) + (self.microbatches - 1) * max(times))
        return totals


def _stages(random: Random) -> Stages:
    return Stages(milliseconds=tuple(random.sample(range(20, 60), 4)), microbatches=random.choice((8, 12, 16, 24)))


def _two(random: Random) -> Two:
    """Two pipelines that are equally fast with no whole B."""
    while True:
        together = random.randint(50, 80)
        slow = together - random.randint(2, 6)
        two = Two(together=together, apart=(slow, slow - random.randint(1, 5)))
        if (sum(two.apart) - together) % (together - slow):
            return two


def _small(random: Random) -> Small:
    """One whose optimum has three stages of unlike size."""
    while True:
        layers = [random.randint(20, 60) for _ in range(3)]
        one = (*layers, layers[0] + layers[1], layers[1] + layers[2], sum(layers))
        small = Small(
            one=one,
            two=tuple(round(t * random.uniform(0.52, 0.68)) for t in one),
            microbatches=random.choice((4, 8, 16)),
        )
        if len(small.result.stages) == 3 and len(set(small.all_totals())) >= 4:
            return small


def _why_small(small: Small, truth: float) -> str:
    stages = ", ".join(
        f"layer{'s' * (end > first + 1)} {'–'.join(map(str, dict.fromkeys((first, end - 1))))} on {shape + 1}"
        for first, end, shape in small.result.stages
    )
    result = small.result
    return (
        f"Best: {stages}. Σt = {units.seconds(result.sum_latency_seconds)}, t_max = "
        f"{units.seconds(result.t_max_seconds)}, T = Σt + {small.microbatches - 1} · t_max = {units.seconds(truth)}."
    )


EXERCISES = (
    Exercise(
        id="07.1",
        title="The time of a pipeline",
        draw=_stages,
        question=lambda stages: (
            f"Four stages take {', '.join(map(str, stages.milliseconds))} ms for a microbatch. How long does an "
            f"iteration of B = {stages.microbatches} microbatches take by Eq. 2?"
        ),
        kind=lambda _: Number(unit="s", tolerance=0.001),
        truth=lambda stages: stages.result.total_seconds,
        why=lambda stages, truth: (
            f"Σt = {sum(stages.milliseconds)} ms for the first microbatch, and {stages.microbatches - 1} · "
            f"{max(stages.milliseconds)} ms for the others: {units.seconds(truth)}."
        ),
        mistakes=lambda stages, _: [
            Mistake(
                answer=1e-3 * (sum(stages.milliseconds) + stages.microbatches * max(stages.milliseconds)),
                reason="The first microbatch is counted twice: after it there are B − 1.",
            ),
            Mistake(
                answer=1e-3 * stages.microbatches * sum(stages.milliseconds),
                reason="That is without a pipeline: each microbatch begins when the one before it is done.",
            ),
        ],
        hints=lambda _: (
            "When does the first microbatch leave the last stage?",
            "How long after it does the second leave? Which stage decides?",
            "T = Σt + (B − 1) · t_max, in seconds.",
        ),
        code=lambda stages: dedent(f"""\
            t = [1e-3 * ms for ms in {list(stages.milliseconds)}]
            answer = sum(t) + ({stages.microbatches} - 1) * max(t)
            """),
        premise="the planner's program gives the same T",
        holds=lambda stages: stages.result.t_max_seconds == 1e-3 * max(stages.milliseconds),
    ),
    Exercise(
        id="07.2",
        title="One t_max after the other",
        draw=_small,
        question=lambda small: (
            "Three layers on four devices. Milliseconds of each run of layers on one device or on two: "
            f"{small.words()}. All four devices are used.\n\nWhat is the least T for B = {small.microbatches}?"
        ),
        kind=lambda _: Number(unit="s", tolerance=0.001),
        truth=lambda small: small.result.total_seconds,
        why=_why_small,
        mistakes=lambda small, truth: [
            Mistake(
                answer=min(total for total in small.all_totals() if total > truth * 1.002),
                reason="That is a partition on all devices, and only the second best.",
            ),
            Mistake(
                answer=1e-3 * small.microbatches * max(small.one),
                reason="That is everything on one device, without a pipeline.",
            ),
        ],
        hints=lambda _: (
            "Which partitions use exactly four devices? Two stages of two, or three stages of which one has two.",
            "For each write down Σt and the slowest stage.",
            "T = Σt + (B − 1) · t_max; take the least.",
        ),
        code=lambda small: dedent(f"""\
            one, two, B = {list(small.one)}, {list(small.two)}, {small.microbatches}
            a, b, c, ab, bc, _ = range(6)
            partitions = [
                [two[a], two[bc]],
                [two[ab], two[c]],
                [two[a], one[b], one[c]],
                [one[a], two[b], one[c]],
                [one[a], one[b], two[c]],
            ]
            answer = min(sum(t) + (B - 1) * max(t) for t in partitions) / 1000
            """),
        premise="the planner's program finds what trying all partitions finds",
        holds=lambda small: bool(np.isclose(min(small.all_totals()), small.result.total_seconds)),
    ),
    Exercise(
        id="07.3",
        title="When a second stage pays",
        draw=_two,
        question=lambda two: (
            f"Two layers take {two.together} ms on two devices together. Alone, on one device each, they take "
            f"{two.apart[0]} and {two.apart[1]} ms. Which is the smallest B with which two stages are faster than one?"
        ),
        kind=lambda _: Number(tolerance=0.0),
        truth=lambda two: two.first,
        why=lambda two, truth: (
            f"One stage: {two.together} · B. Two stages: {sum(two.apart)} + (B − 1) · {max(two.apart)}. They are equal "
            f"at B = 1 + ({sum(two.apart)} − {two.together}) / ({two.together} − {max(two.apart)}) = "
            f"{1 + (sum(two.apart) - two.together) / (two.together - max(two.apart)):.4g}; the next whole B is {truth}."
        ),
        mistakes=lambda _two, truth: [
            Mistake(answer=truth - 1, reason="With this B one stage is as fast, or faster."),
            Mistake(answer=truth + 1, reason="A smaller B is enough."),
        ],
        hints=lambda _: (
            "Write T of both pipelines as a function of B.",
            "One stage has Σt = t_max. Two stages have a larger Σt and a smaller t_max.",
            "Two stages win for B > 1 + (difference of Σt) / (difference of t_max).",
        ),
        code=lambda two: dedent(f"""\
            def one(b):
                return {two.together} * b


            def two(b):
                return {sum(two.apart)} + (b - 1) * {max(two.apart)}


            answer = next(b for b in range(1, 10_000) if two(b) < one(b))
            """),
        premise="one stage is faster with few microbatches, two with many",
        holds=lambda two: len(two.at(1).stages) == 1 and len(two.at(_MOST_MICROBATCHES).stages) == 2 and two.first > 2,
    ),
)
"""In the order of their ids."""
