"""Exercises of lesson 07: the pipeline."""

from __future__ import annotations

from random import Random
from typing import NamedTuple

import numpy as np

from alpa_explore import units
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
