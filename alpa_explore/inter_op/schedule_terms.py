"""A schedule as the planner models it: the size of its bubble, and how many microbatches a stage holds.

    T = Σt / q + (B − 1/q)·t_max                                                       (Eq. 2 of the paper for q = 1)

For P equal stages of latency t this is B·t + (P − 1)·t / q, the formula of `schedules.closed_form`; where sends take no
time, `simulate` gives the same. Place s counts from the end: 1 is the last stage.

name               q         a stage holds                       requires
1f1b               1         min(s, B) (the paper)
1f1b-overlap       1         min(2s − 1, B)                      (eager 1F1B: sends hide behind computing)
gpipe              1         B
interleaved-1f1b   v         ⌈min(2(s − 1) + (v − 1)P + 1, v·B) / v⌉   P | B; v layers in every stage
zb-h1              3 or 2    min(P, B)                           P ≤ B

Interleaved: a stage of the plan is what one submesh runs, that is v stages of the schedule. Their layers are assumed to
cost what as many adjacent layers cost; with P = 1 there is nothing to interleave. ZB-H1: the bubble is
(P − 1)·(f + i − w), where forward f, backward to the input i and backward to the weight w share t as in a matrix
product: a third each; where some layers or all rematerialise the forward pass before i, a quarter, a half, a quarter.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from alpa_explore.errors import OptionError

SCHEDULES = ("1f1b", "1f1b-overlap", "gpipe", "interleaved-1f1b", "zb-h1")
SIMULATED_AS = {"1f1b-overlap": "eager-1f1b"}
"""Schedules that have another name in `schedules.catalog`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleTerms:
    """One schedule at one B."""

    schedule: str
    num_microbatches: int
    stages_per_submesh: int = 2
    """v; read by the interleaved schedule only."""
    recomputes: bool = False
    """Whether the backward pass rematerialises forward operators."""

    @property
    def turns(self) -> int:
        """How often a microbatch passes through a submesh."""
        return self.stages_per_submesh if self.schedule == "interleaved-1f1b" else 1

    @property
    def bubble_divisor(self) -> int:
        """q."""
        return (2 if self.recomputes else 3) if self.schedule == "zb-h1" else self.turns

    @property
    def rounds(self) -> float:
        """B − 1/q, the factor of t_max in T."""
        q, b = self.bubble_divisor, self.num_microbatches
        return b - 1 if q == 1 else b - 1 / q

    def iteration_seconds(self, latencies: Sequence[float], once_seconds: float = 0.0) -> float:
        """T of stages with these latencies (Eq. 2), which together add `once_seconds` to an iteration."""
        return sum(latencies) / self.bubble_divisor + self.rounds * max(latencies) + once_seconds

    @property
    def rounds_text(self) -> str:
        """`rounds` as a factor, for people."""
        return f"{self.rounds:,}" if self.bubble_divisor == 1 else f"({self.num_microbatches:,}−1{self.share})"

    @property
    def share(self) -> str:
        """'/q' as a formula on screen writes it behind a term; empty where q is 1."""
        return "" if self.bubble_divisor == 1 else f"/{self.bubble_divisor}"

    @property
    def depends_on_depth(self) -> bool:
        """Whether the microbatches that a stage holds depend on the number of stages too."""
        return self.schedule in ("interleaved-1f1b", "zb-h1")

    def held(self, place: int, depth: int) -> int:
        """The most microbatches whose activations a stage holds, at `place` from the end of `depth` stages."""
        b, v = self.num_microbatches, self.stages_per_submesh
        if self.schedule == "interleaved-1f1b":
            runs = min(2 * (place - 1) + (v - 1) * depth + 1, v * b)
            return -(-runs // v)
        whole = {"1f1b": place, "1f1b-overlap": 2 * place - 1, "gpipe": b, "zb-h1": depth}[self.schedule]
        return min(whole, b)

    def depths(self, most: int) -> tuple[int, ...]:
        """The numbers of stages, up to `most`, for which the schedule exists."""
        b = self.num_microbatches
        if self.schedule == "interleaved-1f1b":
            return tuple(p for p in range(1, most + 1) if b % p == 0)
        return tuple(range(1, (min(most, b) if self.schedule == "zb-h1" else most) + 1))

    def check_depth(self, num_stages: int) -> None:
        """OptionError where the schedule does not exist for this number of stages."""
        if num_stages not in (possible := self.depths(num_stages)):
            raise OptionError(
                f"The schedule {self.schedule} does not exist for this pipeline",
                found=f"{num_stages} stages and B = {self.num_microbatches}",
                remedy=f"Ask for {possible[-1]} stages, for a B of {num_stages}, or for another schedule.",
            )

    def least_layers(self, depth: int) -> int:
        """The fewest layers that each of `depth` stages can have."""
        return self.turns if depth > 1 else 1
