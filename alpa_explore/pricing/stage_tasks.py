"""One distinct sharding problem as a task for a worker: what it looks for, and its answer as an entry of the cache."""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from functools import lru_cache

from alpa_explore.cluster import Device, LogicalMesh
from alpa_explore.cost.model import CostModel
from alpa_explore.intra_op.problem.sharding_problem import ShardingProblem
from alpa_explore.intra_op.problem.solution import ShardingSolution
from alpa_explore.intra_op.solve import solve
from alpa_explore.intra_op.stage.layered_graph import LayeredGraph
from alpa_explore.intra_op.stage.stage_graph import StageGraph, slice_stages
from alpa_explore.intra_op.stage.stage_problem import StageTotals, build_stage_problem
from alpa_explore.pricing.frontier import Frontier, Point, envelope, fastest, fitting, memory_frontier
from alpa_explore.pricing.stage_costs import Provenance
from alpa_explore.sharding.discovery.discoveries import DiscoveryRecords, record_discoveries


class Search(enum.Enum):
    """What a task looks for; the value is the name of its pass for the progress line."""

    NEAR = "sharding"
    LEAN = "memory"
    FASTEST = "proof"
    FIT = "memory of composed stages"
    FITTING = "proof within memory"


_SEARCHES: Mapping[Search, Callable[..., Frontier]] = {
    Search.NEAR: envelope,
    Search.LEAN: memory_frontier,
    Search.FASTEST: fastest,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class StageTask:
    """One distinct problem. `least_held` to `held` microbatches is what any stage with this problem may hold."""

    first: int
    last: int
    mesh: LogicalMesh
    held: int
    least_held: int
    device: Device
    solver: str
    inverse_b: float
    """1/B of the plan that is asked for; other B are covered too."""
    search: Search
    bound_seconds: float = 0.0
    """No choice is faster, however much it holds."""
    discoveries: DiscoveryRecords = ()
    """Of the operators of the graph that no rule knows: the worker divides them as this process does."""


def solve_stage(layered: LayeredGraph, task: StageTask) -> Frontier:
    """Build and solve one distinct problem (runs on a Dask worker)."""
    record_discoveries(task.discoveries)
    stage = slicer(layered)(task.first, task.last)
    problem = build_stage_problem(stage, cost_model(task.device, task.mesh.squeezed()))

    def solver(one: ShardingProblem, gap: float) -> ShardingSolution:
        return solve(one, task.solver, gap=gap)

    memory, b = task.device.memory_bytes, task.inverse_b
    if task.search is Search.FITTING:
        return fitting(problem, solver, memory, task.held, b, task.bound_seconds)
    held = (task.least_held, task.held) if task.search is Search.LEAN else task.held
    return _SEARCHES[task.search](problem, solver, memory, held, b)


@lru_cache(maxsize=1)
def slicer(layered: LayeredGraph) -> Callable[[int, int], StageGraph]:
    """Preparation shared by the tasks that one worker gets for one graph (keyed by identity)."""
    return slice_stages(layered)


@lru_cache(maxsize=16)
def cost_model(device: Device, mesh: LogicalMesh) -> CostModel:
    """Prices shared by the tasks that one worker gets for one mesh."""
    return CostModel(device, mesh)


def dump(frontier: Frontier) -> dict[str, object]:
    """As an entry of the cache."""
    return asdict(frontier)


def load(stored: Mapping[str, object]) -> Frontier:
    """What `dump` made."""
    points = tuple(
        Point(tuple(p["choices"]), StageTotals(**p["totals"]), Provenance(p["provenance"]))
        for p in stored["points"]  # type: ignore[attr-defined]
    )
    least: tuple[float, ...] = tuple(stored["least_peaks"])  # type: ignore[arg-type]
    return replace(
        Frontier((), 0, 0, 0, True, 0.0, False),
        **{**stored, "points": points, "least_peaks": least, "bounds_within": ()},  # type: ignore[arg-type]
    )
