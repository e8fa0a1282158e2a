"""What the planner knows of a schedule: how large its bubble is, and how many microbatches a stage holds.

    T = Σt / q + (B − 1/q)·t_max

for P stages; of equal stages that take t it is B·t + (P − 1)·t / q, the formula of `schedules.closed_form` and, where
sends take no time, what `simulate` gives. Place s counts from the end, 1 is the last stage.

name               q         a stage holds                       there must be
1f1b               1         min(s, B) (the paper)
1f1b-overlap       1         min(2s − 1, B)                      (eager 1F1B: sends hide behind computing)
gpipe              1         B
interleaved-1f1b   v         ⌈min(2(s − 1) + (v − 1)P + 1, v·B) / v⌉   P | B; v layers in every stage
zb-h1              3 or 2    min(P, B)                           P ≤ B

Interleaved: a stage of the plan is what one submesh runs, v stages of the schedule. Their layers are taken to cost what
as many neighbouring layers do; of P = 1 there is nothing to interleave. ZB-H1: the bubble is (P − 1)·(f + i − w), where
forward f, backward to the input i and backward to the weight w share t as in matrix products: a third each; with the
forward pass run again before i, in some layers or all, a quarter, a half and a quarter.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from alpa_explore.errors import OptionError

SCHEDULES = ("1f1b", "1f1b-overlap", "gpipe", "interleaved-1f1b", "zb-h1")
SIMULATED_AS = {"1f1b-overlap": "eager-1f1b"}
"""Names that `schedules.catalog` has otherwise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleTerms:
    """One schedule at one B."""

    schedule: str
    num_microbatches: int
    stages_per_submesh: int = 2
    """Of the interleaved schedule."""
    recomputes: bool = False
    """Whether the backward pass runs forward operators again."""

    @property
    def turns(self) -> int:
        """How often a microbatch comes through a submesh."""
        return self.stages_per_submesh if self.schedule == "interleaved-1f1b" else 1

    @property
    def bubble_divisor(self) -> int:
        """q."""
        return (2 if self.recomputes else 3) if self.schedule == "zb-h1" else self.turns

    @property
    def rounds(self) -> float:
        """B − 1/q: how often t_max is paid."""
        q, b = self.bubble_divisor, self.num_microbatches
        return b - 1 if q == 1 else b - 1 / q

    def iteration_seconds(self, latencies: Sequence[float]) -> float:
        """T of stages with these latencies, whatever is paid once an iteration aside."""
        return sum(latencies) / self.bubble_divisor + self.rounds * max(latencies)

    @property
    def rounds_text(self) -> str:
        """`rounds` as a factor, for people."""
        return f"{self.rounds:,}" if self.bubble_divisor == 1 else f"({self.num_microbatches:,}−1{self.share})"

    @property
    def share(self) -> str:
        """How 1/q is written behind what it divides."""
        return "" if self.bubble_divisor == 1 else f"/{self.bubble_divisor}"

    @property
    def knows_depth(self) -> bool:
        """Whether what a stage holds depends on the number of stages too."""
        return self.schedule in ("interleaved-1f1b", "zb-h1")

    def held(self, place: int, depth: int) -> int:
        """Microbatches whose activations the stage at `place` from the end, of `depth` stages, holds at most."""
        b, v = self.num_microbatches, self.stages_per_submesh
        if self.schedule == "interleaved-1f1b":
            runs = min(2 * (place - 1) + (v - 1) * depth + 1, v * b)
            return -(-runs // v)
        whole = {"1f1b": place, "1f1b-overlap": 2 * place - 1, "gpipe": b, "zb-h1": depth}[self.schedule]
        return min(whole, b)

    def depths(self, most: int) -> tuple[int, ...]:
        """The numbers of stages up to `most` for which the schedule exists."""
        b = self.num_microbatches
        if self.schedule == "interleaved-1f1b":
            return tuple(p for p in range(1, most + 1) if b % p == 0)
        return tuple(range(1, (min(most, b) if self.schedule == "zb-h1" else most) + 1))

    def check_depth(self, num_stages: int) -> None:
        """OptionError where the schedule does not exist for so many stages."""
        if num_stages not in (possible := self.depths(num_stages)):
            raise OptionError(
                f"The schedule {self.schedule} does not exist for this pipeline",
                found=f"{num_stages} stages and B = {self.num_microbatches}",
                remedy=f"Ask for {possible[-1]} stages, for a B of {num_stages}, or for another schedule.",
            )

    def least_layers(self, depth: int) -> int:
        """How many layers every one of `depth` stages has at least."""
        return self.turns if depth > 1 else 1
