"""All layer ranges on one mesh, composed at a few prices: the sweep that gives each range its frontier.

It gives the points that `envelope` and `memory_frontiers` give for a single range, but solves each price for all ranges
at once, in three rounds: the requested B and the largest; a single microbatch, and prices of memory where ranges
overflow; then what lies between these.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from statistics import median_low
from typing import NamedTuple

from alpa_explore.intra_op.composition.block_subproblem import Price
from alpa_explore.intra_op.composition.block_tables import BlockTables
from alpa_explore.intra_op.composition.compose import Composer
from alpa_explore.intra_op.composition.cut_blocks import Range
from alpa_explore.numerics.lower_envelope import crossing_price
from alpa_explore.pricing import tuning
from alpa_explore.pricing.envelope import corner_between
from alpa_explore.pricing.explorer import Sample
from alpa_explore.pricing.price_book import PriceBook, StageChoice, Tried, stronger
from alpa_explore.pricing.stage_costs import Provenance

Solutions = dict[Range, StageChoice | None]
"""The best choice of each range at one price; None where none is legal."""


class PricedRequest(NamedTuple):
    """A price, the ranges to solve at it, and the provenance of the choices it gives."""

    price: Price
    ranges: Collection[Range]
    provenance: Provenance


class MeshSweep:
    """Solves layer ranges at several prices; remembers every distinct choice of every range."""

    def __init__(
        self, composer: Composer, *, held: Mapping[Range, int], least_held: int, memory_bytes: int, inverse_b: float
    ) -> None:
        """Stages of a range r hold `least_held` to held[r] microbatches; `inverse_b` is that of the requested plan."""
        self.composer, self.held, self.least_held = composer, held, least_held
        self.memory, self.inverse_b = memory_bytes, inverse_b
        self.points: dict[Range, dict[StageChoice, StageChoice]] = {}
        """Every distinct choice, with its strongest provenance."""
        self.solves = 0
        self.samples: dict[Range, list[Sample]] = {}
        """For each range that can be composed, by rising 1/B; empty where no choice is legal."""

    def bound(self) -> None:
        """Sample the envelope at the requested B and at the largest, without regard to memory."""
        self._sample(self._at_inverse_b(self._bounded_at(), self.held))

    def fastest(self, tables: BlockTables) -> None:
        """Sample the envelope at the requested B alone, without regard to memory; `tables` are at that price."""
        self._sample(self._at_inverse_b([self.inverse_b], self.held), tables)

    def take(self, known: Mapping[Range, PriceBook]) -> None:
        """Take what `bound` found on the same mesh for the same ranges, instead of solving it again."""
        for r, book in known.items():
            self.samples[r], self.points[r] = [], {}
            for b in self._bounded_at():
                # A choice that costs as much may have been found at another price, and have more bytes.
                other = Provenance.FASTEST if b != self.inverse_b else Provenance.NEAR
                points = sorted(book.choices, key=lambda p: p.provenance is other)
                if points:
                    best = min(points, key=lambda p: p.totals.device_latency_at(b))
                    self.samples[r].append(Sample(b, best, best.totals.latency_at(b)))
                    self.points[r][best] = best

    def explore(self) -> None:
        """Sample the envelope over 1/B, as `envelope.envelope` does: at three B, then at corners between them. Where
        the fastest choices overflow at some place in the pipeline, find leaner ones, as
        `memory_frontiers.memory_frontier` does."""
        if not self.samples:
            self.bound()
        fastest = {
            r: min(points, key=lambda p: p.totals.latency_at(self.inverse_b)) for r, points in self.points.items()
        }
        overflowing = [r for r in fastest if fastest[r].totals.peak_bytes(self.held[r]) > self.memory]
        # All ranges share most of the work at one price, and all prices share most of the work of one round.
        lean = self._at_memory_prices(fastest, overflowing)
        single = self._at_inverse_b(sorted({1.0} - set(self._bounded_at())), self.held)
        by_price = self._sample([*single, *lean])[len(single) :]
        corners = self._at_inverse_b(self._corners(), [r for r, samples in self.samples.items() if samples])
        self._sample([*corners, *self._between([fastest, *by_price], lean)])

    def _bounded_at(self) -> list[float]:
        """The values of 1/B that `bound` samples, rising."""
        return sorted({self.inverse_b, tuning.SMALLEST_INVERSE_B})

    def _solve(self, requests: Sequence[PricedRequest], tables: BlockTables | None = None) -> list[Solutions]:
        """For each request, a best choice of each of its ranges."""
        if not requests:
            return []
        self.solves += len(requests)
        ranges = list(dict.fromkeys(r for request in requests for r in request.ranges))
        wanted = [set(request.ranges) for request in requests]
        composed = self.composer.solve(ranges, [request.price for request in requests], wanted, tables)
        by_request: list[Solutions] = []
        for request, by_range in zip(requests, composed, strict=True):
            solutions: Solutions = {}
            for r, best in by_range.items():
                if best is None:
                    solutions[r] = None
                    continue
                point = StageChoice((), best.totals, request.provenance, best.block_choices)
                known = self.points.setdefault(r, {})
                before = known.setdefault(point, point)
                solutions[r] = chosen = stronger(before, point)
                if chosen is not before:
                    known[point] = chosen
            by_request.append(solutions)
        return by_request

    def _at_inverse_b(self, inverse_bs: Sequence[float], ranges: Collection[Range]) -> list[PricedRequest]:
        memory_price = tuning.TIE_SECONDS / self.memory
        return [PricedRequest(Price(b, memory_price, 1), ranges, Provenance.NEAR) for b in inverse_bs]

    def _sample(self, requests: Sequence[PricedRequest], tables: BlockTables | None = None) -> list[Solutions]:
        """As `_solve`; solutions without a price for memory are kept as samples of the envelope."""
        by_request = self._solve(requests, tables)
        for request, solutions in zip(requests, by_request, strict=True):
            b = request.price.inverse_b
            for r, point in solutions.items() if request.provenance is Provenance.NEAR else ():
                samples = self.samples.setdefault(r, [])
                if point is not None:
                    if b == self.inverse_b:
                        self.points[r][point] = point = replace(point, provenance=Provenance.FASTEST)
                    samples.append(Sample(b, point, point.totals.latency_at(b)))
                    samples.sort(key=lambda s: s.inverse_b)
        return by_request

    def _corners(self) -> list[float]:
        """A few of the values of 1/B at which the envelopes of some ranges may have corners, and that of a fraction of
        the requested B: a choice that is the fastest at both B is the fastest at every B between them, where the next
        question often lies."""
        corners = sorted(
            corner
            for samples in self.samples.values()
            for low, high in pairwise(samples)
            if (corner := corner_between(low, high)) is not None
        )
        most = tuning.MOST_CORNERS
        if not corners:
            return []
        few = {corners[i * (len(corners) - 1) // (most - 1)] for i in range(most)}
        of_fraction = min(tuning.NEXT_B_FACTOR * self.inverse_b, 1.0)
        return sorted((few | {of_fraction}) - {*self._bounded_at(), 1.0})

    def _at_memory_prices(self, fastest: Mapping[Range, StageChoice], ranges: Collection[Range]) -> list[PricedRequest]:
        """Requests at prices of memory from about the point where a whole device costs as much as the stage takes,
        upwards."""
        if not ranges:
            return []
        b = self.inverse_b
        # The place from the end of a pipeline of stages of this length, and so the number of microbatches held there.
        held = median_low(min(self.held[r], -(-self.held[r] // (r[1] - r[0] + 1))) for r in ranges)
        seconds = median_low(max(fastest[r].totals.latency_at(b), 1e-6) for r in ranges)
        unit = seconds / self.memory
        return [PricedRequest(Price(b, unit * times, held), ranges, Provenance.CONVEX) for times in tuning.SWEEP_PRICES]

    def _between(
        self, by_price: Sequence[Mapping[Range, StageChoice | None]], requests: Sequence[PricedRequest]
    ) -> list[PricedRequest]:
        """Prices between consecutive ones, where a choice that fits is next to one that does not."""
        between = []
        b = self.inverse_b
        for request, fast, lean in zip(requests, by_price, by_price[1:], strict=False):
            held, prices = request.price.microbatches_held, []
            for r in request.ranges:
                quick, small = fast.get(r), lean.get(r)
                if quick is None or small is None or not self._straddles(r, quick, small):
                    continue
                price = crossing_price(_figures(quick, b, held), _figures(small, b, held))
                if price is not None:
                    prices.append(price)
            if prices:
                between.append(request._replace(price=Price(b, median_low(prices), held)))
        return between

    def _counts(self, r: Range) -> range:
        """Numbers of microbatches that a stage of this range may hold."""
        return range(self.least_held, self.held[r] + 1)

    def _straddles(self, r: Range, fast: StageChoice, lean: StageChoice) -> bool:
        """Whether at some place in the pipeline the lean choice fits and the fast one does not."""
        return any(lean.totals.peak_bytes(h) <= self.memory < fast.totals.peak_bytes(h) for h in self._counts(r))

    def book(self, r: Range, tried: tuple[Tried, ...]) -> PriceBook:
        """What was found for one range."""
        points = tuple(self.points.get(r, {}).values())
        variables, constraints = self.composer.size(*r)
        least: tuple[float, ...] = ()
        if any(p.totals.peak_bytes(self.held[r]) > self.memory for p in points):
            least = self.composer.least_peaks(*r, self._counts(r)) or ()
        bounds = [(s.inverse_b, s.point.totals.device_latency_at(s.inverse_b)) for s in self.samples[r]]
        return PriceBook(
            choices=points,
            bounds=tuple(bounds) or ((1.0, math.inf),),
            tried=tried,
            least_peaks=tuple(zip(self._counts(r), least, strict=False)),
            solves=self.solves,
            variables=variables,
            constraints=constraints,
        )


def _figures(point: StageChoice, inverse_b: float, held: float) -> tuple[float, float]:
    """(seconds, bytes)"""
    return point.totals.latency_at(inverse_b), point.totals.held_bytes(held)
