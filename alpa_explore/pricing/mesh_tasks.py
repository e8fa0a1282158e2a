"""All layer ranges on one logical mesh as a task for a worker: composed layer by layer (`intra_op.compose`).

The same points as `frontier` finds range by range, but every price is asked of all ranges at once: first the numbers of
microbatches at which ranges have corners, then prices for memory where ranges overflow.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from itertools import pairwise
from statistics import median_low
from typing import Any, NamedTuple

import numpy as np

from alpa_explore.cluster import Device, LogicalMesh
from alpa_explore.intra_op.composition import contract_kernels
from alpa_explore.intra_op.composition.block_subproblem import Price
from alpa_explore.intra_op.composition.chain import Chain, chain_of
from alpa_explore.intra_op.composition.compose import Composer
from alpa_explore.intra_op.composition.contract import Priced, contract
from alpa_explore.intra_op.composition.cut_blocks import Range
from alpa_explore.intra_op.composition.lagrangian_memory import fit
from alpa_explore.intra_op.stage.layered_graph import LayeredGraph
from alpa_explore.intra_op.stage.stage_problem import StageTotals
from alpa_explore.pricing.frontier import (
    SMALLEST_INVERSE_B,
    TIE_SECONDS,
    TOLERANCE,
    Frontier,
    Point,
    Sample,
    corner_between,
    line,
    peak,
    stronger,
)
from alpa_explore.pricing.stage_costs import Provenance
from alpa_explore.pricing.stage_tasks import cost_model, slicer
from alpa_explore.sharding.discovery.discoveries import DiscoveryRecords, record_discoveries

MOST_CORNERS = 3
MEMORY_PRICES = (3e-1, 3.0, 1e4)
"""Prices of a whole device of memory, in stages' time; at the last no time saved pays for a byte."""


