"""A search for choices as a task for a worker: of one problem, or of all layer ranges on one mesh together."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from alpa_explore.cluster import Device, LogicalMesh
from alpa_explore.cost.model import CostModel
from alpa_explore.errors import SolverError
from alpa_explore.intra_op.composition.block_subproblem import Price
from alpa_explore.intra_op.composition.block_tables import BlockTables
from alpa_explore.intra_op.composition.chain import Chain, chain_of
from alpa_explore.intra_op.composition.compose import Composer
from alpa_explore.intra_op.composition.cut_blocks import Range
from alpa_explore.intra_op.composition.within_memory import fastest_within_memory
from alpa_explore.intra_op.problem.sharding_problem import ShardingProblem
from alpa_explore.intra_op.problem.solution import ShardingSolution
from alpa_explore.intra_op.range_bounds import range_bounds
from alpa_explore.intra_op.solve import solve
from alpa_explore.intra_op.solve_limited import solve_limited
from alpa_explore.intra_op.stage.build_problem import build_stage_problem
from alpa_explore.intra_op.stage.layered_graph import LayeredGraph
from alpa_explore.intra_op.stage.stage_graph import StageSlicer, slice_stages
from alpa_explore.intra_op.stage.stage_problem import StageProblem
from alpa_explore.numerics.memory import no_collection
from alpa_explore.pricing import tuning
from alpa_explore.pricing.price_book import COMPOSING, PriceBook, Search, StageChoice, Tried
from alpa_explore.pricing.stage_costs import Provenance
from alpa_explore.pricing.sweep import Composed, Engine, OneProblem, Sweep

_TRIES = 2
"""Of the fastest choice that fits: the second leaves room for what the first needs beside what its limit counts."""


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
    """1/B of the requested plan."""
    inverse_bs: tuple[float, ...] = ()
    """At which FASTEST_COMPOSED looks for choices; other searches cover other B too."""
    version: int = 0
    """Of the layering: the graph whose layers these are."""
    solver: str = "auto"
    counts: tuple[int, ...] = ()
    """Of a search within memory by composition: the microbatches held for which a choice must fit."""
    bound_seconds: float = 0.0
    """Lower bound on the device seconds of every choice, without a memory limit."""
    known: Mapping[Range, PriceBook] = field(default_factory=dict, hash=False)
    """What is known of these ranges at 1/B and at the smallest 1/B, so that COMPOSED does not look for it again."""

    @property
    def on(self) -> tuple[int, LogicalMesh]:
        """Version, and mesh without axes of size 1."""
        return self.version, self.mesh.squeezed()

    @property
    def on_mesh(self) -> bool:
        """Whether composition does this search, in compiled kernels."""
        return self.search not in (Search.NEAR_OPTIMAL, Search.FASTEST, Search.SOLVED_WITHIN_MEMORY)


def run_task(versions: Sequence[LayeredGraph], task: Task) -> dict[Range, PriceBook]:
    """What the search finds for each range (runs on a Dask worker)."""
    layered = versions[task.version]
    if not task.on_mesh:
        ((layers, _),) = task.ranges
        return {layers: _solved(layered, task, layers)}
    composer = _composer_on(layered, task.device, task.mesh.squeezed())
    with no_collection():
        if task.search is Search.BOUNDED_IN_RUNS:
            model, b = composer.cutter.model, task.inverse_b
            least = range_bounds(slicer(layered), model, [r for r, _ in task.ranges], b)
            return {r: PriceBook(bounds=((b, s),), tried=_tried(task), solves=1) for r, s in least.items()}
        return _swept(composer, task) if task.search in COMPOSING else _bounded_within_memory(composer, task)


def _swept(composer: Composer, task: Task) -> dict[Range, PriceBook]:
    """Of every range; those that cannot be composed have no bounds."""
    if task.search is Search.COMPOSED:
        sweep = _sweep(Composed(composer), task)
        sweep.take(task.known)
        sweep.explore()
    else:
        free, tables = Price(task.inverse_b, tuning.TIE_SECONDS / task.device.memory_bytes, 1), None
        if task.inverse_bs == (task.inverse_b,):
            tables = _shared_tables(composer, free, len(task.ranges))
        sweep = _sweep(Composed(composer, tables), task)
        sweep.fastest(task.inverse_bs)
    return {r: sweep.book(r, _tried(task)) for r, _ in task.ranges}


def _sweep(engine: Engine, task: Task) -> Sweep:
    return Sweep(
        engine,
        held=dict(task.ranges),
        least_held=task.least_held,
        memory_bytes=task.device.memory_bytes,
        inverse_b=task.inverse_b,
    )


def _tried(task: Task) -> tuple[Tried, ...]:
    """That the search was run, at each 1/B."""
    at = task.inverse_bs or (task.inverse_b,)
    return tuple(Tried(task.search, b, task.device.memory_bytes, task.least_held) for b in at)


def _bounded_within_memory(composer: Composer, task: Task) -> dict[Range, PriceBook]:
    """Lower bounds on the choices of a range that fit, and some of these."""
    ((layers, _),), memory = task.ranges, task.device.memory_bytes
    results = fastest_within_memory(
        composer, layers, counts=task.counts, limit=memory, inverse_b=task.inverse_b, gap=tuning.COMPOSED_GAP
    )
    bounds = {held: result.paced_bound(task.inverse_b) for held, result in results.items()}
    fitting = {result.best.block_choices: result.best for result in results.values() if result.best is not None}
    book = PriceBook(
        choices=tuple(StageChoice((), b.totals, Provenance.FITTING, b.block_choices) for b in fitting.values()),
        tried=tuple(Tried(task.search, task.inverse_b, memory, n, bounds.get(n, 0.0)) for n in task.counts),
        solves=1,
    )
    return {layers: book}


def _solved(layered: LayeredGraph, task: Task, layers: Range) -> PriceBook:
    """Build and solve one problem."""
    problem = build_stage_problem(slicer(layered)(*layers), cost_model(task.device, task.mesh.squeezed()))
    if task.search is Search.SOLVED_WITHIN_MEMORY:
        return solved_within_memory(problem, task)
    near = task.search is Search.NEAR_OPTIMAL

    def solver(sharding_problem: ShardingProblem, gap: float) -> ShardingSolution:
        return solve(sharding_problem, task.solver, gap=gap)

    sweep = _sweep(OneProblem(problem, solver, tuning.TOLERANCE if near else 0.0), task)
    if not near:  # its proof is that its choice attains its bound
        sweep.fastest([task.inverse_b])
        return sweep.book(layers, ())
    sweep.explore()
    return sweep.book(layers, _tried(task))


def solved_within_memory(problem: StageProblem, task: Task) -> PriceBook:
    """The fastest choice that fits; where it is not proven in FITTING_SECONDS, the best that was found; where that
    would gather more weights than fit beside it, the fastest with room for as many. Without a memory limit the fastest
    choice takes `Task.bound_seconds`; it does not fit.

    No choice where nothing fits, or nothing was found in time. The search is `Tried` in any case, with the bound that
    was proven: another one would take as long, and end as this one did.
    """
    ((_, held),), memory, b = task.ranges, task.device.memory_bytes, task.inverse_b
    priced = problem.at(inverse_b=b, memory_price=tuning.TIE_SECONDS / memory, microbatches_held=held)
    room, bound, solves, best = float(memory), 0.0, 0, None
    for _ in range(_TRIES):
        limit = problem.memory_limit(held, room)
        try:
            solution = solve_limited(priced, limit, time_limit_seconds=tuning.FITTING_SECONDS, bound=task.bound_seconds)
        except SolverError:
            best = None
            break
        solves += 1
        if not solution.choices:
            best, bound = None, bound or solution.bound
            break
        best = StageChoice(solution.choices, problem.totals(solution.choices), Provenance.FITTING)
        bound = bound or solution.bound / solution.objective * best.totals.latency_at(b)
        beside = problem.beside_bytes(solution.choices)
        if not beside or best.totals.peak_bytes(held) <= memory:
            break
        room = memory - beside
    return PriceBook(
        choices=() if best is None else (best,), tried=(Tried(task.search, b, memory, held, bound),), solves=solves
    )


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


@lru_cache(maxsize=tuning.KEPT_TABLES)
def _shared_tables(composer: Composer, price: Price, ranges: int) -> BlockTables:
    """Block tables at a price, which tasks of single ranges on one mesh share."""
    return composer.tables((price,), ranges)
