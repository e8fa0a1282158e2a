"""A search for choices as a task for a worker: of one problem, or of all layer ranges on one mesh together."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from alpa_explore.cluster import Device, LogicalMesh
from alpa_explore.cost.model import CostModel
from alpa_explore.intra_op.composition.block_subproblem import Price
from alpa_explore.intra_op.composition.block_tables import BlockTables
from alpa_explore.intra_op.composition.chain import Chain, chain_of
from alpa_explore.intra_op.composition.compose import Composer
from alpa_explore.intra_op.composition.cut_blocks import Range
from alpa_explore.intra_op.composition.within_memory.lagrangian_memory import fastest_within_memory
from alpa_explore.intra_op.problem.sharding_problem import ShardingProblem
from alpa_explore.intra_op.problem.solution import ShardingSolution
from alpa_explore.intra_op.range_bounds import range_bounds
from alpa_explore.intra_op.solve import solve
from alpa_explore.intra_op.stage.build_problem import build_stage_problem
from alpa_explore.intra_op.stage.layered_graph import LayeredGraph
from alpa_explore.intra_op.stage.stage_graph import StageSlicer, slice_stages
from alpa_explore.numerics.memory import no_collection
from alpa_explore.pricing import tuning
from alpa_explore.pricing.envelope import envelope, fastest
from alpa_explore.pricing.memory_frontiers import fastest_fitting, memory_frontier
from alpa_explore.pricing.mesh_sweep import MeshSweep
from alpa_explore.pricing.price_book import PriceBook, Search, StageChoice, Tried
from alpa_explore.pricing.stage_costs import Provenance

_SWEEPS = (Search.BOUNDED_WITH_CHOICES, Search.FASTEST_COMPOSED, Search.COMPOSED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One search on one mesh, for distinct layer ranges: those of a composition are many, of other searches one."""

    search: Search
    ranges: tuple[tuple[Range, int], ...]
    """With the most microbatches that each may hold."""
    least_held: int
    mesh: LogicalMesh
    device: Device
    inverse_b: float
    """1/B of the requested plan; other B are covered too."""
    version: int = 0
    """Of the layering: the graph whose layers these are."""
    solver: str = "auto"
    counts: tuple[int, ...] = ()
    """Of a search within memory by composition: the microbatches held for which a choice must fit."""
    bound_seconds: float = 0.0
    """Lower bound on the device seconds of every choice, without a memory limit."""
    known: Mapping[Range, PriceBook] = field(default_factory=dict, hash=False)
    """What BOUNDED_WITH_CHOICES has found for these ranges, if anything."""

    @property
    def on(self) -> tuple[int, LogicalMesh]:
        """Version, and mesh without axes of size 1."""
        return self.version, self.mesh.squeezed()

    @property
    def on_mesh(self) -> bool:
        """Whether composition does this search, in compiled kernels."""
        return self.search in _SWEEPS or self.search in (
            Search.BOUNDED,
            Search.BOUNDED_IN_RUNS,
            Search.BOUNDED_WITHIN_MEMORY,
            Search.COMPOSED_WITHIN_MEMORY,
        )


def run_task(versions: Sequence[LayeredGraph], task: Task) -> dict[Range, PriceBook]:
    """What the search finds for each range (runs on a Dask worker)."""
    layered = versions[task.version]
    if not task.on_mesh:
        ((layers, held),) = task.ranges
        return {layers: _solved(layered, task, layers, held)}
    composer = _composer_on(layered, task.device, task.mesh.squeezed())
    with no_collection():
        if task.search is Search.BOUNDED:
            least = composer.least_costs([r for r, _ in task.ranges], Price(0.0, 0.0, task.least_held))
            return {r: PriceBook(bounds=((0.0, seconds),), solves=1) for r, seconds in least.items()}
        if task.search is Search.BOUNDED_IN_RUNS:
            model, b = composer.cutter.model, task.inverse_b
            least = range_bounds(slicer(layered), model, [r for r, _ in task.ranges], b)
            tried = (Tried(task.search, b, task.device.memory_bytes, task.least_held),)
            return {r: PriceBook(bounds=((b, seconds),), tried=tried, solves=1) for r, seconds in least.items()}
        if task.search in _SWEEPS:
            return _swept(composer, task)
        return _within_memory(composer, task)


