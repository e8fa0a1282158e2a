"""Stage costs where only what the best pipeline wants is priced: other layers of a graph whose stage costs are known.

The pipeline DP asks first: of a table in which every stage costs what it takes at least (`least`) it names the stages
of the best pipeline. Those are priced, on the logical mesh that may be the fastest until none may be faster than what
is known, composed as `profile_stages` has them composed, and where the fastest does not fit in memory by `fit`. Then
the DP asks again. It is over when it names nothing that is not known to within pricing.tuning.TOLERANCE: no pipeline is
faster by more than that. Of a thousand stages some thirty are priced.
"""

from __future__ import annotations

import math
import threading
from collections import defaultdict
from collections.abc import Callable, Sequence

from alpa_explore.cluster import Cluster, LogicalMesh, logical_meshes
from alpa_explore.errors import CancelledError
from alpa_explore.intra_op.composition.block_subproblem import Price
from alpa_explore.intra_op.composition.block_tables import BlockTables
from alpa_explore.intra_op.composition.compose import Composer
from alpa_explore.intra_op.composition.cut_blocks import Range
from alpa_explore.intra_op.composition.lagrangian_memory import fastest_within_memory
from alpa_explore.intra_op.stage.layered_graph import LayeredGraph
from alpa_explore.intra_op.stage.stage_graph import received_bytes
from alpa_explore.intra_op.stage.stage_problem import StageProblem, build_stage_problem
from alpa_explore.pricing.frontier import Frontier, StageChoice
from alpa_explore.pricing.mesh_tasks import chain
from alpa_explore.pricing.stage_costs import Provenance, RangeKey, StageCosts
from alpa_explore.pricing.stage_tasks import cost_model, slicer
from alpa_explore.pricing.tuning import TIE_SECONDS, TOLERANCE
from alpa_explore.search.candidates import Candidates, Choices, Wanted
from alpa_explore.search.feasible_stages import usable_stages
from alpa_explore.search.lower_bounds import Least
from alpa_explore.search.profile_stages import (
    Chosen,
    StageProfile,
    held_counts,
    problem_key,
    problem_prices,
)
from alpa_explore.search.versions import tied_weights
from alpa_explore.sharding.splits import discoveries

NEAR = (1.0, 2.0, 4.5)
"""Prices of which all others are asked, in times of what a byte is worth about."""

_PART = (
    "Only {} stages are priced, those that the best plan with B = {} wants: another B may have a better plan than is "
    "found here. Plan with this delta to price all."
)
_SHORT = "Memory is so short that a stage may have a choice that fits and is up to {:.1%} faster."

Stage = tuple[RangeKey, LogicalMesh]


def profile_on_demand(
    layered: LayeredGraph,
    cluster: Cluster,
    *,
    other: LayeredGraph,
    known: StageCosts,
    num_microbatches: int,
    chosen: Chosen,
    cancel: threading.Event | None = None,
    held_at: Callable[[int, int], int],
    layer_flops: tuple[int, ...] = (),
) -> StageProfile | None:
    """Candidates of the stages that the best pipeline wants, as `profile_stages` has them, and bounds for all others;
    None where one that it wants cannot be composed.

    `known` are the stage costs of `other`, the same graph in other layers, on the same cluster. `chosen` and `held_at`
    are those of `profile_stages`. CancelledError when cancelled.
    """
    prices = _Prices(layered, cluster, known, other, num_microbatches, held_at, cancel)
    tied, received = tied_weights(layered), received_bytes(layered)
    while True:
        costs = StageCosts(
            num_layers=layered.num_layers,
            submeshes=known.submeshes,
            device_memory_bytes=known.device_memory_bytes,
            candidates=prices.candidates(),
            bounds=prices.bounds,
            layer_flops=layer_flops,
            complete=False,
            received_bytes=received,
            versions=(layered.rematerialized,),
            tied_weights=tied,
        )
        asked = [(cell, held) for cell, held in chosen(costs) if held in prices.bounds.get(cell, ())]
        if not asked:
            break
        if not prices.settle(asked):
            return None
    found, stage_of = [f for here in prices.found.values() for f in here], prices.stage_of

    def problem_of(first: int, last: int, mesh: LogicalMesh) -> StageProblem:
        return build_stage_problem(stage_of(first, last), cost_model(cluster.device, mesh.squeezed()))

    return StageProfile(
        costs=costs,
        choices=Choices(prices.candidates.points, layered, problem_of),
        problem_of=problem_of,
        solves=sum(f.solves for f in found),
        distinct_solves=len(prices.found),
        cached_solves=0,
        variables=sum(f.variables for f in found),
        constraints=sum(f.constraints for f in found),
        warnings=(
            _PART.format(len(costs.candidates), num_microbatches),
            *(_SHORT.format(prices.widest_gap) for _ in range(prices.widest_gap > TOLERANCE)),
        ),
    )


