"""What is known of every distinct problem of a plan, what is in doubt, and the search that would settle it."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from alpa_explore.intra_op.tuning import EASY_ILP_VARIABLES
from alpa_explore.pricing.frontier import TOLERANCE, Frontier, Point, line, peak
from alpa_explore.pricing.stage_tasks import Search, StageTask

MOST_FITTING = 40
"""Problems that are solved within memory for one plan; after that known choices must do."""


Doubt = tuple[str, float, Search]
"""A problem, what no choice can be below, and the search that would settle it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Facts:
    """Of one problem, by so many frontiers."""

    frontiers: int
    points: tuple[Point, ...]
    least_peaks: tuple[float, ...]
    proven: bool
    quickest: Point | None
    bounds: Mapping[int, float]
    fitting: dict[int, float] = field(default_factory=dict)
    """Microbatches held -> seconds of the fastest choice known that fits beside them; filled as it is asked for."""


class Known:
    """Frontiers by the key of their problem; more are added as they are found."""

    def __init__(
        self, tasks: Mapping[str, StageTask], found: Mapping[str, list[Frontier]], *, composed: Collection[str]
    ) -> None:
        self.tasks, self.found, self.composed = tasks, found, composed
        some = next(iter(tasks.values()))
        self.memory, self.inverse_b = some.device.memory_bytes, some.inverse_b
        self._facts: dict[str, _Facts] = {}
        self._settled: set[tuple[str, int]] = set()

    def add(self, key: str, frontier: Frontier) -> None:
        """What a search found."""
        self.found[key].append(frontier)

    def settle(self, search: Search, keys: Collection[tuple[str, int]]) -> None:
        """Whatever a search of (problem, microbatches held) found, it is not asked again."""
        self._settled |= {(key, held if search is Search.FITTING else 0) for key, held in keys}

    @property
    def short_of_time(self) -> bool:
        """True when no more problems are solved within memory."""
        return sum(1 for _, held in self._settled if held) > MOST_FITTING

    def bound(self, key: str) -> float:
        """Seconds that no choice is below, however much it holds."""
        return max(f.bound_seconds for f in self.found[key])

    def overflows(self, key: str) -> bool:
        """True when something found does not fit beside the most microbatches."""
        return any(peak(p, self.tasks[key].held) > self.memory for p in self.found[key][0].points)

    def short_of_memory(self, key: str, held: int) -> bool:
        """True when the fastest choice does not fit beside so many microbatches, and another may."""
        facts = self._of(key)
        least = facts.least_peaks[min(held - self.tasks[key].least_held, len(facts.least_peaks) - 1)]
        return least <= self.memory and facts.quickest is not None and peak(facts.quickest, held) > self.memory

    def doubts(self, keys: Collection[str], counts: Collection[int]) -> dict[int, list[Doubt]]:
        """Of problems that may serve the same stage, by the microbatches that it holds: those that could be better than
        the best that is known of them all."""
        most = max(counts)
        open_keys = [key for key in keys if not self._settled_up_to(key, most)]
        found = {}
        for held in counts if open_keys else ():
            doubted = [doubt for key in open_keys if (doubt := self._doubt(key, held)) is not None]
            if doubted:
                best = min(self._fitting(self._of(key), held) for key in keys)
                if worth := [doubt for doubt in doubted if doubt[1] < best]:
                    found[held] = worth
        return found

    def _settled_up_to(self, key: str, held: int) -> bool:
        """True when the optimum is known beside any number of microbatches up to `held`: the fastest choice fits, or
        none does."""
        facts = self._of(key)
        fits = facts.quickest is None or peak(facts.quickest, held) <= self.memory
        return facts.proven and (fits or min(facts.least_peaks) > self.memory)

    def _doubt(self, key: str, held: int) -> Doubt | None:
        """None where the optimum is known, or is known to be near enough."""
        facts = self._of(key)
        if not facts.proven:
            least = facts.least_peaks[min(held - self.tasks[key].least_held, len(facts.least_peaks) - 1)]
            asked = least > self.memory or (key, 0) in self._settled
            return None if asked else (key, self.found[key][0].bound_seconds, Search.FASTEST)
        if not self.short_of_memory(key, held):
            return None
        assert facts.quickest is not None
        bound = max(line(facts.quickest, self.inverse_b), facts.bounds.get(held, 0.0))
        if self.found[key][0].variables > EASY_ILP_VARIABLES and self._fitting(facts, held) <= bound * (1 + TOLERANCE):
            return None
        if key in self.composed and held not in facts.bounds and (key, 0) not in self._settled:
            return key, bound, Search.FIT
        return None if (key, held) in self._settled or self.short_of_time else (key, bound, Search.FITTING)

    def _fitting(self, facts: _Facts, held: int) -> float:
        """Seconds of the fastest choice known that fits."""
        if held not in facts.fitting:
            fitting = (line(p, self.inverse_b) for p in facts.points if peak(p, held) <= self.memory)
            facts.fitting[held] = min(fitting, default=math.inf)
        return facts.fitting[held]

    def _of(self, key: str) -> _Facts:
        frontiers = self.found[key]
        if key not in self._facts or self._facts[key].frontiers < len(frontiers):
            points = tuple(p for f in frontiers for p in f.points)
            self._facts[key] = _Facts(
                frontiers=len(frontiers),
                points=points,
                proven=any(f.proven for f in frontiers),
                least_peaks=next((f.least_peaks for f in frontiers if f.least_peaks), (0.0,)),
                quickest=min(points, key=lambda p: line(p, self.inverse_b), default=None),
                bounds={held: bound for f in frontiers for held, bound in f.bounds_within},
            )
        return self._facts[key]
