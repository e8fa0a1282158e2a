"""Solve every stage that the pipeline could have: each (layer range × submesh × logical mesh), equal ones once.

Three rounds, each through the cache and the executor. The first finds for every distinct problem choices that are
nearly the fastest, with a proof how nearly. The second finds leaner ones where those overflow the device at some place
in the pipeline. The third solves to the end what the best pipeline could hold: it is over when the best pipeline by the
proven bounds holds nothing but optima, within the memory of the device where that is short, and then no other pipeline
is better.
"""

from __future__ import annotations

import enum
import math
import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache, lru_cache
from hashlib import sha256
from itertools import combinations_with_replacement
from pathlib import Path
from typing import NamedTuple

from alpa_explore.cluster import Cluster, Device, LogicalMesh, logical_meshes, submeshes
from alpa_explore.cost.model import CostModel
from alpa_explore.intra_op.layered_graph import LayeredGraph
from alpa_explore.intra_op.problem import ShardingProblem
from alpa_explore.intra_op.solution import ShardingSolution
from alpa_explore.intra_op.solve import solve
from alpa_explore.intra_op.stage_graph import StageGraph, slice_stages
from alpa_explore.intra_op.stage_problem import StageProblem, StageTotals, build_stage_problem
from alpa_explore.profiling.cache import SolveCache
from alpa_explore.profiling.executors import Executor
from alpa_explore.profiling.frontier import (
    Frontier,
    Point,
    envelope,
    fastest,
    fitting,
    line,
    memory_frontier,
    stronger,
)
from alpa_explore.profiling.progress import ProgressCallback
from alpa_explore.profiling.stage_costs import Found, RangeKey, StageCandidate, StageCosts
from alpa_explore.sharding.discoveries import Discoveries, discoveries, remember
from alpa_explore.sharding.rules import RULES

_PRICING = ("cluster", "cost", "graph", "intra_op", "profiling", "sharding", "tracing")
"""The packages that decide what a solve returns; tracing because discovery runs operators through it."""


@cache
def code_version() -> str:
    """Digest of the source of everything that a cached solve depends on: changed code never meets an old answer."""
    home = Path(__file__).parent.parent
    digest = sha256()
    for package in _PRICING:
        for source in sorted((home / package).rglob("*.py")):
            digest.update(source.read_bytes())
    return digest.hexdigest()[:16]


class Search(enum.Enum):
    """What a task looks for; the value is the name of its pass for the progress line."""

    NEAR = "sharding"
    LEAN = "memory"
    FASTEST = "proof"
    FITTING = "proof within memory"


_SEARCHES: Mapping[Search, Callable[..., Frontier]] = {
    Search.NEAR: envelope, Search.LEAN: memory_frontier, Search.FASTEST: fastest, Search.FITTING: fitting
}  # fmt: skip

MOST_FITTING = 40
"""Problems that are solved within memory for one plan; after that known choices must do."""

