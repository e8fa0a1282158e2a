"""The result of the pipeline DP: the stages, the figures of Eq. 2, and the t_max sweep behind them."""

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from alpa_explore.numerics.arrays import Floats

Stage = tuple[int, int, int]
"""(first layer, end layer exclusive, index of the submesh shape)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepPoint:
    """One t_max candidate."""

    t_max_seconds: float
    iteration_seconds: float | None
    """T with the least Σt under this t_max; None when pruned, or when every partition exceeds it."""
    pruned: bool
    """Whether the candidate was ruled out without being evaluated."""
    reason: str
    """The outcome in words: the parts of T, or the bound that ruled the candidate out."""
    objective_seconds: float | None = None
    """Eq. 2, where `iteration_seconds` is what an iteration of the partition takes; None where the two are one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepRun:
    """Candidates `first` to `end` (exclusive) of the sweep that share an outcome; an evaluated one is a run of one."""

    first: int
    end: int
    iteration_seconds: float | None
    pruned: bool
    reason: str


@dataclass(frozen=True, kw_only=True, eq=False)
class PipelineResult:
    """The optimum of Eq. 3 over all t_max; `total_seconds` is inf and `stages` empty when no partition exists."""

    total_seconds: float
    """T; in the paper sum_latency_seconds + (B−1)·t_max_seconds, rounded as its pseudocode rounds it."""
    t_max_seconds: float
    """Latency of the slowest stage; inf when infeasible."""
    sum_latency_seconds: float
    """Σt of the stages, added from the last stage to the first; inf when infeasible."""
    once_seconds: float
    """Seconds that the stages add to an iteration beside their latencies; 0 in the paper."""
    stages: tuple[Stage, ...]
    """From the first stage to the last."""
    evaluations: int
    """Number of DP evaluations (the pseudocode makes one for every candidate up to where it stops)."""
    candidates: Floats = field(repr=False)
    """Every distinct finite latency, ascending, read-only: the values that t_max can take."""
    near: tuple[tuple[Stage, ...], ...] = field(default=(), repr=False)
    """Other partitions that the search met and whose T is near, the nearest first."""
    runs: tuple[SweepRun, ...] = field(repr=False)
    """The sweep in runs of candidates with the same outcome; together they cover `candidates`."""

    @property
    def feasible(self) -> bool:
        """Whether some partition uses all devices and fits in memory."""
        return math.isfinite(self.total_seconds)

    @functools.cached_property
    def sweep(self) -> tuple[SweepPoint, ...]:
        """One point per candidate, ascending; made on first use (there are tens of thousands on large clusters)."""
        values: Sequence[float] = self.candidates.tolist()
        return tuple(
            SweepPoint(
                t_max_seconds=values[index],
                iteration_seconds=run.iteration_seconds,
                pruned=run.pruned,
                reason=run.reason,
            )
            for run in self.runs
            for index in range(run.first, run.end)
        )
