"""For every distinct problem: its candidates, its lower bound, and the search that would close the gap between them."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from alpa_explore.intra_op.tuning import EASY_ILP_VARIABLES
from alpa_explore.pricing.frontier import Frontier, StageChoice
from alpa_explore.pricing.stage_tasks import Search, StageTask
from alpa_explore.pricing.tuning import TOLERANCE
from alpa_explore.search.stages.candidates import same_frontiers
from alpa_explore.search.tuning import MOST_SOLVED_WITHIN_MEMORY


class OpenQuestion(NamedTuple):
    """A problem whose optimum is not proven."""

    key: str
    bound_seconds: float
    """Lower bound on the seconds of every choice."""
    search: Search
    """The kind of task that would close the gap."""


WITHIN_MEMORY = (Search.BOUNDED_WITHIN_MEMORY, Search.COMPOSED_WITHIN_MEMORY, Search.SOLVED_WITHIN_MEMORY)
"""The searches for choices that fit, quickest first."""


def next_searches(
    asked: Sequence[tuple[int, Sequence[OpenQuestion]]], tasks: Mapping[str, StageTask]
) -> dict[Search, list[tuple[str, int]]]:
    """Which searches to run now, for which (problem, microbatches held). `asked` has for every open stage the
    microbatches held and its open questions, lowest bound first.

    Where memory is short these are the questions of the quickest search alone, whose bounds and choices often make the
    slower ones needless. Choices are composed for the logical mesh with the lowest bound first.
    """
    todo: dict[Search, list[tuple[str, int]]] = {}
    searches = {question.search for _, questions in asked for question in questions}
    within_memory = next((search for search in WITHIN_MEMORY if search in searches), None)
    later: list[tuple[str, int]] = []
    for held, questions in asked:
        for search in (Search.FASTEST, within_memory):
            of_search = [
                (question.key, held if search is Search.SOLVED_WITHIN_MEMORY else tasks[question.key].held)
                for question in questions
                if question.search is search
            ]
            now = 1 if search is Search.COMPOSED_WITHIN_MEMORY else len(of_search)
            later += of_search[now:]
            if search is not None and of_search:
                todo.setdefault(search, []).extend(of_search[:now])
    todo = {search: list(dict.fromkeys(keys)) for search, keys in todo.items()}
    if later and len(todo[Search.COMPOSED_WITHIN_MEMORY]) == 1:  # a second task runs beside the first
        todo[Search.COMPOSED_WITHIN_MEMORY].append(later[0])
    return todo


@dataclass(frozen=True, slots=True, kw_only=True)
class _State:
    """What the frontiers of one problem say together."""

    frontiers: tuple[Frontier, ...]
    points: tuple[StageChoice, ...]
    least_peaks: tuple[float, ...]
    proven: bool
    fastest: StageChoice | None
    bounds: Mapping[int, float]
    seconds_within: dict[int, float] = field(default_factory=dict)
    """Microbatches held -> seconds of the fastest choice found that fits; filled when first needed."""


class Convergence:
    """What is proven of every problem, from its frontiers; every task that runs adds one."""

    def __init__(
        self,
        tasks: Mapping[str, StageTask],
        frontiers: Mapping[str, list[Frontier]],
        *,
        inverse_b: float,
        composed: Collection[str] = (),
        deferred: Collection[str] = (),
    ) -> None:
        """`composed`: the problems that were composed. `deferred`: those whose frontier was found at another B or with
        another memory, with a lower bound for this one. All may change later."""
        self.tasks, self.frontiers, self.composed, self.deferred = tasks, frontiers, composed, deferred
        self.inverse_b = inverse_b
        self._states: dict[str, _State] = {}
        self._closed: set[tuple[str, int]] = set()
        """(problem, microbatches held) for which SOLVED_WITHIN_MEMORY has run; (problem, 0) for the other searches
        but BOUNDED_WITHIN_MEMORY."""
        self._bounded: set[str] = set()
        """Problems for which BOUNDED_WITHIN_MEMORY has run."""

    def add(self, key: str, frontier: Frontier) -> None:
        """Record the result of a task."""
        self.frontiers[key].append(frontier)

    def close(self, search: Search, keys: Iterable[tuple[str, int]]) -> None:
        """Record that a search has run for these (problem, microbatches held), so that it is not run again."""
        if search is Search.BOUNDED_WITHIN_MEMORY:
            self._bounded |= {key for key, _ in keys}
        else:
            self._closed |= {(key, held if search is Search.SOLVED_WITHIN_MEMORY else 0) for key, held in keys}

    @property
    def budget_spent(self) -> bool:
        """Whether the limit on the number of solves within memory is reached."""
        return sum(1 for _, held in self._closed if held) > MOST_SOLVED_WITHIN_MEMORY

    def bound(self, key: str) -> float:
        """Lower bound on the seconds of every choice, without a memory limit."""
        return max(f.bound_seconds for f in self.frontiers[key])

    def device_bound(self, key: str) -> float:
        """The same of the seconds on the device, which solvers minimise: those of a composed problem are known."""
        return max(
            dict(f.optima).get(self.inverse_b, 0.0) if f.optima else f.bound_seconds for f in self.frontiers[key]
        )

    def overflows(self, key: str) -> bool:
        """Whether some choice does not fit with the most microbatches held."""
        return any(p.totals.peak_bytes(self.tasks[key].held) > self._memory(key) for p in self.frontiers[key][0].points)

    def short_of_memory(self, key: str, held: int) -> bool:
        """Whether the fastest choice does not fit with so many microbatches held, and another one may."""
        state = self._state(key)
        return (
            state.fastest is not None
            and state.fastest.totals.peak_bytes(held) > self._memory(key)
            and self._least_peak(key, state, held) <= self._memory(key)
        )

    def open_questions(self, keys: Collection[str], counts: Collection[int]) -> dict[int, list[OpenQuestion]]:
        """Of the problems of one stage (one for each logical mesh), for each number of microbatches held: those whose
        lower bound is below the best candidate of all of them."""
        deferred = [key for key in keys if key in self.deferred]
        if deferred:
            return self._with_deferred(deferred, [key for key in keys if key not in self.deferred], counts)
        most = max(counts)
        open_keys = [key for key in keys if not self._proven_up_to(key, most)]
        questions = {}
        for held in counts if open_keys else ():
            candidates = [q for key in open_keys if (q := self._question(key, held)) is not None]
            if candidates:
                best = min(self._seconds_within(key, held) for key in keys)
                if better := [question for question in candidates if question.bound_seconds < best]:
                    questions[held] = better
        return questions

    def _with_deferred(
        self, deferred: Collection[str], priced: Collection[str], counts: Collection[int]
    ) -> dict[int, list[OpenQuestion]]:
        """As `open_questions`, where some problems are deferred: their candidates close nothing."""
        questions = self.open_questions(priced, counts) if priced else {}
        asked = [
            (OpenQuestion(key, bound, Search.COMPOSED), self.frontiers[key][0].least_peaks)
            for key in deferred
            if (bound := self.frontiers[key][0].bound_seconds) < math.inf
        ]
        for held in counts:
            best = min((self._seconds_within(key, held) for key in priced), default=math.inf)
            of_held = [
                question
                for question, least in asked
                if question.bound_seconds < best
                and (not least or self._least_peak_of(question.key, least, held) <= self._memory(question.key))
            ]
            if of_held:
                questions[held] = [*questions.get(held, ()), *of_held]
        return questions

    def _proven_up_to(self, key: str, held: int) -> bool:
        """Whether the optimum is proven for every number of microbatches held up to `held`: the fastest choice fits, or
        none does."""
        state = self._state(key)
        fits = state.fastest is None or state.fastest.totals.peak_bytes(held) <= self._memory(key)
        return state.proven and (fits or min(state.least_peaks) > self._memory(key))

    def _question(self, key: str, held: int) -> OpenQuestion | None:
        """None where the gap is closed or small enough, or no search is left that could close it."""
        state = self._state(key)
        searched = (key, 0) in self._closed
        if not state.proven and not searched:
            possible = self._least_peak(key, state, held) <= self._memory(key)
            return OpenQuestion(key, self.frontiers[key][0].bound_seconds, Search.FASTEST) if possible else None
        if not self.short_of_memory(key, held):
            return None
        assert state.fastest is not None
        # The seconds of the fastest choice are a lower bound only if they were proven before the time limit.
        unlimited = state.fastest.totals.latency_at(self.inverse_b) if state.proven else self.bound(key)
        bound = max(unlimited, state.bounds.get(held, 0.0))
        variables = self.frontiers[key][0].variables
        if variables > EASY_ILP_VARIABLES and self._seconds_within(key, held) <= bound * (1 + TOLERANCE):
            return None
        if key in self.composed and not searched:
            bounded = key in self._bounded
            return OpenQuestion(key, bound, Search.COMPOSED_WITHIN_MEMORY if bounded else Search.BOUNDED_WITHIN_MEMORY)
        closed = (key, held) in self._closed or self.budget_spent
        return None if closed else OpenQuestion(key, bound, Search.SOLVED_WITHIN_MEMORY)

    def _least_peak(self, key: str, state: _State, held: int) -> float:
        """Lower bound on the peak bytes of every choice with so many microbatches held."""
        return self._least_peak_of(key, state.least_peaks, held)

    def _least_peak_of(self, key: str, least_peaks: tuple[float, ...], held: int) -> float:
        return least_peaks[min(held - self.tasks[key].least_held, len(least_peaks) - 1)]

    def _memory(self, key: str) -> int:
        return self.tasks[key].device.memory_bytes

    def _seconds_within(self, key: str, held: int) -> float:
        """Seconds of the fastest choice found that fits; inf where none does."""
        state = self._state(key)
        if held not in state.seconds_within:
            fitting = (
                p.totals.latency_at(self.inverse_b)
                for p in state.points
                if p.totals.peak_bytes(held) <= self._memory(key)
            )
            state.seconds_within[held] = min(fitting, default=math.inf)
        return state.seconds_within[held]

    def _state(self, key: str) -> _State:
        frontiers = self.frontiers[key]
        if key not in self._states or not same_frontiers(self._states[key].frontiers, frontiers):
            points = tuple(p for f in frontiers for p in f.points)
            self._states[key] = _State(
                frontiers=tuple(frontiers),
                points=points,
                proven=any(f.proven for f in frontiers),
                least_peaks=next((f.least_peaks for f in frontiers if f.least_peaks), (0.0,)),
                fastest=min(points, key=lambda p: p.totals.latency_at(self.inverse_b), default=None),
                bounds={held: bound for f in frontiers for held, bound in f.bounds_within},
            )
        return self._states[key]
