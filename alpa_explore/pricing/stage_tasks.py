"""One distinct sharding problem as a task for a worker."""

from __future__ import annotations

import enum
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache

from alpa_explore.cluster import Device, LogicalMesh
from alpa_explore.cost.model import CostModel
from alpa_explore.intra_op.problem.sharding_problem import ShardingProblem
from alpa_explore.intra_op.problem.solution import ShardingSolution
from alpa_explore.intra_op.solve import solve
from alpa_explore.intra_op.stage.build_problem import build_stage_problem
from alpa_explore.intra_op.stage.layered_graph import LayeredGraph
from alpa_explore.intra_op.stage.stage_graph import StageSlicer, slice_stages
from alpa_explore.pricing import tuning
from alpa_explore.pricing.envelope import envelope, fastest
from alpa_explore.pricing.frontier import Frontier
from alpa_explore.pricing.memory_frontiers import fastest_fitting, memory_frontier
from alpa_explore.sharding.discovery.discoveries import DiscoveryRecords, record_discoveries


class Search(enum.Enum):
    """The kind of choices that a task searches for; the value is the name of its pass on the progress line."""

    BOUNDED = "bounds"
    """For all stages on one mesh together: the least seconds of a microbatch, without choices and without memory."""
    BOUNDED_WITH_CHOICES = "fastest choices"
    """For all stages on one mesh together: their fastest choices at the requested B and at the largest."""
    COMPOSED = "composition"
    """For all stages on one mesh together: their fastest choices, and leaner ones."""
    NEAR_OPTIMAL = "sharding"
    """Choices near the fastest, at every B."""
    LEANER = "memory"
    """Leaner choices, for devices that the fastest overflows."""
    FASTEST = "proof"
    """The fastest choice, proven."""
    BOUNDED_WITHIN_MEMORY = "bounds within memory"
    """For a composed stage: lower bounds on the choices that fit, and some of them."""
    COMPOSED_WITHIN_MEMORY = "memory of composed stages"
    """For a composed stage: the fastest choices that fit, with lower bounds."""
    SOLVED_WITHIN_MEMORY = "proof within memory"
    """The fastest choice that fits, by a solver under the memory limit."""


_SEARCHES: Mapping[Search, Callable[..., Frontier]] = {
    Search.NEAR_OPTIMAL: envelope,
    Search.LEANER: memory_frontier,
    Search.FASTEST: fastest,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class StageTask:
    """One distinct problem. Stages with this problem hold `least_held` to `held` microbatches."""

    first: int
    last: int
    mesh: LogicalMesh
    held: int
    least_held: int
    device: Device
    solver: str
    inverse_b: float
    """1/B of the requested plan; other B are covered too."""
    search: Search
    bound_seconds: float = 0.0
    """Lower bound on the seconds of every choice, without a memory limit."""
    discoveries: DiscoveryRecords = ()
    """The discovered splits of operators without a rule, so that the worker uses the same ones as this process."""


def solve_stage(layered: LayeredGraph, task: StageTask) -> Frontier:
    """Build and solve one distinct problem (runs on a Dask worker)."""
    record_discoveries(task.discoveries)
    stage = slicer(layered)(task.first, task.last)
    problem = build_stage_problem(stage, cost_model(task.device, task.mesh.squeezed()))

    def solver(sharding_problem: ShardingProblem, gap: float) -> ShardingSolution:
        return solve(sharding_problem, task.solver, gap=gap)

    memory, b = task.device.memory_bytes, task.inverse_b
    if task.search is Search.SOLVED_WITHIN_MEMORY:
        return fastest_fitting(problem, solver, memory, task.held, b, task.bound_seconds)
    held = (task.least_held, task.held) if task.search is Search.LEANER else task.held
    return _SEARCHES[task.search](problem, solver, memory, held, b)


def slicer(layered: LayeredGraph) -> StageSlicer:
    """The stages of a graph, shared by the tasks that one worker gets for it (keyed by identity)."""
    with _slicer_lock:
        return _slicer(layered)


_slicer_lock = threading.Lock()
"""Two threads that begin together would both look through the graph."""
_slicer = lru_cache(maxsize=tuning.KEPT_GRAPHS)(slice_stages)


@lru_cache(maxsize=tuning.KEPT_MESHES)
def cost_model(device: Device, mesh: LogicalMesh) -> CostModel:
    """Costs on one mesh, shared by the tasks that one worker gets for it."""
    return CostModel(device, mesh)
