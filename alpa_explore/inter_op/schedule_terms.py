"""A schedule as the planner models it: the size of its bubble, and how many microbatches a stage holds.

    T = Σt / q + (B − 1/q + r)·t_max                                            (Eq. 2 of the paper for q = 1, r = 0)

For P equal stages of latency t this is B·t + (P − 1)·t / q + r·t, the formula of `schedules.closed_form`; where sends
take no time, `simulate` gives the same. Place s counts from the end: 1 is the last stage.

name               q         a stage holds                       requires
1f1b               1         min(s, B) (the paper)
1f1b-overlap       1         min(2s − 1, B)                      (eager 1F1B: sends hide behind computing)
gpipe              1         B
interleaved-1f1b   v         min(2(s − 1) + (v − 1)P + 1, v·B) / v     P | B; v layers in every stage
zb-h1              3 or 2    min(P, B)                           P ≤ B
zb-v               6         min(P, B)                           2 layers in every stage
v-half             2         min(⌊(P + 2)/2⌋, B)                 2 layers in every stage
v-min              3/2       min(⌊(P + 4)/3⌋, B)                 2 layers in every stage
dualpipe-v         6         min(P + 1, B)                       2 layers in every stage; 2P ≤ B
dualpipe           6         min(P + 1, B), of both its stages   P and B even; 2P ≤ B; equal submeshes

Interleaved, and the V shapes (zb-v to dualpipe-v; v = 2): a stage of the plan is what one submesh runs, that is v
stages of the schedule. Their layers are assumed to cost what as many adjacent layers cost; with P = 1 there is nothing
to interleave. So the DP is exact for what it is given, and T is that of the schedule where layers are alike. The r of
the V shapes follows from simulating equal stages (`simulated_bubble`), so it holds for few microbatches and for
rematerialised layers too, where V-Half and V-Min wait in every microbatch; r = 0 for all others. ZB-H1: the bubble is
(P − 1)·(f + i − w), where forward f, backward to the input i and backward to the weight w share t as in a matrix
product: a third each; where some layers or all rematerialise the forward pass before i, a quarter, a half, a quarter.

DualPipe: a submesh runs stage k of one copy of the model and stage P − 1 − k of the other, each for half of the
microbatches. The two are taken to be alike, so a stage fits where twice its weights and P + 1 of its activations do,
and a submesh pays twice what a stage pays once an iteration (`Device.mirror`). Its r follows from simulation, too.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from alpa_explore.errors import OptionError
from alpa_explore.schedules.catalog import DUAL_PIPE, INTERLEAVED, V_SHAPES
from alpa_explore.schedules.iteration import iteration_seconds
from alpa_explore.schedules.simulator.times import StageTimes


@lru_cache(maxsize=1024)
def simulated_bubble(schedule: str, num_submeshes: int, num_microbatches: int, *, recomputes: bool) -> float:
    """(T − B·t) / t, where each of the equal submeshes takes t for a microbatch and sends take no time.

    Forward, backward to the input and backward to the weight take a third of t each; a quarter, a half and a quarter
    where the backward pass computes the forward pass again.
    """
    parts, turns = (1.0, 2.0, 1.0) if recomputes else (1.0, 1.0, 1.0), 2 if schedule in (*V_SHAPES, DUAL_PIPE) else 1
    one = StageTimes(forward_seconds=parts[0], backward_input_seconds=parts[1], backward_weight_seconds=parts[2])
    counted, seconds, more = iteration_seconds(schedule, [one] * turns * num_submeshes, num_submeshes, num_microbatches)
    each = sum(parts) * (1 if schedule == DUAL_PIPE else turns)
    return seconds / each - counted + (num_microbatches - counted) * (more / each - 1)


SCHEDULES = ("1f1b", "1f1b-overlap", "gpipe", INTERLEAVED, "zb-h1", *V_SHAPES, DUAL_PIPE)
SIMULATED_AS = {"1f1b-overlap": "eager-1f1b"}
"""Schedules that have another name in `schedules.catalog`."""
_DIVISORS = {"zb-v": 6.0, "v-half": 2.0, "v-min": 1.5, "dualpipe-v": 6.0, DUAL_PIPE: 6.0}
"""q of the V shapes and DualPipe: their closed forms grow by t/q with every submesh."""
_DIGITS = 12
"""Decimals of r: it is computed from sums that are exact in fractions of t, and 0 for ZB-V."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleTerms:
    """One schedule at one B."""

    schedule: str
    num_microbatches: int
    stages_per_submesh: int = 2
    """v; read by the interleaved schedule only."""
    recomputes: bool = False
    """Whether the backward pass rematerialises forward operators."""
    num_stages: int = 1
    """P, on which r depends."""

    @property
    def turns(self) -> int:
        """How often a microbatch passes through a submesh."""
        return {INTERLEAVED: self.stages_per_submesh, **dict.fromkeys(V_SHAPES, 2)}.get(self.schedule, 1)

    @property
    def copies(self) -> int:
        """Copies of the model of which a submesh runs a stage."""
        return 2 if self.schedule == DUAL_PIPE else 1

    @property
    def bubble_divisor(self) -> float:
        """q."""
        if self.schedule in _DIVISORS:
            return _DIVISORS[self.schedule]
        return (2 if self.recomputes else 3) if self.schedule == "zb-h1" else self.turns

    @property
    def more_rounds(self) -> float:
        """r."""
        if self.schedule not in _DIVISORS or self.num_stages == 1:
            return 0.0
        b, depth = self.num_microbatches, self.num_stages
        bubble = simulated_bubble(self.schedule, depth, b, recomputes=self.recomputes)
        return round(bubble - (depth - 1) / self.bubble_divisor, _DIGITS)

    @property
    def rounds(self) -> float:
        """B − 1/q + r, the factor of t_max in T."""
        q, b = self.bubble_divisor, self.num_microbatches
        return b - 1 if q == 1 else b - 1 / q + self.more_rounds

    def iteration_seconds(self, latencies: Sequence[float], once_seconds: float = 0.0) -> float:
        """T of stages with these latencies (Eq. 2), which together add `once_seconds` to an iteration."""
        terms = replace(self, num_stages=len(latencies))
        return sum(latencies) / terms.bubble_divisor + terms.rounds * max(latencies) + once_seconds

    @property
    def rounds_text(self) -> str:
        """`rounds` as a factor, for people."""
        if self.bubble_divisor == 1:
            return f"{self.rounds:,}"
        return self.rounds_symbols.replace("B", f"{self.num_microbatches:,}")

    @property
    def rounds_symbols(self) -> str:
        """`rounds` in symbols: '(B−1/3)'."""
        if not self.more_rounds:
            return f"(B−1{self.share})"
        more = self.more_rounds - 1 / self.bubble_divisor
        return f"(B{'−' if more < 0 else '+'}{abs(more):.3g})"

    @property
    def share(self) -> str:
        """'/q' as a formula on screen writes it behind a term; empty where q is 1."""
        return "" if self.bubble_divisor == 1 else f"/{self.bubble_divisor:g}"

    @property
    def depends_on_depth(self) -> bool:
        """Whether the bubble or the microbatches that a stage holds depend on the number of stages too."""
        return self.schedule in (INTERLEAVED, "zb-h1", *_DIVISORS)

    def held(self, place: int, depth: int) -> float:
        """The most microbatches whose activations a stage holds, at `place` from the end of `depth` stages;
        interleaved, of a microbatch perhaps those of some turns alone."""
        b, v = self.num_microbatches, self.stages_per_submesh
        if self.schedule == INTERLEAVED:
            runs = int(sum(self.held_in_turns(place, depth)))
            return runs / v if runs % v else runs // v
        whole = {
            "1f1b": place,
            "1f1b-overlap": 2 * place - 1,
            "gpipe": b,
            "zb-h1": depth,
            "zb-v": depth,
            "v-half": (depth + 2) // 2,
            "v-min": (depth + 4) // 3,
            "dualpipe-v": depth + 1 if depth > 1 else 1,
            DUAL_PIPE: depth + 1,
        }[self.schedule]
        return min(whole, b)

    def held_in_turns(self, place: int, depth: int) -> tuple[float, ...]:
        """Of each turn the microbatches held when the pipeline is full: interleaved, early turns are a round ahead of
        later ones, and of the last turn of the last stage, which has the head, there is one."""
        if self.schedule != INTERLEAVED:
            return (self.held(place, depth),) * self.turns
        b, v = self.num_microbatches, self.stages_per_submesh
        rounds, rest = divmod(2 * (place - 1) + (v - 1) * depth + 1, depth * v)
        return tuple(min(rounds * depth + min(max(rest - turn * depth, 0), depth), b) for turn in range(v))

    def depths(self, most: int) -> tuple[int, ...]:
        """The numbers of stages, up to `most`, for which the schedule exists."""
        b = self.num_microbatches
        if self.schedule == INTERLEAVED:
            return tuple(p for p in range(1, most + 1) if b % p == 0)
        if self.schedule == DUAL_PIPE:
            return tuple(range(2, min(most, b // 2) + 1, 2)) if b % 2 == 0 else ()
        most = min(most, {"zb-h1": b, "dualpipe-v": max(b // 2, 1)}.get(self.schedule, most))
        return tuple(range(1, most + 1))

    def check_depth(self, num_stages: int) -> None:
        """OptionError where the schedule does not exist for this number of stages."""
        if num_stages not in (possible := self.depths(num_stages)):
            needed = 2 * num_stages if self.schedule in ("dualpipe-v", DUAL_PIPE) else num_stages
            ways = [f"for {possible[-1]} stages"] if possible else []
            ways += [f"for a B of {needed}"] if self.schedule != DUAL_PIPE or num_stages % 2 == 0 else []
            raise OptionError(
                f"The schedule {self.schedule} does not exist for this pipeline",
                found=f"{num_stages} stages and B = {self.num_microbatches}",
                remedy=f"Ask {', '.join((*ways, 'or for another schedule'))}.",
            )

    def least_layers(self, depth: int) -> int:
        """The fewest layers that each of `depth` stages can have."""
        return self.turns if depth > 1 else 1
