"""Stage costs from lower bounds first, for another layering of a graph: few of its stages are priced.

The stage costs of one layering are known. Every stage of the other layering gets a lower bound from its FLOPs and bytes
and from these costs (`bounds`). `resolve` then has the stages of the best pipeline by these bounds priced. A stage is
priced on the logical mesh with the lowest bound, then on the next, until no bound is below its best candidate. On a
mesh it is composed as in `eager_pricing`; where the fastest choice does not fit in memory, Lagrange multipliers give
choices that do (`lagrangian_memory`). At the end the cost of every stage of the best pipeline is known to within
pricing.tuning.TOLERANCE. Of a thousand stages about thirty are priced.
"""

from __future__ import annotations

import math
import threading
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

from alpa_explore.cluster import LogicalMesh, logical_meshes
from alpa_explore.errors import CancelledError
from alpa_explore.intra_op.composition.block_subproblem import Price
from alpa_explore.intra_op.composition.block_tables import BlockTables
from alpa_explore.intra_op.composition.compose import ComposedChoice, Composer
from alpa_explore.intra_op.composition.cut_blocks import Range
from alpa_explore.intra_op.composition.within_memory.lagrangian_memory import fastest_within_memory
from alpa_explore.intra_op.stage.layered_graph import LayeredGraph
from alpa_explore.pricing.price_book import PriceBook, Reading, Search, StageChoice, Tried
from alpa_explore.pricing.stage_costs import Provenance, RangeKey, StageCosts
from alpa_explore.pricing.tasks import chain, cost_model
from alpa_explore.pricing.tuning import TIE_SECONDS, TOLERANCE
from alpa_explore.search import tuning
from alpa_explore.search.bounds.lower_bounds import LowerBounds
from alpa_explore.search.pipeline_query import HeldStage, PipelineQuery
from alpa_explore.search.resolve import resolve
from alpa_explore.search.stage_profile import StageProfile
from alpa_explore.search.stages.candidates import Candidates, CellProblem, Choices
from alpa_explore.search.stages.feasible_stages import feasible_stages
from alpa_explore.search.stages.problem_keys import price_key, problem_key
from alpa_explore.search.stages.stage_problems import StageProblems, unpriced_costs

_INCOMPLETE = (
    "Only {} stages are priced, those that the best plan with B = {} needs: with another B, the best plan may need "
    "stages that are not priced here. Plan with this delta to price all stages."
)
_GAP = "Memory is so short that a stage may have a choice that fits and is up to {:.1%} faster."
_NO_CHOICE_FITS = (
    "Memory is so short that no choice that fits was found for some stages ({}), though one may exist: there may be a "
    "better plan. Plan with this delta to search them to the end."
)

_WITHIN = Search.COMPOSED_WITHIN_MEMORY
_MeshStage = tuple[RangeKey, LogicalMesh]


class _NotComposableError(Exception):
    """A stage of the best pipeline cannot be composed."""


def profile_lazily(
    layered: LayeredGraph,
    query: PipelineQuery,
    *,
    other: LayeredGraph,
    known: StageCosts,
    cancel: threading.Event | None = None,
    layer_flops: tuple[int, ...] = (),
) -> StageProfile | None:
    """Candidates of the stages that the best pipeline needs, as good as those of `profile_stages`, and lower bounds for
    all other stages; None where a stage that is needed cannot be composed.

    `known` are the stage costs of `other`, another layering of the same graph, on the same cluster. CancelledError when
    cancelled.
    """
    pricing = LazyPricing(layered, query, other=other, known=known, cancel=cancel, layer_flops=layer_flops)
    try:
        return pricing.profile(resolve(pricing, query))
    except _NotComposableError:
        return None


def a_pipeline_fits(
    layered: LayeredGraph,
    query: PipelineQuery,
    *,
    layer_flops: tuple[int, ...] = (),
    cancel: threading.Event | None = None,
) -> bool | None:
    """True as soon as some pipeline of stages that were priced fits in memory, False where none can by the lower
    bounds; None where neither is known: `cancel` was set, a stage cannot be composed, or none of the choices that were
    found for some stage fits."""
    unpriced = unpriced_costs(layered, query, layer_flops)
    try:
        pricing = LazyPricing(layered, query, other=layered, known=unpriced, cancel=cancel, layer_flops=layer_flops)
        while True:
            costs = pricing.costs()
            if query.best(costs).feasible:
                return True
            bounds = costs.bounds
            open_stages = [(cell, held) for cell, held in query.best_stages(costs) if held in bounds.get(cell, ())]
            if not open_stages:
                return None if pricing.gave_up else False
            pricing.price_on_one_mesh(open_stages)
    except (CancelledError, _NotComposableError):
        return None


