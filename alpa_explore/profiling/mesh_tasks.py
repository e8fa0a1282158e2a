"""All layer ranges on one logical mesh as a task for a worker: composed layer by layer (`intra_op.compose`).

The same points as `frontier` finds range by range, but every price is asked of all ranges at once: first the numbers of
microbatches at which ranges have corners, then prices for memory where ranges overflow.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from itertools import pairwise
from statistics import median_low
from typing import Any

from alpa_explore.cluster import Device, LogicalMesh
from alpa_explore.intra_op.chain import Chain, chain_of
from alpa_explore.intra_op.compose import Composer, Range
from alpa_explore.intra_op.layered_graph import LayeredGraph
from alpa_explore.intra_op.stage_problem import StageTotals
from alpa_explore.profiling.frontier import (
    SMALLEST_INVERSE_B,
    TIE_SECONDS,
    Frontier,
    Point,
    Sample,
    corner_between,
    line,
    peak,
    stronger,
)
from alpa_explore.profiling.stage_costs import Found
from alpa_explore.profiling.stage_tasks import cost_model, slicer
from alpa_explore.sharding.discoveries import Discoveries, remember

MOST_CORNERS = 4
MOST_MEMORY_PRICES = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class MeshTask:
    """Distinct ranges on one mesh, with the most microbatches that each may hold; otherwise as StageTask."""

    ranges: tuple[tuple[Range, int], ...]
    mesh: LogicalMesh
    device: Device
    inverse_b: float
    discoveries: Discoveries = ()


def compose_mesh(layered: LayeredGraph, task: MeshTask) -> dict[Range, Frontier]:
    """The frontiers of the ranges that can be composed (runs on a Dask worker)."""
    remember(task.discoveries)
    composer = Composer(chain(layered), slicer(layered), cost_model(task.device, task.mesh.squeezed()))
    sweep = _Sweep(composer, task)
    sweep.over_microbatches()
    sweep.over_memory()
    return {r: sweep.frontier(r) for r in sweep.samples}


@lru_cache(maxsize=1)
def chain(layered: LayeredGraph) -> Chain:
    """Shared by the tasks that one worker gets for one graph (keyed by identity)."""
    return chain_of(layered)


class _Sweep:
    """Asks the composer at several prices; remembers every distinct choice of every range."""

    def __init__(self, composer: Composer, task: MeshTask) -> None:
        self.composer, self.task = composer, task
        self.memory, self.held = task.device.memory_bytes, dict(task.ranges)
        self.tie = TIE_SECONDS / self.memory
        self.points: dict[Range, dict[Point, Point]] = {}
        """Every distinct choice, as the strongest of what was found."""
        self.asked = 0
        first = self.at(self.held, task.inverse_b, self.tie, 1, Found.FASTEST)
        self.samples = {r: [] if p is None else [_exact(task.inverse_b, p)] for r, p in first.items()}
        """Of each range that can be composed, by rising 1/B; none where no choice is legal."""

    def at(
        self, ranges: Collection[Range], inverse_b: float, price: float, held: int, how: Found
    ) -> dict[Range, Point | None]:  # fmt: skip
        """A best choice of each range."""
        self.asked += 1
        found: dict[Range, Point | None] = {}
        solved = self.composer.solve(ranges, inverse_b=inverse_b, memory_price=price, held=held)
        for r, best in solved.items():
            if best is None:
                found[r] = None
                continue
            point = Point((), best.totals, how, best.layers)
            known = self.points.setdefault(r, {})
            found[r] = known[point] = stronger(known.get(point, point), point)
        return found

    def over_microbatches(self) -> None:
        """The envelope over 1/B, as `frontier.envelope`."""
        self._sample(1.0)
        self._sample(SMALLEST_INVERSE_B)
        for _ in range(MOST_CORNERS):
            corners = [
                corner
                for samples in self.samples.values()
                for low, high in pairwise(samples)
                if (corner := corner_between(low, high)) is not None
            ]
            if not corners:
                return
            self._sample(median_low(corners))

    def _sample(self, inverse_b: float) -> None:
        feasible = [r for r, samples in self.samples.items() if samples]
        if any(s.inverse_b == inverse_b for r in feasible[:1] for s in self.samples[r]):
            return
        for r, point in self.at(feasible, inverse_b, self.tie, 1, Found.NEAR).items():
            if point is not None:
                self.samples[r] = sorted([*self.samples[r], _exact(inverse_b, point)], key=lambda s: s.inverse_b)

    def over_memory(self) -> None:
        """Leaner choices where the fastest overflow at some place, as `frontier.memory_frontier`."""
        b = self.task.inverse_b
        quick = {r: min(points, key=lambda p: line(p, b)) for r, points in self.points.items()}
        ranges = [r for r, held in self.held.items() if r in quick and peak(quick[r], held) > self.memory]
        if not ranges:
            return
        # The place from the end at which a range of this length would stand among its like, and so what it holds.
        held = median_low(min(self.held[r], -(-self.held[r] // (r[1] - r[0] + 1))) for r in ranges)
        dear = 1e3 * max(*(line(quick[r], b) for r in ranges), 1e-6) / self.memory
        lean = self.at(ranges, b, dear, held, Found.CONVEX)
        todo: list[tuple[Mapping[Range, Point | None], Mapping[Range, Point | None]]] = [(quick, lean)]
        while todo and self.asked < MOST_CORNERS + 4 + MOST_MEMORY_PRICES:
            fast, small = todo.pop(0)
            prices = []
            for r in ranges:
                one, other = fast.get(r), small.get(r)
                if one is None or other is None or not self._straddles(one, other, self.held[r]):
                    continue
                saved = _bytes(one, held) - _bytes(other, held)
                if saved > 0:
                    prices.append((line(other, b) - line(one, b)) / saved)
            if not prices:
                continue
            middle = self.at(ranges, b, median_low(prices), held, Found.CONVEX)
            if any(middle[r] not in (fast.get(r), small.get(r)) for r in middle):
                todo += [(fast, middle), (middle, small)]

    def _straddles(self, fast: Point, lean: Point, held: int) -> bool:
        return any(peak(lean, h) <= self.memory < peak(fast, h) for h in range(1, held + 1))

    def frontier(self, r: Range) -> Frontier:
        """What was found of one range."""
        points = tuple(self.points.get(r, {}).values())
        variables, constraints = self.composer.size(*r)
        least: tuple[float, ...] = ()
        if any(peak(p, self.held[r]) > self.memory for p in points):
            least = self.composer.least_peaks(*r, self.held[r]) or ()
        return Frontier(
            points=points, solves=self.asked, variables=variables, constraints=constraints, optimal=True,
            bound_seconds=min((line(p, self.task.inverse_b) for p in points), default=math.inf), proven=True,
            least_peaks=least,
        )  # fmt: skip


def _exact(inverse_b: float, point: Point) -> Sample:
    return Sample(inverse_b, point, line(point, inverse_b))


def _bytes(point: Point, held: int) -> float:
    return point.totals.weight_bytes + held * point.totals.activation_bytes


def dump(frontiers: Mapping[Range, Frontier]) -> dict[str, Any]:
    """As an entry of the cache: the choices of a layer, which many points share, are written once."""
    number: dict[tuple[int, ...], int] = {}
    ranges = []
    for (first, last), frontier in frontiers.items():
        points = [
            {
                "layers": [number.setdefault(own, len(number)) for own in p.layers],
                "totals": asdict(p.totals),
                "found": p.found,
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
            Point((), StageTotals(**p["totals"]), Found(p["found"]), tuple(choices[i] for i in p["layers"]))
            for p in fields.pop("points")
        )
        found[first, last] = Frontier(points=points, **{**fields, "least_peaks": tuple(fields["least_peaks"])})
    return found
