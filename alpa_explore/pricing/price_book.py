"""The price book of a sharding problem: what is known of it at every B and with every memory limit.

A book only grows (`merged`), and what it says stays true: it is known by the structure of the stage, the mesh and the
figures of the device, and kept without B and without the memory of a device. It holds

- choices with their totals. The seconds of one are microbatch + iteration / B, a line over 1/B;
- lower bounds on the seconds of every choice at some 1/B. The least seconds are concave in 1/B, and no less than 0, so
  between two of these they lie on or above the chord;
- what was tried, each with what it bounds: a search is not run twice.

`Reading` reads a book at one B with the memory of one device.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from alpa_explore.intra_op.stage.stage_totals import StageTotals
from alpa_explore.pricing.stage_costs import Provenance, Screened
from alpa_explore.pricing.tuning import PROVEN, TIE_SECONDS, TOLERANCE


class Search(enum.Enum):
    """The kind of choices that a task searches for; the value is the name of its pass on the progress line."""

    FASTEST_COMPOSED = "fastest choices"
    """For stages on one mesh together: their fastest choices at the requested B, or at some others."""
    COMPOSED = "composition"
    """For stages on one mesh together: their fastest choices at every B, and leaner ones."""
    BOUNDED_IN_RUNS = "bounds of runs"
    """For stages on one mesh together that cannot be composed: lower bounds from short runs of layers."""
    NEAR_OPTIMAL = "sharding"
    """Choices near the fastest, at every B, and leaner ones."""
    FASTEST = "proof"
    """The fastest choice, proven."""
    BOUNDED_WITHIN_MEMORY = "bounds within memory"
    """For a composed stage: lower bounds on the choices that fit, and some of them."""
    SOLVED_WITHIN_MEMORY = "proof within memory"
    """The fastest choice that fits, by a solver under the memory limit."""


COMPOSING = (Search.FASTEST_COMPOSED, Search.COMPOSED)
"""Searches for the choices of all ranges on a mesh together."""
_NOT_COMPOSED = (Search.BOUNDED_IN_RUNS, Search.NEAR_OPTIMAL)
"""Searches for what cannot be composed."""


@dataclass(frozen=True, slots=True)
class StageChoice:
    """A choice, its totals, and how it was found."""

    choices: tuple[int, ...]
    """The strategy of every node of the stage; empty where `block_choices` has them."""
    totals: StageTotals
    provenance: Provenance = field(default=Provenance.UNKNOWN, compare=False)
    block_choices: tuple[tuple[int, ...], ...] = ()
    """For a composed range (`intra_op.composition`): the strategies of the nodes that each block owns."""


class Tried(NamedTuple):
    """A search for a problem that ran to its end, or, for choices that fit, to its limit of time: it is not run again.
    Any other one that a limit ended has left its choices and bounds alone."""

    search: Search
    inverse_b: float
    memory_bytes: int
    """Of a device."""
    held: int
    """Microbatches held: of a search within memory those that must fit, of others the fewest."""
    bound_seconds: float = 0.0
    """Of a search within memory: lower bound on the seconds of every choice that fits; 0 where none is known."""


@dataclass(frozen=True, kw_only=True)
class PriceBook:
    """What is known of one problem."""

    choices: tuple[StageChoice, ...] = ()
    bounds: tuple[tuple[float, float], ...] = ()
    """(1/B, lower bound on the device seconds of every choice), by rising 1/B; inf where no choice is legal."""
    tried: tuple[Tried, ...] = ()
    least_peaks: tuple[tuple[int, float], ...] = ()
    """(microbatches held, lower bound on the peak bytes of every choice)."""
    solves: int = 0
    variables: int = 0
    constraints: int = 0

    def has_tried(self, search: Search, **where: float) -> bool:
        """Whether a search was run; `where` are fields of `Tried`."""
        return any(
            t.search is search and all(getattr(t, name) == value for name, value in where.items()) for t in self.tried
        )

    @cached_property
    def composed(self) -> bool:
        """Whether the fastest choices at some B were composed."""
        impossible = any(t.search in _NOT_COMPOSED for t in self.tried)
        return bool(self.bounds) and self.has_tried_composition and not impossible

    @cached_property
    def has_tried_composition(self) -> bool:
        """Whether composition was tried, with or without success."""
        return any(t.search in COMPOSING for t in self.tried)

    def merged(self, other: PriceBook) -> PriceBook:
        """What both know."""
        choices: dict[object, StageChoice] = {}
        for choice in (*self.choices, *other.choices):
            key = choice.choices, choice.block_choices
            choices[key] = stronger(choices.get(key, choice), choice)
        bounds = dict(self.bounds)
        for inverse_b, bound in other.bounds:
            bounds[inverse_b] = max(bound, bounds.get(inverse_b, bound))
        return PriceBook(
            choices=tuple(choices.values()),
            bounds=tuple(sorted(bounds.items())),
            tried=tuple(dict.fromkeys((*self.tried, *other.tried))),
            least_peaks=tuple(sorted((dict(self.least_peaks) | dict(other.least_peaks)).items())),
            solves=max(self.solves, other.solves),
            variables=max(self.variables, other.variables),
            constraints=max(self.constraints, other.constraints),
        )

    def least_peak(self, held: int) -> float:
        """Lower bound on the peak bytes of every choice with so many microbatches held; 0 where none is known."""
        return max((size for n, size in self.least_peaks if n <= held), default=0.0)

    def bound(self, inverse_b: float) -> float:
        """Lower bound on the device seconds of every choice; inf where no choice is legal."""
        known = dict(self.bounds)
        if math.inf in known.values():
            return math.inf
        if inverse_b in known:
            return known[inverse_b]
        xs, ys = zip(*sorted(({0.0: 0.0} | known).items()), strict=True)
        # A choice that is the fastest but for ties of memory may be slower by the price of a device's memory.
        return max(float(np.interp(inverse_b, xs, ys)) * (1 - PROVEN) - TIE_SECONDS, 0.0)


@dataclass(frozen=True, kw_only=True)
class Reading:
    """A book at one B, with the memory of one device, for stages that hold `least_held` to `most_held` microbatches."""

    book: PriceBook
    inverse_b: float
    memory_bytes: int
    least_held: int
    most_held: int
    leaner: bool = True
    """Whether leaner choices are composed at prices of memory before one is searched for that fits."""
    unsampled: Screened | None = None
    """What bounds the choices without a solve, as long as the search has asked for none."""
    _fitting: dict[int, float] = field(default_factory=dict, compare=False, repr=False)

    @cached_property
    def device_bound(self) -> float:
        """Lower bound on the seconds of every choice on the device, which solvers minimise."""
        known = self.book.bound(self.inverse_b)
        return known if self.unsampled is None else max(known, self.unsampled.at(self.inverse_b))

    @property
    def partial_bound(self) -> float:
        """`device_bound` where composition is unfinished: below a choice that costs as much but for ties of memory,
        so that of equal problems all are composed."""
        return self.device_bound * (1 - PROVEN) - TIE_SECONDS

    @cached_property
    def unfinished(self) -> Search | None:
        """The search for choices without regard to memory that is next for this problem; None where there is nothing
        more to say: the fastest choices were composed at this B or attain the bound here, and leaner ones with this
        memory where the fastest overflow, or composition is impossible and the problem was solved."""
        book = self.book
        if self.unsampled is not None:
            return Search.FASTEST if book.has_tried(Search.BOUNDED_IN_RUNS) else Search.FASTEST_COMPOSED
        if not book.composed:
            return None
        if not self.has_leaner:
            return Search.COMPOSED
        at_this_b = self.proven or book.has_tried(Search.FASTEST_COMPOSED, inverse_b=self.inverse_b)
        return None if at_this_b else Search.FASTEST_COMPOSED

    @property
    def has_leaner(self) -> bool:
        """Whether the envelope was composed, with choices that are leaner where the fastest overflow this memory."""
        where = {"memory_bytes": self.memory_bytes, "held": self.least_held}
        return not self.leaner or self.book.has_tried(Search.COMPOSED, **where)

    @cached_property
    def proven(self) -> bool:
        """Whether the fastest choice is in the book, or there is none."""
        if not self.book.choices:
            return self.device_bound == math.inf
        slack = 0.0 if self.inverse_b in dict(self.book.bounds) else 2 * TIE_SECONDS
        return self._least.device_latency_at(self.inverse_b) <= self.device_bound * (1 + 2 * PROVEN) + slack

    @cached_property
    def bound_seconds(self) -> float:
        """Lower bound on the seconds of every choice, without a memory limit."""
        fastest = self.fastest
        return self.device_bound if fastest is None or not self.proven else fastest.latency_at(self.inverse_b)

    @cached_property
    def fastest(self) -> StageTotals | None:
        """The totals of the fastest choice in the book."""
        return min((p.totals for p in self.book.choices), key=lambda t: t.latency_at(self.inverse_b), default=None)

    @cached_property
    def _least(self) -> StageTotals:
        return min((p.totals for p in self.book.choices), key=lambda t: t.device_latency_at(self.inverse_b))

    def at_every_b(self) -> Screened | None:
        """What bounds all choices at B up to a million: the chord from there to this B; None where no choice is legal
        or none fits."""
        if (least := self.unsampled) is not None:
            most, smallest, seconds = least.most_held, 0.0, least.seconds
        else:
            most = max((held for held in range(self.least_held, self.most_held + 1) if self.may_fit(held)), default=0)
            smallest, seconds = self.book.bounds[0]
        if most <= 0 or self.device_bound == math.inf:
            return None
        here = self.partial_bound
        seconds = min(seconds * (1 - PROVEN) - TIE_SECONDS, here)
        rise = (here - seconds) / (self.inverse_b - smallest) if self.inverse_b > smallest else 0.0
        return Screened(seconds - rise * smallest, most, self.inverse_b, here)

    def choices(self) -> list[StageChoice]:
        """All choices, each with what is proven of it at this B."""
        if not self.book.choices:
            return []
        least, choices = self._least, []
        near = least.device_latency_at(self.inverse_b) * (1 - 2 * TOLERANCE) <= self.device_bound
        for p in self.book.choices:
            if self.proven and p.totals is least:
                choices.append(replace(p, provenance=Provenance.FASTEST))
            elif p.provenance is Provenance.NEAR and not near:
                choices.append(replace(p, provenance=Provenance.CONVEX))
            else:
                choices.append(p)
        return choices

    def may_fit(self, held: int) -> bool:
        """Whether no lower bound on the peak bytes exceeds the memory."""
        if self.unsampled is not None:
            return held <= self.unsampled.most_held
        return self.book.least_peak(held) <= self.memory_bytes

    def short_of_memory(self, held: int) -> bool:
        """Whether the fastest choice does not fit with so many microbatches held, and another one may."""
        fastest = self.fastest
        return fastest is not None and fastest.peak_bytes(held) > self.memory_bytes and self.may_fit(held)

    def proven_up_to(self, held: int) -> bool:
        """Whether the optimum is proven for every number of microbatches held up to `held`: the fastest choice fits, or
        none does."""
        fits = self.fastest is None or self.fastest.peak_bytes(held) <= self.memory_bytes
        return self.proven and (fits or not self.may_fit(min((n for n, _ in self.book.least_peaks), default=0)))

    def seconds_within(self, held: int) -> float:
        """Seconds of the fastest choice found that fits; inf where none does."""
        if held not in self._fitting:
            fitting = (p.totals for p in self.book.choices if p.totals.peak_bytes(held) <= self.memory_bytes)
            self._fitting[held] = min((totals.latency_at(self.inverse_b) for totals in fitting), default=math.inf)
        return self._fitting[held]

    def bound_within(self, held: int) -> float:
        """Lower bound on the seconds of every choice that fits: the least seconds rise with 1/B, so what bounds them at
        a larger B bounds them here."""
        of_memory = (
            t.bound_seconds
            for t in self.book.tried
            if t.held == held and t.memory_bytes == self.memory_bytes and t.inverse_b <= self.inverse_b
        )
        return max(self.bound_seconds, *of_memory, 0.0)


def stronger(a: StageChoice, b: StageChoice) -> StageChoice:
    """The one of two records of the same choice that has the stronger provenance."""
    ranks = list(Provenance)
    return b if ranks.index(b.provenance) > ranks.index(a.provenance) else a


def dump(books: Mapping[str, PriceBook]) -> dict[str, Any]:
    """Books as an entry of the cache: the choices of a block, which many choices share, are written once."""
    number: dict[tuple[int, ...], int] = {}
    entries = {}
    for key, book in books.items():
        choices = [
            (
                p.choices,
                [number.setdefault(choices, len(number)) for choices in p.block_choices],
                [getattr(p.totals, name) for name in StageTotals.__slots__],
                p.provenance,
            )
            for p in book.choices
        ]
        figures = [book.bounds, book.least_peaks, book.solves, book.variables, book.constraints]
        entries[key] = [choices, [(t.search.value, *t[1:]) for t in book.tried], *figures]
    return {"blocks": list(number), "books": entries}


def load(entry: Mapping[str, Any]) -> dict[str, PriceBook]:
    """The books that `dump` wrote."""
    blocks = [tuple(choices) for choices in entry["blocks"]]
    books = {}
    for key, (choices, tried, bounds, least_peaks, solves, variables, constraints) in entry["books"].items():
        books[key] = PriceBook(
            choices=tuple(
                StageChoice(
                    tuple(of_nodes),
                    StageTotals(**dict(zip(StageTotals.__slots__, totals, strict=True))),
                    Provenance(provenance),
                    tuple(blocks[i] for i in numbers),
                )
                for of_nodes, numbers, totals, provenance in choices
            ),
            bounds=tuple(map(tuple, bounds)),
            tried=tuple(Tried(Search(search), *rest) for search, *rest in tried),
            least_peaks=tuple(map(tuple, least_peaks)),
            solves=solves,
            variables=variables,
            constraints=constraints,
        )
    return books
