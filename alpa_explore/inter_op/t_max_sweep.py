"""The search for the best t_max: T(t_max) = F(t_max) + (B−1)·t_max over all candidates, most of them never evaluated.

Where a schedule has a bubble q times smaller, and r more rounds (`schedule_terms`), the search minimises
q·T = F + (q·(B+r) − 1)·t_max; results are reported as T.

F does not increase with t_max, so an evaluation at one candidate bounds T at every other:

    t ≤ b:  T(t) ≥ F(b) + (B−1)·t                  (fewer partitions are allowed at t than at b)
    m ≤ t ≤ b, m the slowest stage of the partition found at b:  F(t) = F(b)
    F(b) = inf: no candidate below b has a partition

Intervals of open candidates wait in a priority queue, ordered by a lower bound on T. The search takes the first
interval, removes the candidates that cannot beat the incumbent (the best T so far), evaluates the one in the middle and
queues what remains open on either side. It ends when no interval can beat the incumbent. A candidate is ruled out only
when (bound, t_max) ≥ (best T, its t_max) in lexicographic order: of equal T the smallest t_max wins, as in the
pseudocode.
"""

import heapq
import math
from dataclasses import dataclass, field, replace

import numpy as np

from alpa_explore import units
from alpa_explore.inter_op.recurrence import Partition, Recurrence
from alpa_explore.inter_op.result import Stage, SweepRun
from alpa_explore.numerics.arrays import Floats


@dataclass(slots=True, kw_only=True)
class Sweep:
    """A search in progress; `runs` holds the outcomes so far, in any order."""

    recurrence: Recurrence
    candidates: Floats
    num_microbatches: int
    bubble_divisor: float = 1
    """q."""
    more_rounds: float = 0.0
    """r."""
    waiting_text: str = "(B−1)·t_max"
    """(B − 1/q + r)·t_max in symbols."""
    best_seconds: float = math.inf
    """q·T."""
    best: int = -1
    """Index of the incumbent; -1 while no candidate is feasible."""
    evaluations: int = 0
    runs: list[SweepRun] = field(default_factory=list)
    found: list[tuple[float, tuple[Stage, ...]]] = field(default_factory=list)
    """(q·T, stages) of every partition that was found, at the latency of its slowest stage."""
    queue: list[tuple[float, int, int, float]] = field(default_factory=list)
    """(lower bound on q·T, first, end, lower bound on F) of each interval of open candidates."""

    def run(self) -> None:
        """Evaluate or rule out every candidate."""
        if not len(self.candidates):
            return
        self._probe(0, len(self.candidates), len(self.candidates) - 1, -math.inf)
        while self.queue:
            _, first, end, bound = heapq.heappop(self.queue)
            kept = self._still_open(first, end, bound)
            if kept < end:
                self._rule_out(kept, end, bound)
            if kept > first:
                self._probe(first, kept, (first + kept - 1) // 2, bound)

    def finished_runs(self) -> tuple[SweepRun, ...]:
        """The outcomes in ascending order of t_max; the best is marked in its reason."""
        runs = sorted(self.runs, key=lambda run: run.first)
        for place, run in enumerate(runs):
            if run.first == self.best and not run.pruned:
                runs[place] = replace(run, reason=f"the best: {run.reason}")
        return tuple(runs)

    @property
    def rounds(self) -> float:
        """q·(B + r) − 1, the factor of t_max in q·T."""
        rounds = self.bubble_divisor * self.num_microbatches - 1
        return rounds + self.bubble_divisor * self.more_rounds if self.more_rounds else rounds

    @property
    def _share(self) -> str:
        return "" if self.bubble_divisor == 1 else f"/{self.bubble_divisor:g}"

    def _text(self, seconds: float) -> str:
        return units.seconds(seconds / self.bubble_divisor)

    def _waiting(self, index: int) -> float:
        """(q·(B+r) − 1)·t_max."""
        return float(self.rounds * self.candidates[index])

    def _push(self, first: int, end: int, bound: float) -> None:
        if first < end:
            heapq.heappush(self.queue, (bound + self._waiting(first), first, end, bound))

    def _still_open(self, first: int, end: int, bound: float) -> int:
        """End of the part of [first, end) that could beat the best, given Σt ≥ bound."""
        least = bound + self.rounds * self.candidates[first:end]
        kept = first + int(np.searchsorted(least, self.best_seconds, side="left"))
        equal = first + int(np.searchsorted(least, self.best_seconds, side="right"))
        return max(kept, min(equal, self.best))  # an equal T at a smaller t_max would still win

    def _probe(self, first: int, end: int, at: int, bound: float) -> None:
        """Evaluate candidate `at` of the open interval [first, end), record what follows from it, queue the rest."""
        self.evaluations += 1
        t_max = float(self.candidates[at])
        partition = self.recurrence.relaxed(t_max)
        self._push(at + 1, end, bound)
        if not partition.exact:
            kept = self._still_open(first, at + 1, partition.sum_latency_seconds)
            if kept <= at:  # the lower bound alone rules this candidate out
                self._rule_out(kept, at + 1, partition.sum_latency_seconds)
                self._push(first, kept, partition.sum_latency_seconds)
                return
            self.evaluations += 1
            partition = self.recurrence.exact(t_max)
        if partition.sum_latency_seconds == math.inf:
            self._record(at, at + 1, None, False, "no partition on all devices keeps every stage under this t_max")
            below = f"no partition keeps every stage under this t_max: none does under {units.seconds(t_max)}"
            self._record(first, at, None, True, below)
            return
        self._record_feasible(first, at, partition)

    def _record_feasible(self, first: int, at: int, partition: Partition) -> None:
        """Record T at `at` and at the latency of the partition's slowest stage; between the two T only increases."""
        at_best = partition.sum_latency_seconds + self.rounds * partition.bottleneck_seconds
        self.found.append((at_best, partition.stages))
        slowest = max(first, int(np.searchsorted(self.candidates, partition.bottleneck_seconds, side="left")))
        for index in dict.fromkeys((slowest, at)):
            total = partition.sum_latency_seconds + self._waiting(index)
            if (total, index) < (self.best_seconds, self.best if self.best >= 0 else len(self.candidates)):
                self.best_seconds, self.best = total, index
            sum_text, waiting = self._text(partition.sum_latency_seconds), self._text(self._waiting(index))
            self._record(index, index + 1, total, False, f"Σt{self._share} {sum_text} + {self.waiting_text} {waiting}")
        same = f"same partition as at t_max {units.seconds(partition.bottleneck_seconds)}, which waits less"
        self._record(slowest + 1, at, None, True, same)
        self._push(first, slowest, partition.sum_latency_seconds)

    def _rule_out(self, first: int, end: int, bound: float) -> None:
        """Record [first, end) as ruled out by Σt ≥ bound; those for which waiting alone is too long say so."""
        waiting = self.rounds * self.candidates[first:end]
        alone = first + int(np.searchsorted(waiting, self.best_seconds, side="left"))
        best = self._text(self.best_seconds)
        least = f"Σt{self._share} is at least {self._text(bound)}"
        self._record(first, alone, None, True, f"{least}: T cannot be under {best}")
        self._record(alone, end, None, True, f"{self.waiting_text} alone is not under the best T, {best}")

    def _record(self, first: int, end: int, total: float | None, pruned: bool, reason: str) -> None:
        if first < end:
            seconds = None if total is None else total / self.bubble_divisor
            self.runs.append(SweepRun(first=first, end=end, iteration_seconds=seconds, pruned=pruned, reason=reason))
