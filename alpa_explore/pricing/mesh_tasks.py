"""All layer ranges on one logical mesh as a task for a worker, composed block by block (`intra_op.composition`)."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np

from alpa_explore.cluster import Device, LogicalMesh
from alpa_explore.intra_op.composition.block_subproblem import Price
from alpa_explore.intra_op.composition.chain import Chain, chain_of
from alpa_explore.intra_op.composition.compose import Composer
from alpa_explore.intra_op.composition.contraction import dominance_kernels, kernels
from alpa_explore.intra_op.composition.contraction.contract import contract
from alpa_explore.intra_op.composition.contraction.dominance import without_dominated
from alpa_explore.intra_op.composition.contraction.priced_problem import PricedProblem
from alpa_explore.intra_op.composition.cut_blocks import Range
from alpa_explore.intra_op.composition.within_memory.lagrangian_memory import fastest_within_memory
from alpa_explore.intra_op.elimination import order_kernels
from alpa_explore.intra_op.stage.layered_graph import LayeredGraph
from alpa_explore.numerics.memory import no_collection
from alpa_explore.pricing import tuning
from alpa_explore.pricing.frontier import Frontier, StageChoice
from alpa_explore.pricing.mesh_sweep import MeshSweep
from alpa_explore.pricing.stage_costs import Provenance
from alpa_explore.pricing.stage_tasks import cost_model, slicer
from alpa_explore.sharding.discovery.discoveries import DiscoveryRecords, record_discoveries


@dataclass(frozen=True, slots=True, kw_only=True)
class MeshTask:
    """Distinct ranges on one mesh, with the most microbatches that each may hold, and what `fastest_on_mesh` has found
    for them, if anything; other fields as in StageTask."""

    ranges: tuple[tuple[Range, int], ...]
    least_held: int
    mesh: LogicalMesh
    device: Device
    inverse_b: float
    discoveries: DiscoveryRecords = ()
    bounds: Mapping[Range, Frontier] = field(default_factory=dict, hash=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryTask:
    """A composed range on one mesh, with the numbers of microbatches held for which it must fit; other fields as in
    MeshTask."""

    range: Range
    counts: tuple[int, ...]
    mesh: LogicalMesh
    device: Device
    inverse_b: float
    discoveries: DiscoveryRecords = ()


def compose_mesh(layered: LayeredGraph, task: MeshTask) -> dict[Range, Frontier]:
    """The frontiers of the ranges that can be composed (runs on a Dask worker)."""
    return _swept(layered, task, MeshSweep.explore)


def fastest_on_mesh(layered: LayeredGraph, task: MeshTask) -> dict[Range, Frontier]:
    """The fastest choices of the ranges that can be composed, at the requested B and at the largest (runs on a Dask
    worker)."""
    return _swept(layered, task, MeshSweep.bound)


def fastest_at_b(layered: LayeredGraph, task: MeshTask) -> dict[Range, Frontier]:
    """The fastest choices of the ranges that can be composed, at the requested B alone (runs on a Dask worker)."""
    return _swept(layered, task, MeshSweep.fastest)


def _swept(layered: LayeredGraph, task: MeshTask, sweep_prices: Callable[[MeshSweep], None]) -> dict[Range, Frontier]:
    record_discoveries(task.discoveries)
    sweep = MeshSweep(
        _composer(layered, task),
        held=dict(task.ranges),
        least_held=task.least_held,
        memory_bytes=task.device.memory_bytes,
        inverse_b=task.inverse_b,
    )
    if task.bounds:
        sweep.take(task.bounds)
    with no_collection():
        sweep_prices(sweep)
        return {r: sweep.frontier(r) for r in sweep.samples}


def bound_mesh(layered: LayeredGraph, task: MeshTask) -> dict[Range, Frontier]:
    """For the ranges that can be composed a lower bound on a microbatch for every B, and no choice (runs on a Dask
    worker)."""
    record_discoveries(task.discoveries)
    least = _composer(layered, task).least_costs([r for r, _ in task.ranges], Price(0.0, 0.0, task.least_held))
    return {
        r: Frontier(points=(), solves=1, variables=0, constraints=0, optimal=False, bound_seconds=seconds, proven=False)
        for r, seconds in least.items()
    }


def compose_within_memory(layered: LayeredGraph, task: MemoryTask) -> dict[Range, Frontier]:
    """The fastest choices of a range that fit, with bounds (runs on a Dask worker)."""
    return _within_memory(layered, task, combining=True)


def bound_within_memory(layered: LayeredGraph, task: MemoryTask) -> dict[Range, Frontier]:
    """The bounds of `compose_within_memory`, and some choices that fit, in a small part of the time (runs on a Dask
    worker)."""
    return _within_memory(layered, task, combining=False)


def _within_memory(layered: LayeredGraph, task: MemoryTask, *, combining: bool) -> dict[Range, Frontier]:
    record_discoveries(task.discoveries)
    with no_collection():
        results = fastest_within_memory(
            _composer(layered, task),
            task.range,
            counts=task.counts,
            limit=task.device.memory_bytes,
            inverse_b=task.inverse_b,
            gap=tuning.COMPOSED_GAP,
            combining=combining,
        )
    fitting = [result.best for result in results.values() if result.best is not None]
    points = {
        best.block_choices: StageChoice((), best.totals, Provenance.FITTING, best.block_choices) for best in fitting
    }
    return {
        task.range: Frontier(
            points=tuple(points.values()),
            solves=1,
            variables=0,
            constraints=0,
            optimal=True,
            bound_seconds=0.0,
            proven=False,
            bounds_within=tuple((held, result.paced_bound(task.inverse_b)) for held, result in results.items()),
        )
    }


def warm_up() -> None:
    """Load this module and the compiled kernels of composition, while the model is captured."""
    warm_up_contraction()
    warm_up_others()


def warm_up_contraction() -> None:
    """Load or compile the kernels that contract a problem: 9 of the 15 s that compiling all of them takes."""
    contraction = contract(_small_problem(), (2, 3))
    assert contraction is not None, "a small problem can be contracted"
    contraction.complete(np.zeros(1, dtype=np.int64), np.zeros((1, 2), dtype=np.int64))


def warm_up_others() -> None:
    """Load or compile the kernels of dominance, of products and of the elimination order."""
    without_dominated(_small_problem(), (2, 3))  # `contract` does that for large problems
    size = 4
    table = np.zeros((1, size, size))
    kernels.min_plus_product(table, table, np.empty((1, size, size)))
    ones = np.ones(size)
    order_kernels.search(np.ones((size, size), dtype=np.bool_), ones, ones, ones == 0.0, 1, 1.0, 0.0)


def _small_problem() -> PricedProblem:
    size = 24
    cost, matrix = np.zeros((1, size)), np.zeros((1, size, size))
    return PricedProblem.of((cost,) * 4, ((0, 1), (1, 2), (0, 3), (2, 3)), (matrix,) * 4, prices=1)


def warm_up_worker() -> None:
    """`warm_up` in a worker of this machine: another process is compiling what is not on disk yet, so wait for it."""
    end = time.monotonic() + tuning.KERNELS_WAIT_SECONDS
    if all(kernel.dispatcher.stats.cache_path is not None for kernel in COMPOSITION_KERNELS):
        while time.monotonic() < end and not all(kernel.on_disk for kernel in COMPOSITION_KERNELS):
            time.sleep(tuning.KERNELS_LOOK_SECONDS)
    warm_up()


COMPOSITION_KERNELS = (
    kernels.run_program,
    kernels.backtrack,
    kernels.min_plus_product,
    dominance_kernels.keep_undominated,
    order_kernels.search,
)
"""What `warm_up` compiles, and no plan does without."""


def chain(layered: LayeredGraph) -> Chain:
    """The chain of a graph, shared by the tasks that one worker gets for it (keyed by identity)."""
    with _chain_lock:
        return _chain(layered)


_chain_lock = threading.Lock()
"""Two threads that begin together would both cut the graph into blocks."""
_chain = lru_cache(maxsize=tuning.KEPT_GRAPHS)(chain_of)


def _composer(layered: LayeredGraph, task: MeshTask | MemoryTask) -> Composer:
    return _composer_on(layered, task.device, task.mesh.squeezed())


@lru_cache(maxsize=tuning.KEPT_MESHES)
def _composer_on(layered: LayeredGraph, device: Device, mesh: LogicalMesh) -> Composer:
    """The composer of a graph on a mesh, whose block subproblems serve all the tasks that one worker gets for it."""
    return Composer(chain(layered), slicer(layered), cost_model(device, mesh))