def _swept(composer: Composer, task: Task) -> dict[Range, PriceBook]:
    """Of every range; those that cannot be composed have no bounds."""
    sweep = MeshSweep(
        composer,
        held=dict(task.ranges),
        least_held=task.least_held,
        memory_bytes=task.device.memory_bytes,
        inverse_b=task.inverse_b,
    )
    if task.known:
        sweep.take(task.known)
    if task.search is Search.COMPOSED:
        sweep.explore()
    elif task.search is Search.FASTEST_COMPOSED:
        free = Price(task.inverse_b, tuning.TIE_SECONDS / task.device.memory_bytes, 1)
        sweep.fastest(_shared_tables(composer, free, len(task.ranges)))
    else:
        sweep.bound()
    tried = (Tried(task.search, task.inverse_b, task.device.memory_bytes, task.least_held),)
    return {r: sweep.book(r, tried) if r in sweep.samples else PriceBook(tried=tried) for r, _ in task.ranges}


def _within_memory(composer: Composer, task: Task) -> dict[Range, PriceBook]:
    """The fastest choices of a range that fit, with bounds. Where only bounds are asked for, they are the same, and the
    choices some that fit, in a small part of the time."""
    ((layers, _),), memory = task.ranges, task.device.memory_bytes
    results = fastest_within_memory(
        composer,
        layers,
        counts=task.counts,
        limit=memory,
        inverse_b=task.inverse_b,
        gap=tuning.COMPOSED_GAP,
        combining=task.search is Search.COMPOSED_WITHIN_MEMORY,
    )
    bounds = {held: result.paced_bound(task.inverse_b) for held, result in results.items()}
    fitting = {result.best.block_choices: result.best for result in results.values() if result.best is not None}
    book = PriceBook(
        choices=tuple(StageChoice((), b.totals, Provenance.FITTING, b.block_choices) for b in fitting.values()),
        tried=tuple(Tried(task.search, task.inverse_b, memory, n, bounds.get(n, 0.0)) for n in task.counts),
        solves=1,
    )
    return {layers: book}


def _solved(layered: LayeredGraph, task: Task, layers: Range, held: int) -> PriceBook:
    """Build and solve one problem."""
    problem = build_stage_problem(slicer(layered)(*layers), cost_model(task.device, task.mesh.squeezed()))

    def solver(sharding_problem: ShardingProblem, gap: float) -> ShardingSolution:
        return solve(sharding_problem, task.solver, gap=gap)

    memory, b = task.device.memory_bytes, task.inverse_b
    if task.search is Search.NEAR_OPTIMAL:
        book = envelope(problem, solver, memory, held, b)
    elif task.search is Search.LEANER:
        book = memory_frontier(problem, solver, memory, (task.least_held, held), b)
    elif task.search is Search.FASTEST:  # its proof is that its choice attains its bound
        return fastest(problem, solver, memory, (task.least_held, held), b)
    else:
        return fastest_fitting(problem, solver, memory, held, b, task.bound_seconds)
    return book.merged(PriceBook(tried=(Tried(task.search, b, memory, held),)))


def slicer(layered: LayeredGraph) -> StageSlicer:
    """The stages of a graph, shared by the tasks that one worker gets for it (keyed by identity)."""
    with _lock:
        return _slicer(layered)


def chain(layered: LayeredGraph) -> Chain:
    """The chain of a graph, shared by the tasks that one worker gets for it (keyed by identity)."""
    with _lock:
        return _chain(layered)


_lock = threading.Lock()
"""Two threads that begin together would both look through the graph."""
_slicer = lru_cache(maxsize=tuning.KEPT_GRAPHS)(slice_stages)
_chain = lru_cache(maxsize=tuning.KEPT_GRAPHS)(chain_of)


@lru_cache(maxsize=tuning.KEPT_MESHES)
def cost_model(device: Device, mesh: LogicalMesh) -> CostModel:
    """Costs on one mesh, shared by the tasks that one worker gets for it."""
    return CostModel(device, mesh)


@lru_cache(maxsize=tuning.KEPT_MESHES)
def _composer_on(layered: LayeredGraph, device: Device, mesh: LogicalMesh) -> Composer:
    """The composer of a graph on a mesh, whose block subproblems serve all the tasks that one worker gets for it."""
    return Composer(chain(layered), slicer(layered), cost_model(device, mesh))


@lru_cache(maxsize=tuning.KEPT_MESHES)
def _shared_tables(composer: Composer, price: Price, ranges: int) -> BlockTables:
    """Block tables at a price, which tasks of single ranges on one mesh share."""
    return composer.tables((price,), ranges)