class LazyPricing:
    """Lower bounds for all stages, and candidates of those that were priced."""

    def __init__(
        self,
        layered: LayeredGraph,
        query: PipelineQuery,
        *,
        other: LayeredGraph,
        known: StageCosts,
        cancel: threading.Event | None,
        layer_flops: tuple[int, ...],
    ) -> None:
        self.layered, self.query, self.cancel = layered, query, cancel
        self.inverse_b = 1.0 / query.num_microbatches
        self._devices = [kind.device for kind in query.cluster.kinds]
        self.counts = query.held_counts(layered.num_layers)
        self._problems = StageProblems(layered, query.cluster)
        self._unpriced = replace(unpriced_costs(layered, query, layer_flops), complete=False)
        self._meshes = [logical_meshes(query.cluster, submesh) for submesh in query.submeshes]
        self._lower_bounds = LowerBounds(
            layered, self._devices, self._meshes, other=other, known=known, num_microbatches=query.num_microbatches
        )
        self._composers: dict[LogicalMesh, Composer] = {}
        self._memory_prices = known.memory_prices(query.num_microbatches)
        """Estimated price of memory (seconds per byte) on each mesh where memory is short."""
        self._tables: dict[LogicalMesh, BlockTables] = {}
        """Block tables of each mesh at the prices that its stages share; at the first of them memory has no price."""
        self._readings: dict[str, Reading] = {}
        """By the key of the problem, which several stages may share."""
        self._keys: dict[_MeshStage, str] = {}
        """Keys of the problems of the stages that were priced."""
        self._stages_of: dict[str, set[RangeKey]] = defaultdict(set)
        """The stages that were priced, by the key of their problem."""
        self._widest_gap = 0.0
        """The largest relative gap between a choice that fits and its lower bound."""
        self._unfitted: set[tuple[str, int]] = set()
        """(problem, microbatches held) for which no choice that fits was found, though one may exist."""
        self._wanted: list[CellProblem] = []
        self._candidates = Candidates()
        self._bounds: dict[RangeKey, dict[int, float]] = {}
        """As `StageCosts.bounds`."""
        for cell in feasible_stages(layered.num_layers, query.submeshes, query.cluster.devices):
            self._update_bound(cell)

    def costs(self) -> StageCosts:
        """All candidates so far, and the lower bounds of the open stages."""
        return replace(
            self._unpriced,
            candidates=self._candidates.of(self._wanted, self._readings.__getitem__),
            bounds=self._bounds,
        )

    def price(self, open_stages: Sequence[HeldStage]) -> None:
        """Price stages until no stage has a mesh whose lower bound is below its best candidate."""
        # A stage may share its problem with another one that was priced since: then it needs no pricing of its own.
        for cell, _ in open_stages:
            self._update_bound(cell)
        while todo := [(cell, held) for cell, held in open_stages if held in self._bounds[cell]]:
            self.price_on_one_mesh(todo)

    def price_on_one_mesh(self, todo: Sequence[HeldStage]) -> None:
        """Price each of these open stages on its logical mesh with the lowest bound. CancelledError when cancelled."""
        if self.cancel is not None and self.cancel.is_set():
            raise CancelledError("The plan was cancelled", found="stages were being priced", remedy="Plan again.")
        by_mesh: dict[LogicalMesh, dict[RangeKey, set[int]]] = defaultdict(dict)
        for cell, held in todo:
            open_meshes = [mesh for mesh in self._meshes[cell[2]] if not self._is_priced((cell, mesh), held)]
            mesh = min(open_meshes, key=lambda mesh: self._bound((cell, mesh), held))
            by_mesh[mesh].setdefault(cell, set()).add(held)
        for mesh, cells in by_mesh.items():
            self._price_fastest(mesh, [cell for cell in cells if (cell, mesh) not in self._keys])
            problems: dict[str, tuple[Range, set[int]]] = {}
            for (first, last, submesh), counts in cells.items():
                key = self._keys[(first, last, submesh), mesh]
                problems.setdefault(key, ((first, last), set()))[1].update(counts)
            for key, (layers, counts) in problems.items():
                self._price_within_memory(key, layers, mesh, counts)
        for cell, _ in todo:
            self._update_bound(cell)

    @property
    def gave_up(self) -> bool:
        """Whether for some stage no choice that fits was found, though one may exist."""
        return bool(self._unfitted)

    def profile(self, costs: StageCosts) -> StageProfile:
        """The result for the planner."""
        books = [reading.book for reading in self._readings.values()]
        unfitted = {cell for key, _ in self._unfitted for cell in self._stages_of[key]}
        return StageProfile(
            costs=costs,
            choices=Choices(self._candidates.points, self.layered, self._problems.equal_problem),
            problem_of=self._problems.problem,
            solves=sum(book.solves for book in books),
            distinct_solves=len(books),
            cached_solves=0,
            variables=sum(book.variables for book in books),
            constraints=sum(book.constraints for book in books),
            warnings=(
                _INCOMPLETE.format(len(costs.candidates), self.query.num_microbatches),
                *((_GAP.format(self._widest_gap),) if self._widest_gap > TOLERANCE else ()),
                *((_NO_CHOICE_FITS.format(len(unfitted)),) if unfitted else ()),
            ),
        )

    def _update_bound(self, cell: RangeKey) -> None:
        """Compute the lower bounds of a stage anew: one for each number of microbatches held at which its best
        candidate exceeds the bound by more than the tolerance."""
        counts = [held for held in self.counts if held <= self._lower_bounds.most_held(*cell)]
        stages = [(cell, mesh) for mesh in self._meshes[cell[2]]]
        if not any(stage in self._keys for stage in stages):
            self._bounds[cell] = dict.fromkeys(counts, min(self._bound(stage, 1) for stage in stages))
            return
        self._bounds[cell] = {}
        for held in counts:
            open_stages = [stage for stage in stages if not self._is_priced(stage, held)]
            bound = min((self._bound(stage, held) for stage in open_stages), default=math.inf)
            if min(self._best(stage, held) for stage in stages) > bound * (1 + TOLERANCE):
                self._bounds[cell][held] = bound

    def _is_priced(self, stage: _MeshStage, held: int) -> bool:
        """Whether nothing more can be computed for a stage on a mesh."""
        reading = self._reading(stage)
        return reading is not None and (not reading.short_of_memory(held) or _searched(reading, held))

    def _bound(self, stage: _MeshStage, held: int) -> float:
        """Lower bound on the seconds of every choice that fits; inf where none fits, or none was found."""
        if (reading := self._reading(stage)) is not None:
            return reading.bound_within(held)
        (first, last, submesh), mesh = stage
        return self._lower_bounds.seconds(first, last, submesh, mesh)

    def _best(self, stage: _MeshStage, held: int) -> float:
        """Seconds of the fastest candidate that fits; inf where none does."""
        reading = self._reading(stage)
        return math.inf if reading is None else reading.seconds_within(held)

    def _reading(self, stage: _MeshStage) -> Reading | None:
        return self._readings.get(self._keys.get(stage, ""))

    def _learn(self, key: str, mesh: LogicalMesh, book: PriceBook) -> None:
        if (known := self._readings.get(key)) is not None:
            book = known.book.merged(book)
        self._readings[key] = Reading(
            book=book,
            inverse_b=self.inverse_b,
            memory_bytes=self._memory(mesh),
            least_held=self.counts[0],
            most_held=self.counts[-1],
        )

    def _price_fastest(self, mesh: LogicalMesh, cells: Sequence[RangeKey]) -> None:
        """Find the fastest choices of stages, without a memory limit."""
        unpriced: dict[str, Range] = {}
        device = self._devices[mesh.kind]
        prices = f"{price_key(mesh, device, 'auto')} {device.memory_bytes}"
        for cell in cells:
            first, last, _ = cell
            key = self._keys[cell, mesh] = problem_key(self._problems.stage(first, last), prices)
            self._stages_of[key].add(cell)
            self._wanted.append(CellProblem(cell, mesh, key))
            if key not in self._readings:
                unpriced[key] = first, last
        if not unpriced:
            return
        composer, ranges = self._composer(mesh), list(unpriced.values())
        if mesh not in self._tables:
            multiples = tuning.NEAR if mesh in self._memory_prices else ()
            self._tables[mesh] = self._contracted(mesh, self._memory_prices.get(mesh, 0.0), multiples)
        tables = self._tables[mesh]
        solved = composer.solve(ranges, tables.prices, [ranges, *((),) * (len(tables.prices) - 1)], tables)[0]
        for key, layers in unpriced.items():
            if layers not in solved:
                raise _NotComposableError
            self._learn(key, mesh, self._book(composer, layers, solved[layers]))

    def _price_within_memory(self, key: str, layers: Range, mesh: LogicalMesh, counts: set[int]) -> None:
        """Find the fastest choices that fit with so many microbatches held, where the fastest of all does not fit."""
        composer, memory, reading = self._composer(mesh), self._memory(mesh), self._readings[key]
        # Never search twice: a second search would leave the same gap, or again find no choice that fits.
        short = sorted(held for held in counts if reading.short_of_memory(held) and not _searched(reading, held))
        least = composer.least_peaks(*layers, short) or (0.0,) * len(short)
        self._learn(key, mesh, PriceBook(least_peaks=tuple(zip(short, least, strict=True))))
        possible = [held for held in short if self._readings[key].short_of_memory(held)]
        if not possible:
            return
        first = mesh not in self._memory_prices
        if not first and len(self._tables[mesh].prices) == 1:
            self._tables[mesh] = self._contracted(mesh, self._memory_prices[mesh], tuning.NEAR)
        fits = fastest_within_memory(
            composer,
            layers,
            counts=possible,
            limit=memory,
            inverse_b=self.inverse_b,
            gap=TOLERANCE,
            near_tables=None if first else self._tables[mesh],
        )
        best = {held: f.best for held, f in fits.items() if f.best is not None}
        self._unfitted |= {(key, held) for held in possible if held not in best}
        self._widest_gap = max([self._widest_gap, *(c.cost / fits[held].bound - 1 for held, c in best.items())])
        bounds = {held: fits[held].paced_bound(self.inverse_b) if held in best else math.inf for held in possible}
        points = {b.block_choices: b for b in best.values()}
        book = PriceBook(
            choices=tuple(StageChoice((), b.totals, Provenance.FITTING, b.block_choices) for b in points.values()),
            tried=tuple(Tried(_WITHIN, self.inverse_b, memory, held, bound) for held, bound in bounds.items()),
            solves=1,
        )
        self._learn(key, mesh, book)
        if first and best and (price := fits[min(best)].price) > 0:
            self._memory_prices[mesh] = price

    def _contracted(self, mesh: LogicalMesh, memory_price: float, multiples: Sequence[float]) -> BlockTables:
        """Block tables without a price for memory, and at these multiples of `memory_price`."""
        prices = [Price(self.inverse_b, TIE_SECONDS / self._memory(mesh), 1)]
        prices += [Price(self.inverse_b, memory_price * times, self.counts[0]) for times in multiples]
        return self._composer(mesh).tables(prices)

    def _composer(self, mesh: LogicalMesh) -> Composer:
        mesh = mesh.squeezed()
        if mesh not in self._composers:
            model = cost_model(self._devices[mesh.kind], mesh)
            self._composers[mesh] = Composer(chain(self.layered), self._problems.stage, model)
        return self._composers[mesh]

    def _memory(self, mesh: LogicalMesh) -> int:
        """Of one device of a mesh, in bytes."""
        return self._devices[mesh.kind].memory_bytes

    def _book(self, composer: Composer, layers: Range, best: ComposedChoice | None) -> PriceBook:
        """Of a range whose fastest choice is this; None where no choice is legal."""
        variables, constraints = composer.size(*layers)
        points = () if best is None else (StageChoice((), best.totals, Provenance.FASTEST, best.block_choices),)
        least = math.inf if best is None else best.totals.device_latency_at(self.inverse_b)
        return PriceBook(
            choices=points, bounds=((self.inverse_b, least),), solves=1, variables=variables, constraints=constraints
        )


def _searched(reading: Reading, held: int) -> bool:
    """Whether choices that fit with so many microbatches held were searched."""
    return reading.book.has_tried(_WITHIN, held=held)