class _Prices:
    """What is known of every stage on every logical mesh, and the questions that would tell more."""

    def __init__(
        self,
        layered: LayeredGraph,
        cluster: Cluster,
        known: StageCosts,
        other: LayeredGraph,
        num_microbatches: int,
        held_at: Callable[[int, int], int],
        cancel: threading.Event | None,
    ) -> None:
        self.layered, self.cluster, self.inverse_b, self.cancel = layered, cluster, 1.0 / num_microbatches, cancel
        self.memory, self.stage_of = known.device_memory_bytes, slicer(layered)
        self.meshes = [logical_meshes(cluster, piece) for piece in known.submeshes]
        self.least = Least(
            layered, cluster.device, self.meshes, other=other, known=known, num_microbatches=num_microbatches
        )
        self.counts = held_counts(held_at, layered.num_layers)
        self._num_microbatches, self._found_out = num_microbatches, discoveries(layered.graph)
        self._composers: dict[LogicalMesh, Composer] = {}
        self._worths = known.memory_prices(num_microbatches)
        """Of a byte of memory on each mesh, about, where memory is short."""
        self._tables: dict[LogicalMesh, BlockTables] = {}
        """At the prices of which all stages on a mesh are asked, the first without a price for memory."""
        self.found: dict[str, list[Frontier]] = {}
        """By the key of the problem, which many stages may share."""
        self._keys: dict[Stage, str] = {}
        """Of what was asked."""
        self.widest_gap = 0.0
        """Of the best known that fits to its bound."""
        self._fits: dict[str, dict[int, float]] = defaultdict(dict)
        """Microbatches held -> seconds that no choice that fits is below."""
        self._wanted: list[Wanted] = []
        self.candidates = Candidates(self._wanted, self.found)
        self.bounds: dict[RangeKey, dict[int, float]] = {}
        """As `StageCosts.bounds`."""
        for cell in usable_stages(layered.num_layers, known.submeshes, cluster.devices):
            self._bound(cell)

    def settle(self, asked: Sequence[tuple[RangeKey, int]]) -> bool:
        """Price stages (beside so many microbatches) until nothing is known that may be faster than the best that is
        known. False where one cannot be composed."""
        while todo := [(cell, held) for cell, held in asked if held in self.bounds[cell]]:
            if self.cancel is not None and self.cancel.is_set():
                raise CancelledError("The plan was cancelled", found="stages were being priced", remedy="Plan again.")
            questions: dict[LogicalMesh, dict[RangeKey, set[int]]] = defaultdict(dict)
            for cell, held in todo:
                left = [mesh for mesh in self.meshes[cell[2]] if not self._settled((cell, mesh), held)]
                mesh = min(left, key=lambda mesh: self._seconds((cell, mesh), held))
                questions[mesh].setdefault(cell, set()).add(held)
            for mesh, cells in questions.items():
                if not self._quickest(mesh, [cell for cell in cells if (cell, mesh) not in self._keys]):
                    return False
                alike: dict[str, tuple[Range, set[int]]] = {}
                for (first, last, submesh), counts in cells.items():
                    key = self._keys[(first, last, submesh), mesh]
                    alike.setdefault(key, ((first, last), set()))[1].update(counts)
                for key, (layers, counts) in alike.items():
                    self._fitting(key, layers, mesh, counts)
            for cell, _ in todo:
                self._bound(cell)
        return True

    def _bound(self, cell: RangeKey) -> None:
        """Write down what a stage takes at least beside as many microbatches as it may hold, where the fastest choice
        is not known."""
        counts = [held for held in self.counts if held <= self.least.most_held(*cell)]
        stages = [(cell, mesh) for mesh in self.meshes[cell[2]]]
        if not any(stage in self._keys for stage in stages):
            self.bounds[cell] = dict.fromkeys(counts, min(self._seconds(stage, 1) for stage in stages))
            return
        self.bounds[cell] = {}
        for held in counts:
            open_stages = [stage for stage in stages if not self._settled(stage, held)]
            bound = min((self._seconds(stage, held) for stage in open_stages), default=math.inf)
            if min(self._best(stage, held) for stage in stages) > bound * (1 + TOLERANCE):
                self.bounds[cell][held] = bound

    def _settled(self, stage: Stage, held: int) -> bool:
        """Whether there is nothing more to ask of a stage."""
        key = self._keys.get(stage)
        return key is not None and (
            held in self._fits[key] or all(p.totals.peak_bytes(held) <= self.memory for p in self.found[key][0].points)
        )

    def _seconds(self, stage: Stage, held: int) -> float:
        """That no choice that fits is below; inf where none does, or none was found."""
        key = self._keys.get(stage)
        if key is None:
            (first, last, submesh), mesh = stage
            return self.least.seconds(first, last, submesh, mesh)
        return self._fits[key].get(held, self.found[key][0].bound_seconds)

    def _best(self, stage: Stage, held: int) -> float:
        """Of the choices known."""
        points = [p for frontier in self.found.get(self._keys.get(stage, ""), ()) for p in frontier.points]
        return min(
            (p.totals.latency_seconds(self.inverse_b) for p in points if p.totals.peak_bytes(held) <= self.memory),
            default=math.inf,
        )

    def _quickest(self, mesh: LogicalMesh, cells: Sequence[RangeKey]) -> bool:
        """The fastest choices of stages, whatever they hold. False where one cannot be composed."""
        by_key: dict[str, Range] = {}
        prices = problem_prices(mesh, self.cluster.device, "auto", self._num_microbatches, self._found_out)
        for cell in cells:
            first, last, _ = cell
            key = self._keys[cell, mesh] = problem_key(self.stage_of(first, last), prices)
            self._wanted.append(Wanted(cell, mesh, key))
            if key not in self.found:
                by_key[key] = first, last
        if not by_key:
            return True
        composer, ranges = self._composer(mesh), list(by_key.values())
        if mesh not in self._tables:
            self._tables[mesh] = self._priced(mesh, self._worths.get(mesh, 0.0), NEAR if mesh in self._worths else ())
        tables = self._tables[mesh]
        solved = composer.solve(ranges, tables.prices, [ranges, *((),) * (len(tables.prices) - 1)], tables)[0]
        for key, layers in by_key.items():
            if layers not in solved:
                return False
            best = solved[layers]
            points = () if best is None else (StageChoice((), best.totals, Provenance.FASTEST, best.block_choices),)
            self.found[key] = [self._frontier(composer, layers, points)]
        return True

    def _fitting(self, key: str, layers: Range, mesh: LogicalMesh, counts: set[int]) -> None:
        """The fastest choices that fit beside so many microbatches."""
        (quick,) = self.found[key][0].points or (None,)
        todo = sorted(
            h
            for h in counts
            if h not in self._fits[key] and (quick is None or quick.totals.peak_bytes(h) > self.memory)
        )
        if not todo:
            return
        composer = self._composer(mesh)
        least = composer.least_peaks(*layers, todo) or (0.0,) * len(todo)
        # Once is enough: where the gap stays wide it stays so, and where none was found that fits none will be.
        self._fits[key].update((held, math.inf) for held in todo)
        if quick is None or not (possible := [h for h, size in zip(todo, least, strict=True) if size <= self.memory]):
            return
        first = mesh not in self._worths
        if not first and len(self._tables[mesh].prices) == 1:
            self._tables[mesh] = self._priced(mesh, self._worths[mesh], NEAR)
        fits = fastest_within_memory(
            composer,
            layers,
            counts=possible,
            limit=self.memory,
            inverse_b=self.inverse_b,
            gap=TOLERANCE,
            near_tables=None if first else self._tables[mesh],
        )
        best = {held: f.best for held, f in fits.items() if f.best is not None}
        for held, choice in best.items():
            self._fits[key][held] = fits[held].bound
            self.widest_gap = max(self.widest_gap, choice.cost / fits[held].bound - 1)
        points = {
            b.block_choices: StageChoice((), b.totals, Provenance.FITTING, b.block_choices) for b in best.values()
        }
        self.found[key].append(self._frontier(composer, layers, tuple(points.values())))
        if first and best and (worth := fits[min(best)].price) > 0:
            self._worths[mesh] = worth

    def _priced(self, mesh: LogicalMesh, worth: float, times: Sequence[float]) -> BlockTables:
        """Tables without a price for memory, and at these times `worth` for a byte."""
        prices = [Price(self.inverse_b, TIE_SECONDS / self.memory, 1)]
        prices += [Price(self.inverse_b, worth * t, self.counts[0]) for t in times]
        return self._composer(mesh).tables(prices)

    def _composer(self, mesh: LogicalMesh) -> Composer:
        mesh = mesh.squeezed()
        if mesh not in self._composers:
            self._composers[mesh] = Composer(chain(self.layered), self.stage_of, cost_model(self.cluster.device, mesh))
        return self._composers[mesh]

    def _frontier(self, composer: Composer, layers: Range, points: tuple[StageChoice, ...]) -> Frontier:
        variables, constraints = composer.size(*layers)
        return Frontier(
            points=points,
            solves=1,
            variables=variables,
            constraints=constraints,
            optimal=True,
            proven=True,
            bound_seconds=min((p.totals.latency_seconds(self.inverse_b) for p in points), default=math.inf),
        )