Chosen = Callable[[StageCosts], Collection[tuple[RangeKey, int]]]
"""((layer range, submesh), place from the end) of the stages of the best pipeline by `StageCosts.bound_table`."""


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
    discoveries: Discoveries = ()
    """Of the operators of the graph that no rule knows: the worker divides them as this process does."""


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
    store: SolveCache | None, chosen: Chosen, progress: ProgressCallback | None = None,
    cancel: threading.Event | None = None, submesh_space: str = "all", held_at: Callable[[int], int] | None = None,
    layer_flops: tuple[int, ...] = (),
) -> StageProfile:  # fmt: skip
    """Candidates of every layer range on every submesh (design.md, Stage costs).

    `held_at(place)` is how many microbatches a stage holds at a place from the end, min(place, B) unless told.
    Those of the stages that `chosen` names in the end are optimal, the others within frontier.TOLERANCE.
    CancelledError when cancelled; what was solved until then is in the cache.
    """
    stage_of = slice_stages(layered)
    pieces = submeshes(cluster, submesh_space)
    held_at = held_at or (lambda place: min(place, num_microbatches))
    tasks: dict[str, StageTask] = {}
    wanted: list[_Wanted] = []
    found_out = discoveries(layered.graph, RULES)
    for first, last in combinations_with_replacement(range(layered.num_layers), 2):
        for position, piece in enumerate(pieces):
            for mesh in logical_meshes(cluster, piece):
                key = _key(stage_of(first, last), mesh, cluster.device, solver, num_microbatches, found_out)
                wanted.append(_Wanted((first, last, position), mesh, key))
                # No less than its place: another B of the same plan may hold that many.
                held = max(layered.num_layers - last, held_at(layered.num_layers - last))
                if key not in tasks or tasks[key].held < held:
                    tasks[key] = StageTask(
                        first=first, last=last, mesh=mesh, held=held, least_held=held_at(1), device=cluster.device,
                        solver=solver, inverse_b=1.0 / num_microbatches, search=Search.NEAR, discoveries=found_out,
                    )  # fmt: skip
    run = _Run(layered=layered, executor=executor, store=store, progress=progress, cancel=cancel)
    found = {key: [frontier] for key, frontier in run(tasks).items()}

    def look(search: Search, keys: Iterable[tuple[str, int]]) -> None:
        wanted = {f"{key}|{held}": replace(tasks[key], search=search, held=held) for key, held in keys}
        for name, frontier in run(wanted).items():
            found[name.split("|")[0]].append(frontier)

    memory, inverse_b = cluster.device.memory_bytes, 1.0 / num_microbatches

    def overflows(key: str) -> bool:
        return any(_peak(p, tasks[key].held) > memory for p in found[key][0].points)

    def doubt(key: str, held: int) -> tuple[float, Search] | None:
        """What no choice can be below, and the search that would settle it; None where the optimum is known."""
        least = next((f.least_peaks for f in found[key] if f.least_peaks), (0.0,))
        if least[min(held - tasks[key].least_held, len(least) - 1)] > memory:
            return None
        if not any(f.proven for f in found[key]):
            return (found[key][0].bound_seconds, Search.FASTEST) if (key, 0) not in settled else None
        quickest = min((p for f in found[key] for p in f.points), key=lambda p: line(p, inverse_b), default=None)
        if quickest is None or _peak(quickest, held) <= memory or (key, held) in settled or short_of_time:
            return None
        return line(quickest, inverse_b), Search.FITTING

    look(Search.LEAN, ((key, tasks[key].held) for key in filter(overflows, tasks)))
    received = {
        (first, last): float(stage_of(first, last).received_bytes)
        for first, last in combinations_with_replacement(range(layered.num_layers), 2)
    }
    settled: set[tuple[str, int]] = set()
    short_of_time = False
    while True:
        candidates, choices = _candidates(wanted, found)
        bounds: dict[RangeKey, list[float]] = {}
        for w in wanted:
            for place in range(1, layered.num_layers + 1):
                if (doubted := doubt(w.key, held_at(place))) is not None:
                    here = bounds.setdefault(w.cell, [math.inf] * layered.num_layers)
                    here[place - 1] = min(here[place - 1], doubted[0])
        costs = StageCosts(
            num_layers=layered.num_layers, submeshes=pieces, device_memory_bytes=memory, candidates=candidates,
            bounds={cell: tuple(here) for cell, here in bounds.items()},
            layer_flops=layer_flops, received_bytes=received,
        )  # fmt: skip
        best = {cell: held_at(place) for cell, place in chosen(costs)} if bounds else {}
        todo: dict[Search, dict[tuple[str, int], None]] = {}
        for w in wanted:
            if w.cell in best and (doubted := doubt(w.key, best[w.cell])) is not None:
                search = doubted[1]
                held = best[w.cell] if search is Search.FITTING else tasks[w.key].held
                todo.setdefault(search, {})[w.key, held] = None
        if not todo:
            break
        for search, keys in todo.items():
            look(search, keys)
            settled |= {(key, held if search is Search.FITTING else 0) for key, held in keys}
        short_of_time = sum(1 for _, held in settled if held) > MOST_FITTING

    def problem_of(first: int, last: int, mesh: LogicalMesh) -> StageProblem:
        return build_stage_problem(stage_of(first, last), _model(cluster.device, mesh.squeezed()))

    frontiers = [f for here in found.values() for f in here]
    return StageProfile(
        costs=costs, choices=choices, problem_of=problem_of,
        solves=sum(f.solves for f in frontiers), distinct_solves=len(frontiers), cached_solves=run.cached,
        variables=sum(here[0].variables for here in found.values()),
        constraints=sum(here[0].constraints for here in found.values()),
        warnings=(
            *(_SLOW for _ in range(not all(f.optimal for f in frontiers))), *(_SHORT for _ in range(short_of_time))
        ),
    )  # fmt: skip


