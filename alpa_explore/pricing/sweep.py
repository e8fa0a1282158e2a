"""The choices that are best at a few values of 1/B and a few prices of memory: of all layer ranges on one mesh, or of
one range.

Over 1/B the fastest choices are the lower envelope of lines, over the price of memory the leaner ones are the convex
part of a frontier. Each round solves its prices for all ranges at once: the requested B and the largest; a single
microbatch, and prices of memory where ranges overflow; then what lies between these.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import pairwise
from statistics import median_low
from typing import NamedTuple

from alpa_explore.intra_op.composition.block_subproblem import Price
from alpa_explore.intra_op.composition.block_tables import BlockTables
from alpa_explore.intra_op.composition.compose import Composer
from alpa_explore.intra_op.composition.cut_blocks import Range
from alpa_explore.intra_op.problem.sharding_problem import ShardingProblem
from alpa_explore.intra_op.problem.solution import ShardingSolution, Status
from alpa_explore.intra_op.stage.stage_problem import StageProblem
from alpa_explore.intra_op.tuning import EASY_ILP_VARIABLES
from alpa_explore.numerics.lower_envelope import crossing_price
from alpa_explore.pricing import tuning
from alpa_explore.pricing.price_book import PriceBook, StageChoice, Tried, stronger
from alpa_explore.pricing.stage_costs import Provenance

Solutions = dict[Range, StageChoice | None]
"""The best choice of each range at one price; None where none is legal."""


class PricedRequest(NamedTuple):
    """A price, the ranges to solve at it, and the provenance of the choices it gives."""

    price: Price
    ranges: Collection[Range]
    provenance: Provenance


class Sample(NamedTuple):
    """The choice at one price."""

    inverse_b: float
    point: StageChoice
    share: float = 1.0
    """Of its cost that bounds the cost of every choice from below."""

    @property
    def bound(self) -> float:
        """Lower bound on the seconds of every choice, where memory has no price and the device is the limit."""
        return self.share * self.point.totals.latency_at(self.inverse_b)


class Composed:
    """All ranges on a mesh, composed together."""

    def __init__(self, composer: Composer, tables: BlockTables | None = None) -> None:
        """`tables` as in `Composer.solve`."""
        self._composer, self._tables = composer, tables

    def solve(self, requests: Sequence[PricedRequest]) -> list[dict[Range, Sample | None]]:
        """For each request a best choice of its ranges, of those that can be composed; None where none is legal."""
        ranges = list(dict.fromkeys(r for request in requests for r in request.ranges))
        wanted = [set(request.ranges) for request in requests]
        by_price = self._composer.solve(ranges, [request.price for request in requests], wanted, self._tables)
        solved: list[dict[Range, Sample | None]] = []
        for (price, _, provenance), by_range in zip(requests, by_price, strict=True):
            b, samples = price.inverse_b, dict[Range, Sample | None]()
            for r, best in by_range.items():
                if best is None:
                    samples[r] = None
                else:
                    point = StageChoice((), best.totals, provenance, best.block_choices)
                    samples[r] = Sample(b, point)
            solved.append(samples)
        return solved

    def least_peaks(self, layers: Range, counts: range) -> dict[int, float]:
        """Of every number."""
        return dict(zip(counts, self._composer.least_peaks(*layers, counts) or (), strict=False))

    def size(self, layers: Range) -> tuple[int, int]:
        """Without constants."""
        return self._composer.size(*layers)


class OneProblem:
    """One range, of which every price is a problem of its own."""

    def __init__(
        self, problem: StageProblem, solve: Callable[[ShardingProblem, float], ShardingSolution], gap: float
    ) -> None:
        """`solve` is asked for a solution to within a relative gap: `gap` where memory has no price. Of the leaner
        choices of a large stage, where thousands have nearly the same bytes, a proof may take an ILP hours."""
        self._problem, self._solve, self._gap = problem, solve, gap

    def solve(self, requests: Sequence[PricedRequest]) -> list[dict[Range, Sample | None]]:
        """For each request a choice of its range; None where none is legal."""
        return [dict.fromkeys(request.ranges, self._solved(request)) for request in requests]

    def least_peaks(self, layers: Range, counts: range) -> dict[int, float]:
        """Of the fewest and the most microbatches."""
        return {held: self._problem.memory_limit(held, 0.0).least_peak() for held in (counts[0], counts[-1])}

    def size(self, layers: Range) -> tuple[int, int]:
        """Of the whole problem."""
        problem = self._problem.at(inverse_b=1.0, memory_price=0.0, microbatches_held=1)
        return problem.variables, len(problem.node_costs) + sum(sum(m.shape) for m in problem.edge_costs)

    def _solved(self, request: PricedRequest) -> Sample | None:
        problem, gap = self._problem.at(**request.price._asdict()), self._gap
        if request.provenance is Provenance.CONVEX:
            gap = 0.0 if problem.variables <= EASY_ILP_VARIABLES else tuning.LEAN_GAP
        solution = self._solve(problem, gap)
        if not solution.choices:
            return None
        point = StageChoice(solution.choices, self._problem.totals(solution.choices), request.provenance)
        exact = solution.status is Status.OPTIMAL
        return Sample(request.price.inverse_b, point, 1.0 if exact else solution.bound / solution.objective)


Engine = Composed | OneProblem
"""What solves ranges at prices."""


class Sweep:
    """Solves layer ranges at several prices; remembers every distinct choice of every range."""

    def __init__(
        self, engine: Engine, *, held: Mapping[Range, int], least_held: int, memory_bytes: int, inverse_b: float
    ) -> None:
        """Stages of a range r hold `least_held` to held[r] microbatches; `inverse_b` is that of the requested plan."""
        self._engine, self._held, self._least_held = engine, held, least_held
        self._memory, self._inverse_b = memory_bytes, inverse_b
        self._points: dict[Range, dict[StageChoice, StageChoice]] = {}
        """Every distinct choice, with its strongest provenance."""
        self._solves = 0
        self._samples: dict[Range, list[Sample]] = {}
        """For each range that can be solved, by rising 1/B; empty where no choice is legal."""

    def fastest(self, inverse_bs: Collection[float]) -> None:
        """Sample the envelope at these values of 1/B, without regard to memory."""
        self._sample([self._at(b, self._held) for b in sorted(inverse_bs)])

    def take(self, known: Mapping[Range, PriceBook]) -> None:
        """Take what `fastest` found at the requested B and the largest for the same ranges, instead of solving it
        again."""
        for r, book in known.items():
            self._samples[r], self._points[r] = [], {}
            for b in sorted(_ends(self._inverse_b)) if book.choices else ():
                price = self._at(b, ()).price
                best = min(
                    book.choices,
                    key=lambda p: p.totals.device_latency_at(b) + price.memory_price * p.totals.held_bytes(1),
                )
                self._samples[r].append(Sample(b, best))
                self._points[r][best] = best

    def explore(self) -> None:
        """Sample the envelope over 1/B at three B, then at corners between them. Where the fastest choices overflow at
        some place in the pipeline, find leaner ones."""
        if not self._samples:
            self.fastest(_ends(self._inverse_b))
        fastest = {
            r: min(points, key=lambda p: p.totals.latency_at(self._inverse_b)) for r, points in self._points.items()
        }
        overflowing = [r for r in fastest if fastest[r].totals.peak_bytes(self._held[r]) > self._memory]
        # All ranges share most of the work at one price, and all prices share most of the work of one round.
        lean = self._at_memory_prices(fastest, overflowing)
        single = [self._at(1.0, self._held)] if self._inverse_b < 1.0 else []
        by_price = self._sample([*single, *lean])[len(single) :]
        legal = [r for r, samples in self._samples.items() if samples]
        corners = [self._at(b, legal) for b in self._corners()]
        self._sample([*corners, *self._between([fastest, *by_price], lean)])

    def book(self, r: Range, tried: tuple[Tried, ...]) -> PriceBook:
        """What was found for one range; nothing but what was tried where it cannot be solved."""
        if r not in self._samples:
            return PriceBook(tried=tried)
        bounds = [(b, share * point.totals.device_latency_at(b)) for b, point, share in self._samples[r]]
        points, counts = tuple(self._points.get(r, {}).values()), self._counts(r)
        overflows = any(p.totals.peak_bytes(self._held[r]) > self._memory for p in points)
        variables, constraints = self._engine.size(r)
        return PriceBook(
            choices=points,
            bounds=tuple(bounds) or ((1.0, math.inf),),
            tried=tried,
            least_peaks=tuple(self._engine.least_peaks(r, counts).items()) if overflows else (),
            solves=self._solves,
            variables=variables,
            constraints=constraints,
        )

    def _at(self, inverse_b: float, ranges: Collection[Range]) -> PricedRequest:
        """Without a price of memory but one that breaks ties."""
        return PricedRequest(Price(inverse_b, tuning.TIE_SECONDS / self._memory, 1), ranges, Provenance.NEAR)

    def _sample(self, requests: Sequence[PricedRequest]) -> list[Solutions]:
        """For each request, a best choice of each of its ranges; without a price of memory they are kept as samples of
        the envelope."""
        if not requests:
            return []
        self._solves += len(requests)
        by_request: list[Solutions] = []
        for request, by_range in zip(requests, self._engine.solve(requests), strict=True):
            solutions: Solutions = {}
            for r, sample in by_range.items():
                samples = self._samples.setdefault(r, [])
                solutions[r] = None
                if sample is None:
                    continue
                known, point = self._points.setdefault(r, {}), sample.point
                known[point] = solutions[r] = stronger(known.setdefault(point, point), point)
                if request.provenance is Provenance.NEAR:
                    samples.append(sample)
                    samples.sort(key=lambda s: s.inverse_b)
            by_request.append(solutions)
        return by_request

    def _corners(self) -> list[float]:
        """A few of the values of 1/B at which the envelopes of some ranges may have corners, and that of a fraction of
        the requested B: a choice that is the fastest at both B is the fastest at every B between them, where the next
        question often lies."""
        corners = sorted(
            corner
            for samples in self._samples.values()
            for low, high in pairwise(samples)
            if (corner := corner_between(low, high)) is not None
        )
        most = tuning.MOST_CORNERS
        if not corners:
            return []
        few = {corners[i * (len(corners) - 1) // (most - 1)] for i in range(most)}
        of_fraction = min(tuning.NEXT_B_FACTOR * self._inverse_b, 1.0)
        return sorted((few | {of_fraction}) - {*_ends(self._inverse_b), 1.0})

    def _at_memory_prices(self, fastest: Mapping[Range, StageChoice], ranges: Collection[Range]) -> list[PricedRequest]:
        """Requests at prices of memory from about the point where a whole device costs as much as the stage takes,
        upwards."""
        if not ranges:
            return []
        b = self._inverse_b
        # The place from the end of a pipeline of stages of this length, and so the number of microbatches held there.
        held = median_low(min(self._held[r], -(-self._held[r] // (r[1] - r[0] + 1))) for r in ranges)
        seconds = median_low(max(fastest[r].totals.latency_at(b), 1e-6) for r in ranges)
        unit = seconds / self._memory
        return [PricedRequest(Price(b, unit * times, held), ranges, Provenance.CONVEX) for times in tuning.SWEEP_PRICES]

    def _between(
        self, by_price: Sequence[Mapping[Range, StageChoice | None]], requests: Sequence[PricedRequest]
    ) -> list[PricedRequest]:
        """Prices between consecutive ones, where a choice that fits is next to one that does not."""
        between = []
        b = self._inverse_b
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
        return range(self._least_held, self._held[r] + 1)

    def _straddles(self, r: Range, fast: StageChoice, lean: StageChoice) -> bool:
        """Whether at some place in the pipeline the lean choice fits and the fast one does not."""
        return any(lean.totals.peak_bytes(h) <= self._memory < fast.totals.peak_bytes(h) for h in self._counts(r))


def corner_between(low: Sample, high: Sample) -> float | None:
    """The 1/B at which the lines of two neighbouring samples cross, if another choice may be clearly lower there.

    `low` was solved at a smaller 1/B than `high`. The least seconds are concave in 1/B, so between the samples they lie
    above the line that joins the bounds of the samples: a corner near that line needs no solve.
    """
    a, b = low.point.totals, high.point.totals
    corner = crossing_price((a.microbatch_seconds, a.iteration_seconds), (b.microbatch_seconds, b.iteration_seconds))
    if corner is None or not low.inverse_b < corner < high.inverse_b:
        return None
    share = (corner - low.inverse_b) / (high.inverse_b - low.inverse_b)
    least = low.bound + share * (high.bound - low.bound)
    return None if a.device_latency_at(corner) * (1 - 2 * tuning.TOLERANCE) <= least else corner


def _ends(inverse_b: float) -> set[float]:
    """The values of 1/B between which the envelope is bounded by the least seconds there: the requested one, and that
    of the largest B."""
    return {inverse_b, tuning.SMALLEST_INVERSE_B}


def _figures(point: StageChoice, inverse_b: float, held: float) -> tuple[float, float]:
    """(seconds, bytes)"""
    return point.totals.latency_at(inverse_b), point.totals.held_bytes(held)
