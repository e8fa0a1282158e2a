"""Solve every stage that the pipeline could have: each (layer range × submesh × logical mesh), equal ones once.

Two rounds. The first finds for every distinct problem the choices that are fastest for some B. The second finds leaner
choices where those overflow the device at some place in the pipeline. Both go through the cache and the executor.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from functools import cache, lru_cache, partial
from hashlib import sha256
from pathlib import Path

from alpa_explore.cluster import Cluster, Device, LogicalMesh, Submesh, logical_meshes, submeshes
from alpa_explore.cost.model import CostModel
from alpa_explore.intra_op.layered_graph import LayeredGraph
from alpa_explore.intra_op.problem import ShardingProblem
from alpa_explore.intra_op.solution import ShardingSolution
from alpa_explore.intra_op.solve import solve
from alpa_explore.intra_op.stage_graph import StageGraph, slice_stages
from alpa_explore.intra_op.stage_problem import StageProblem, StageTotals, build_stage_problem
from alpa_explore.profiling.cache import SolveCache
from alpa_explore.profiling.executors import Executor
from alpa_explore.profiling.frontier import Frontier, Point, envelope, memory_frontier
from alpa_explore.profiling.progress import ProgressCallback
from alpa_explore.profiling.stage_costs import RangeKey, StageCandidate, StageCosts

_PRICING = ("cluster", "cost", "graph", "intra_op", "profiling", "sharding")
"""The packages that decide what a solve returns."""


@cache
def code_version() -> str:
    """Digest of the source of everything that a cached solve depends on: changed code never meets an old answer."""
    home = Path(__file__).parent.parent
    digest = sha256()
    for package in _PRICING:
        for source in sorted((home / package).rglob("*.py")):
            digest.update(source.read_bytes())
    return digest.hexdigest()[:16]


@dataclass(frozen=True, slots=True, kw_only=True)
class StageTask:
    """One distinct problem. `held` is the most microbatches that any stage with this problem may hold."""

    first: int
    last: int
    mesh: LogicalMesh
    held: int
    device: Device
    solver: str
    inverse_b: float
    """1/B of the plan that is asked for; other B are covered too."""
    lean: bool
    """False: the first round (the fastest choices); True: the second (leaner ones)."""


@dataclass(frozen=True, kw_only=True, eq=False)
class StageProfile:
    """The candidates, the choices behind them, and what the solves took."""

    costs: StageCosts
    choices: Mapping[str, tuple[int, ...]]
    """`StageCandidate.solution_key` -> choice of every node of its stage problem."""
    problem_of: Callable[[int, int, LogicalMesh], StageProblem]
    """Rebuilds the problem of (first, last, logical mesh), to read a choice."""
    solves: int
    distinct_solves: int
    cached_solves: int
    variables: int
    constraints: int
    warnings: tuple[str, ...]


def profile_stages(
    layered: LayeredGraph, cluster: Cluster, *, num_microbatches: int, solver: str, executor: Executor,
    store: SolveCache | None, progress: ProgressCallback | None = None, cancel: threading.Event | None = None,
) -> StageProfile:  # fmt: skip
    """Candidates of every layer range on every submesh (design.md, Stage costs).

    CancelledError when cancelled; what was solved until then is in the cache.
    """
    stage_of = slice_stages(layered)
    pieces = submeshes(cluster)
    tasks: dict[str, StageTask] = {}
    wanted: list[tuple[RangeKey, LogicalMesh, str]] = []
    for first in range(layered.num_layers):
        for last in range(first, layered.num_layers):
            for position, piece in enumerate(pieces):
                for mesh in _meshes(cluster, piece):
                    stage = stage_of(first, last)
                    key = _key(stage, mesh, cluster.device, solver, num_microbatches)
                    wanted.append(((first, last, position), mesh, key))
                    held = layered.num_layers - last
                    if key not in tasks or tasks[key].held < held:
                        tasks[key] = StageTask(
                            first=first, last=last, mesh=mesh, held=held, device=cluster.device, solver=solver,
                            inverse_b=1.0 / num_microbatches, lean=False,
                        )  # fmt: skip
    run = partial(_run, layered=layered, executor=executor, store=store, progress=progress, cancel=cancel)
    found, cached = run("sharding", tasks)
    tight = {
        f"{key}-held{task.held}": replace(task, lean=True)
        for key, task in tasks.items()
        if any(_peak(p, task.held) > cluster.device.memory_bytes for p in found[key].points)
    }
    leaner, cached_lean = run("memory", tight) if tight else ({}, 0)
    lean_of = {name.rsplit("-held", 1)[0]: frontier for name, frontier in leaner.items()}

    choices: dict[str, tuple[int, ...]] = {}
    candidates: dict[RangeKey, list[StageCandidate]] = {}
    for range_key, mesh, key in wanted:
        points = dict.fromkeys((*found[key].points, *(lean_of[key].points if key in lean_of else ())))
        for number, point in enumerate(points):
            name = f"{key[:24]}-{number}"
            choices[name] = point.choices
            candidates.setdefault(range_key, []).append(
                StageCandidate(logical_mesh=mesh, solution_key=name, **asdict(point.totals))
            )
    frontiers = [*found.values(), *leaner.values()]

    def problem_of(first: int, last: int, mesh: LogicalMesh) -> StageProblem:
        return build_stage_problem(stage_of(first, last), _model(cluster.device, mesh.squeezed()))

    return StageProfile(
        costs=StageCosts(
            num_layers=layered.num_layers, submeshes=pieces, device_memory_bytes=cluster.device.memory_bytes,
            candidates={key: tuple(found) for key, found in candidates.items()},
        ),
        choices=choices, problem_of=problem_of,
        solves=sum(f.solves for f in frontiers), distinct_solves=len(tasks) + len(tight),
        cached_solves=cached + cached_lean,
        variables=sum(f.variables for f in found.values()), constraints=sum(f.constraints for f in found.values()),
        warnings=("A solve stopped at its time limit: its stage may have a better choice.",)
        if not all(f.optimal for f in frontiers) else (),
    )  # fmt: skip


def _meshes(cluster: Cluster, piece: Submesh) -> tuple[LogicalMesh, ...]:
    return logical_meshes(cluster, piece)


def _peak(point: Point, held: int) -> float:
    t = point.totals
    return t.weight_bytes + held * t.activation_bytes + t.workspace_bytes


def _key(stage: StageGraph, mesh: LogicalMesh, device: Device, solver: str, num_microbatches: int) -> str:
    prices = (mesh.squeezed(), device, sorted(device.peak_flops.items()))
    body = (stage.structure_key, prices, solver, num_microbatches)
    return sha256(repr(body).encode()).hexdigest()


def _run(
    name: str, tasks: Mapping[str, StageTask], *, layered: LayeredGraph, executor: Executor, store: SolveCache | None,
    progress: ProgressCallback | None, cancel: threading.Event | None,
) -> tuple[dict[str, Frontier], int]:  # fmt: skip
    """The frontier of every task, from the cache or solved now, and how many came from the cache."""
    done: dict[str, Frontier] = {}
    for key in tasks:
        stored = store.get(key) if store is not None else None
        if stored is not None:
            done[key] = _load(stored)
    cached = len(done)
    # Long problems first: the last worker to finish should finish a short one.
    todo = sorted((k for k in tasks if k not in done), key=lambda k: tasks[k].first - tasks[k].last)
    for key, frontier in executor.map(
        solve_task, {k: tasks[k] for k in todo}, shared=layered, name=name, progress=progress, cancel=cancel
    ):
        done[key] = frontier
        if store is not None:
            store.put(key, _dump(frontier))
    return done, cached


def solve_task(layered: LayeredGraph, task: StageTask) -> Frontier:
    """Build and solve one distinct problem (runs on a Dask worker)."""
    stage = _slicer(layered)(task.first, task.last)
    problem = build_stage_problem(stage, _model(task.device, task.mesh.squeezed()))

    def solver(one: ShardingProblem, gap: float) -> ShardingSolution:
        return solve(one, task.solver, gap=gap)

    search = memory_frontier if task.lean else envelope
    return search(problem, solver, task.device.memory_bytes, task.held, task.inverse_b)


@lru_cache(maxsize=1)
def _slicer(layered: LayeredGraph) -> Callable[[int, int], StageGraph]:
    """Preparation shared by the tasks that one worker gets for one graph (keyed by identity)."""
    return slice_stages(layered)


@lru_cache(maxsize=16)
def _model(device: Device, mesh: LogicalMesh) -> CostModel:
    """Prices shared by the tasks that one worker gets for one mesh."""
    return CostModel(device, mesh)


def _dump(frontier: Frontier) -> dict[str, object]:
    return asdict(frontier)


def _load(stored: Mapping[str, object]) -> Frontier:
    points = tuple(
        Point(tuple(p["choices"]), StageTotals(**p["totals"]))
        for p in stored["points"]  # type: ignore[attr-defined]
    )
    return replace(Frontier((), 0, 0, 0, True), **{**stored, "points": points})  # type: ignore[arg-type]