FIT_GAP = 0.8 * TOLERANCE
"""How near the fastest a choice should come that fits; within frontier.TOLERANCE it is near enough."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeshTask:
    """Distinct ranges on one mesh, with the most microbatches that each may hold; otherwise as StageTask."""

    ranges: tuple[tuple[Range, int], ...]
    least_held: int
    mesh: LogicalMesh
    device: Device
    inverse_b: float
    discoveries: DiscoveryRecords = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class FitTask:
    """A composed range on one mesh, with the numbers of microbatches beside which it must fit; otherwise as
    MeshTask."""

    range: Range
    counts: tuple[int, ...]
    mesh: LogicalMesh
    device: Device
    inverse_b: float
    discoveries: DiscoveryRecords = ()


def compose_mesh(layered: LayeredGraph, task: MeshTask) -> dict[Range, Frontier]:
    """The frontiers of the ranges that can be composed (runs on a Dask worker)."""
    record_discoveries(task.discoveries)
    composer = Composer(chain(layered), slicer(layered), cost_model(task.device, task.mesh.squeezed()))
    sweep = _Sweep(composer, task)
    sweep.explore()
    return {r: sweep.frontier(r) for r in sweep.samples}


def fit_range(layered: LayeredGraph, task: FitTask) -> dict[Range, Frontier]:
    """The fastest choices that fit, with bounds (runs on a Dask worker)."""
    record_discoveries(task.discoveries)
    composer = Composer(chain(layered), slicer(layered), cost_model(task.device, task.mesh.squeezed()))
    fits = fit(
        composer, task.range, counts=task.counts, limit=task.device.memory_bytes, inverse_b=task.inverse_b, gap=FIT_GAP
    )
    best = [f.best for f in fits.values() if f.best is not None]
    points = {b.pieces: Point((), b.totals, Provenance.FITTING, b.pieces) for b in best}
    return {
        task.range: Frontier(
            points=tuple(points.values()),
            solves=1,
            variables=0,
            constraints=0,
            optimal=True,
            bound_seconds=0.0,
            proven=False,
            bounds_within=tuple((held, f.bound) for held, f in fits.items()),
        )
    }


def warm_up() -> None:
    """Load what composing needs (this module, its compiled kernels): a worker does so while the model is captured."""
    size = 24
    cost, matrix = np.zeros((1, size)), np.zeros((1, size, size))
    edges = ((0, 1), (1, 2), (0, 3), (2, 3))
    found = contract(Priced.of((cost,) * 4, edges, (matrix,) * 4, prices=1), (2, 3))
    assert found is not None, "a small problem can be contracted"
    found.complete(np.zeros(1, dtype=np.int64), np.zeros((1, 2), dtype=np.int64))
    table, reached = found.table, np.zeros((1, size))
    contract_kernels.advance(reached, table, np.empty((1, size)), np.empty((1, size), dtype=np.int64))
    contract_kernels.multiply(reached[:, None], table, np.empty((1, 1, size)))


@lru_cache(maxsize=1)
def chain(layered: LayeredGraph) -> Chain:
    """Shared by the tasks that one worker gets for one graph (keyed by identity)."""
    return chain_of(layered)


class _Ask(NamedTuple):
    """A price, for whom it is meant, and what is known of what is found."""

    price: Price
    ranges: Collection[Range]
    how: Provenance


class _Sweep:
    """Asks the composer at several prices; remembers every distinct choice of every range."""

    def __init__(self, composer: Composer, task: MeshTask) -> None:
        self.composer, self.task = composer, task
        self.memory, self.held = task.device.memory_bytes, dict(task.ranges)
        self.points: dict[Range, dict[Point, Point]] = {}
        """Every distinct choice, as the strongest of what was found."""
        self.asked = 0
        self.samples: dict[Range, list[Sample]] = {}
        """Of each range that can be composed, by rising 1/B; none where no choice is legal."""

    def explore(self) -> None:
        """The envelope over 1/B, as `frontier.envelope`: three B, then corners between them. Where the fastest choices
        overflow at some place leaner ones, as `frontier.memory_frontier`."""
        self._sample(self._at_b(sorted({self.task.inverse_b, 1.0, SMALLEST_INVERSE_B}), self.held))
        b = self.task.inverse_b
        quick = {r: min(points, key=lambda p: line(p, b)) for r, points in self.points.items()}
        overflowing = [r for r in quick if peak(quick[r], self.held[r]) > self.memory]
        # What a price takes is mostly shared by all ranges, and what a round takes by all prices.
        corners = self._at_b(self._corners(), [r for r, samples in self.samples.items() if samples])
        lean = self._memory_prices(quick, overflowing)
        steps = self._sample([*corners, *lean])[len(corners) :]
        self.at(self._between([quick, *steps], lean))

    def at(self, asked: Sequence[_Ask]) -> list[dict[Range, Point | None]]:
        """For each price a best choice of each of its ranges."""
        if not asked:
            return []
        self.asked += len(asked)
        ranges = list(dict.fromkeys(r for ask in asked for r in ask.ranges))
        solutions = self.composer.solve(ranges, [ask.price for ask in asked], [set(ask.ranges) for ask in asked])
        found: list[dict[Range, Point | None]] = []
        for ask, solved in zip(asked, solutions, strict=True):
            found.append({})
            for r, best in solved.items():
                if best is None:
                    found[-1][r] = None
                    continue
                point = Point((), best.totals, ask.how, best.pieces)
                known = self.points.setdefault(r, {})
                found[-1][r] = known[point] = stronger(known.get(point, point), point)
        return found

    def _at_b(self, inverse_bs: Sequence[float], ranges: Collection[Range]) -> list[_Ask]:
        return [_Ask(Price(b, TIE_SECONDS / self.memory, 1), ranges, Provenance.NEAR) for b in inverse_bs]

    def _sample(self, asked: Sequence[_Ask]) -> list[dict[Range, Point | None]]:
        """As `at`; what was asked without a price for memory is kept as a sample of the envelope."""
        answers = self.at(asked)
        for ask, found in zip(asked, answers, strict=True):
            b = ask.price.inverse_b
            for r, point in found.items() if ask.how is Provenance.NEAR else ():
                samples = self.samples.setdefault(r, [])
                if point is not None:
                    if b == self.task.inverse_b:
                        self.points[r][point] = point = replace(point, provenance=Provenance.FASTEST)
                    samples.append(Sample(b, point, line(point, b)))
                    samples.sort(key=lambda s: s.inverse_b)
        return answers

    def _corners(self) -> list[float]:
        """Where the envelopes of some ranges may have corners."""
        corners = sorted(
            corner
            for samples in self.samples.values()
            for low, high in pairwise(samples)
            if (corner := corner_between(low, high)) is not None
        )
        return sorted({corners[i * (len(corners) - 1) // (MOST_CORNERS - 1)] for i in range(MOST_CORNERS) if corners})

    def _memory_prices(self, quick: Mapping[Range, Point], ranges: Collection[Range]) -> list[_Ask]:
        """Where a device of memory is worth about as much as the stage takes, and far above."""
        if not ranges:
            return []
        b = self.task.inverse_b
        # The place from the end at which a range of this length would stand among its like, and so what it holds.
        held = median_low(min(self.held[r], -(-self.held[r] // (r[1] - r[0] + 1))) for r in ranges)
        worth = median_low(max(line(quick[r], b), 1e-6) for r in ranges) / self.memory
        return [_Ask(Price(b, worth * times, held), ranges, Provenance.CONVEX) for times in MEMORY_PRICES]

    def _between(self, by_price: Sequence[Mapping[Range, Point | None]], asked: Sequence[_Ask]) -> list[_Ask]:
        """Prices between those, where a choice that fits is next to one that does not."""
        found = []
        b = self.task.inverse_b
        for ask, fast, small in zip(asked, by_price, by_price[1:], strict=False):
            held, prices = ask.price.microbatches_held, []
            for r in ask.ranges:
                one, other = fast.get(r), small.get(r)
                if one is None or other is None or not self._straddles(r, one, other):
                    continue
                if (saved := _bytes(one, held) - _bytes(other, held)) > 0:
                    prices.append((line(other, b) - line(one, b)) / saved)
            if prices:
                found.append(ask._replace(price=Price(b, median_low(prices), held)))
        return found

    def _counts(self, r: Range) -> range:
        """Numbers of microbatches that a stage of this range may hold."""
        return range(self.task.least_held, self.held[r] + 1)

    def _straddles(self, r: Range, fast: Point, lean: Point) -> bool:
        return any(peak(lean, h) <= self.memory < peak(fast, h) for h in self._counts(r))

    def frontier(self, r: Range) -> Frontier:
        """What was found of one range."""
        points = tuple(self.points.get(r, {}).values())
        variables, constraints = self.composer.size(*r)
        least: tuple[float, ...] = ()
        if any(peak(p, self.held[r]) > self.memory for p in points):
            least = self.composer.least_peaks(*r, self._counts(r)) or ()
        return Frontier(
            points=points,
            solves=self.asked,
            variables=variables,
            constraints=constraints,
            optimal=True,
            bound_seconds=min((line(p, self.task.inverse_b) for p in points), default=math.inf),
            proven=True,
            least_peaks=least,
        )


def _bytes(point: Point, held: int) -> float:
    return point.totals.weight_bytes + held * point.totals.activation_bytes


def dump(frontiers: Mapping[Range, Frontier]) -> dict[str, Any]:
    """As an entry of the cache: the choices of a piece, which many points share, are written once."""
    number: dict[tuple[int, ...], int] = {}
    ranges = []
    for (first, last), frontier in frontiers.items():
        points = [
            {
                "pieces": [number.setdefault(own, len(number)) for own in p.pieces],
                "totals": asdict(p.totals),
                "provenance": p.provenance,
            }
            for p in frontier.points
        ]
        ranges.append({"first": first, "last": last, **asdict(replace(frontier, points=())), "points": points})
    return {"choices": list(number), "ranges": ranges}


def load(stored: Mapping[str, Any]) -> dict[Range, Frontier]:
    """What `dump` made."""
    choices = [tuple(own) for own in stored["choices"]]
    found = {}
    for entry in stored["ranges"]:
        fields = dict(entry)
        first, last = fields.pop("first"), fields.pop("last")
        points = tuple(
            Point(
                (),
                StageTotals(**p["totals"]),
                Provenance(p["provenance"]),
                tuple(map(choices.__getitem__, p["pieces"])),
            )
            for p in fields.pop("points")
        )
        least = tuple(fields.pop("least_peaks"))
        bounds = tuple((held, bound) for held, bound in fields.pop("bounds_within"))
        found[first, last] = Frontier(points=points, least_peaks=least, bounds_within=bounds, **fields)
    return found