_SLOW = "A solve stopped at its time limit: its stage may have a better choice."
_SHORT = "Memory is so short that not every stage was searched for choices that fit: there may be a better plan."


class _Wanted(NamedTuple):
    """A cell of the cost table, one of its logical meshes, and the key of their problem."""

    cell: RangeKey
    mesh: LogicalMesh
    key: str


def _candidates(
    wanted: Iterable[_Wanted], found: Mapping[str, Sequence[Frontier]]
) -> tuple[dict[RangeKey, tuple[StageCandidate, ...]], dict[str, tuple[int, ...]]]:
    """Candidates of every cell, and the choice behind each solution key."""
    candidates: dict[RangeKey, list[StageCandidate]] = {}
    choices: dict[str, tuple[int, ...]] = {}
    for cell, mesh, key in wanted:
        points: dict[tuple[int, ...], Point] = {}
        for point in (p for frontier in found[key] for p in frontier.points):
            points[point.choices] = stronger(points.get(point.choices, point), point)
        for number, point in enumerate(points.values()):
            name = f"{key[:24]}-{number}"
            choices[name] = point.choices
            candidates.setdefault(cell, []).append(
                StageCandidate(logical_mesh=mesh, solution_key=name, found=point.found, **asdict(point.totals))
            )
    return {cell: tuple(here) for cell, here in candidates.items()}, choices


def _peak(point: Point, held: int) -> float:
    t = point.totals
    return t.weight_bytes + held * t.activation_bytes + t.workspace_bytes


def _key(
    stage: StageGraph, mesh: LogicalMesh, device: Device, solver: str, num_microbatches: int, found_out: Discoveries
) -> str:
    prices = (mesh.squeezed(), device, sorted(device.peak_flops.items()))
    body = (stage.structure_key, prices, solver, num_microbatches, found_out)
    return sha256(repr(body).encode()).hexdigest()


@dataclass(kw_only=True, eq=False)
class _Run:
    """Runs tasks, those that are not in the cache; counts the others in `cached`."""

    layered: LayeredGraph
    executor: Executor
    store: SolveCache | None
    progress: ProgressCallback | None
    cancel: threading.Event | None
    cached: int = 0

    def __call__(self, tasks: Mapping[str, StageTask]) -> dict[str, Frontier]:
        """The frontier of every task."""
        done: dict[str, Frontier] = {}
        names = {key: f"{key}-{task.search.value}{task.least_held}-{task.held}" for key, task in tasks.items()}
        for key, name in names.items():
            stored = self.store.get(name) if self.store is not None else None
            if stored is not None:
                done[key] = _load(stored)
        self.cached += len(done)
        # Long problems first: the last worker to finish should finish a short one.
        todo = sorted((k for k in tasks if k not in done), key=lambda k: tasks[k].first - tasks[k].last)
        if not todo:
            return done
        for key, frontier in self.executor.map(
            solve_task, {k: tasks[k] for k in todo}, shared=self.layered, name=tasks[todo[0]].search.value,
            progress=self.progress, cancel=self.cancel,
        ):  # fmt: skip
            done[key] = frontier
            if self.store is not None:
                self.store.put(names[key], _dump(frontier))
        return done


def solve_task(layered: LayeredGraph, task: StageTask) -> Frontier:
    """Build and solve one distinct problem (runs on a Dask worker)."""
    remember(task.discoveries)
    stage = _slicer(layered)(task.first, task.last)
    problem = build_stage_problem(stage, _model(task.device, task.mesh.squeezed()))

    def solver(one: ShardingProblem, gap: float) -> ShardingSolution:
        return solve(one, task.solver, gap=gap)

    held = (task.least_held, task.held) if task.search is Search.LEAN else task.held
    return _SEARCHES[task.search](problem, solver, task.device.memory_bytes, held, task.inverse_b)


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
        Point(tuple(p["choices"]), StageTotals(**p["totals"]), Found(p["found"]))
        for p in stored["points"]  # type: ignore[attr-defined]
    )
    least: tuple[float, ...] = tuple(stored["least_peaks"])  # type: ignore[arg-type]
    return replace(
        Frontier((), 0, 0, 0, True, 0.0, False),
        **{**stored, "points": points, "least_peaks": least},  # type: ignore[arg-type]
    )
