"""Solve every stage that the pipeline could have: each (layer range × submesh × logical mesh), equal ones once.

Rounds, each through the cache and the executor. First all ranges of layers that are chains are composed, a task for
each mesh. Of what is left the next round finds for every distinct problem choices that are nearly the fastest, with a
proof how nearly, and another leaner ones where those overflow the device at some place in the pipeline. Then what the
best pipeline by the proven bounds could hold is settled (`known`): where memory is short choices that fit are composed,
or solved for; the rest is solved to the end. That is over when that pipeline holds nothing but what is the optimum, or
within pricing.tuning.TOLERANCE of it where memory is short: no other pipeline is better by more.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from hashlib import sha256

from alpa_explore.cluster import Cluster, Device, LogicalMesh, logical_meshes, submeshes
from alpa_explore.execution.executors import Executor
from alpa_explore.execution.progress import ProgressCallback
from alpa_explore.intra_op.composition.cut_blocks import Range
from alpa_explore.intra_op.stage.layered_graph import LayeredGraph
from alpa_explore.intra_op.stage.stage_graph import StageGraph, received_bytes
from alpa_explore.intra_op.stage.stage_problem import StageProblem, build_stage_problem
from alpa_explore.pricing.frontier import Frontier
from alpa_explore.pricing.mesh_tasks import FitTask, MeshTask, compose_mesh, fit_range
from alpa_explore.pricing.stage_costs import RangeKey, StageCosts
from alpa_explore.pricing.stage_tasks import Search, StageTask, cost_model, slicer
from alpa_explore.search.candidates import Candidates, Choices, Wanted
from alpa_explore.search.convergence import Known
from alpa_explore.search.feasible_stages import usable_stages
from alpa_explore.search.task_runner import Run
from alpa_explore.sharding.discovery.discoveries import Discoveries
from alpa_explore.sharding.splits import discoveries
from alpa_explore.store.cache import Store

SOLVED_BY = (
    "cluster",
    "cost",
    "errors.py",
    "execution",
    "graph",
    "intra_op",
    "numerics",
    "pricing",
    "search",
    "sharding",
    "store",
    "tracing",
    "units.py",
)
"""What decides the answer of a cached solve; tracing because discovery runs operators through it."""
SOLVED_WITH = ("highspy", "numba", "numpy", "pulp", "pytoulbar2", "torch")
"""The libraries that decide it."""


SMALL = 1_500
"""Variables of Eq. 1 up to which Pareto sets may stay small enough for an exact frontier of (seconds, bytes)."""

Chosen = Callable[[StageCosts], Collection[tuple[RangeKey, int]]]
"""((layer range, submesh), microbatches that it holds) of the stages of the best pipeline by `StageCosts.bound_table`.
"""


@dataclass(frozen=True, kw_only=True, eq=False)
class StageProfile:
    """The candidates, the choices behind them, and what the solves took."""

    costs: StageCosts
    choices: Mapping[str, tuple[int, ...]]
    """`StageCandidate.solution_key` -> choice of every node of its stage problem."""
    problem_of: Callable[..., StageProblem]
    """Rebuilds the problem of (first, last, logical mesh), and of a version where there are several, to read a choice.
    """
    solves: int
    distinct_solves: int
    cached_solves: int
    variables: int
    constraints: int
    warnings: tuple[str, ...]


def profile_stages(
    layered: LayeredGraph,
    cluster: Cluster,
    *,
    num_microbatches: int,
    solver: str,
    executor: Executor,
    store: Store | None,
    chosen: Chosen,
    progress: ProgressCallback | None = None,
    cancel: threading.Event | None = None,
    submesh_space: str = "all",
    held_at: Callable[[int, int], int] | None = None,
    layer_flops: tuple[int, ...] = (),
) -> StageProfile:
    """Candidates of every layer range on every submesh (design.md, Stage costs).

    `held_at(place, depth)` is how many microbatches a stage holds at a place from the end of so many stages, min(place,
    B) unless told.
    Those of the stages that `chosen` names in the end are optimal, but for memory that is short: then, as the others,
    within pricing.tuning.TOLERANCE.
    CancelledError when cancelled; what was solved until then is in the cache.
    """
    stage_of = slicer(layered)
    pieces = submeshes(cluster, submesh_space)
    held_at = held_at or (lambda place, depth: min(place, num_microbatches))
    counts = held_counts(held_at, layered.num_layers)
    tasks: dict[str, StageTask] = {}
    wanted: list[Wanted] = []
    found_out = discoveries(layered.graph)
    meshes = [logical_meshes(cluster, piece) for piece in pieces]
    common = {
        mesh: problem_prices(mesh, cluster.device, solver, num_microbatches, found_out)
        for here in meshes
        for mesh in here
    }
    for first, last, position in usable_stages(layered.num_layers, pieces, cluster.devices):
        for mesh in meshes[position]:
            key = problem_key(stage_of(first, last), common[mesh])
            wanted.append(Wanted((first, last, position), mesh, key))
            # No less than its place: another B of the same plan may hold that many.
            after = layered.num_layers - last
            held = max(after, held_at(after, first + after))
            if key not in tasks or tasks[key].held < held:
                tasks[key] = StageTask(
                    first=first,
                    last=last,
                    mesh=mesh,
                    held=held,
                    least_held=counts[0],
                    device=cluster.device,
                    solver=solver,
                    inverse_b=1.0 / num_microbatches,
                    search=Search.NEAR,
                    discoveries=found_out,
                )
    run = Run(layered=layered, executor=executor, store=store, progress=progress, cancel=cancel)
    composed = _composed(run, tasks) if solver == "auto" else {}
    found = {key: [frontier] for key, frontier in composed.items()}
    for key, frontier in run({key: task for key, task in tasks.items() if key not in found}).items():
        found[key] = [frontier]

    known = Known(tasks, found, composed=frozenset(composed))
    counts_of = {key: range(task.least_held, task.held + 1) for key, task in tasks.items()}

    def look(search: Search, keys: Iterable[tuple[str, int]]) -> None:
        if search is Search.FIT:
            asked = {key: tuple(h for h in counts_of[key] if known.short_of_memory(key, h)) for key, _ in keys}
            for key, frontier in _fits(run, tasks, asked).items():
                known.add(key, frontier)
            return
        wanted = {
            f"{key}|{held}": replace(tasks[key], search=search, held=held, bound_seconds=known.bound(key))
            for key, held in keys
        }
        for name, frontier in run(wanted).items():
            known.add(name.split("|")[0], frontier)

    # A composed range has the convex part of its frontier already; the exact one is worth a look where it is small.
    unknown = [key for key in tasks if not found[key][0].proven or found[key][0].variables <= SMALL]
    look(Search.LEAN, [(key, tasks[key].held) for key in unknown if known.overflows(key)])
    received = received_bytes(layered)
    candidates_of = Candidates(wanted, found)
    cells: dict[RangeKey, list[str]] = {}
    for w in wanted:
        cells.setdefault(w.cell, []).append(w.key)
    while True:
        candidates = candidates_of()
        doubts = {cell: here for cell, keys in cells.items() if (here := known.doubts(keys, counts))}
        bounds = {cell: {held: min(b for _, b, _ in d) for held, d in here.items()} for cell, here in doubts.items()}
        costs = StageCosts(
            num_layers=layered.num_layers,
            submeshes=pieces,
            device_memory_bytes=cluster.device.memory_bytes,
            candidates=candidates,
            bounds=bounds,
            layer_flops=layer_flops,
            received_bytes=received,
        )
        todo: dict[Search, dict[tuple[str, int], None]] = {}
        for cell, held in dict(chosen(costs)).items() if bounds else ():
            for key, _, search in doubts.get(cell, {}).get(held, ()):
                todo.setdefault(search, {})[key, held if search is Search.FITTING else tasks[key].held] = None
        if not todo:
            break
        for search, asked in todo.items():
            look(search, asked)
            known.settle(search, asked)

    def problem_of(first: int, last: int, mesh: LogicalMesh) -> StageProblem:
        return build_stage_problem(stage_of(first, last), cost_model(cluster.device, mesh.squeezed()))

    frontiers = [f for here in found.values() for f in here]
    return StageProfile(
        costs=costs,
        choices=Choices(candidates_of.points, layered, problem_of),
        problem_of=problem_of,
        solves=sum(f.solves for f in frontiers),
        distinct_solves=len(frontiers),
        cached_solves=run.cached,
        variables=sum(here[0].variables for here in found.values()),
        constraints=sum(here[0].constraints for here in found.values()),
        warnings=(
            *(SLOW for _ in range(not all(f.optimal for f in frontiers))),
            *(_SHORT for _ in range(known.short_of_time)),
        ),
    )


SLOW = "A solve stopped at its time limit: its stage may have a better choice."
_SHORT = "Memory is so short that not every stage was searched for choices that fit: there may be a better plan."


def held_counts(held_at: Callable[[int, int], int], layers: int) -> list[int]:
    """The numbers of microbatches that some stage of some pipeline holds, ascending."""
    depths = range(1, layers + 1)
    return sorted({held_at(place, depth) for depth in depths for place in range(1, depth + 1)})


def problem_key(stage: StageGraph, prices: str) -> str:
    """Equal for stages whose problems are equal, at these `problem_prices`."""
    return sha256(f"{stage.structure_key} {prices}".encode()).hexdigest()


def problem_prices(
    mesh: LogicalMesh, device: Device, solver: str, num_microbatches: int, found_out: Discoveries
) -> str:
    """All that a solve depends on beside its stage."""
    body = (mesh.squeezed(), device, sorted(device.peak_flops.items()), solver, num_microbatches, found_out)
    return sha256(repr(body).encode()).hexdigest()


def _composed(run: Run, tasks: Mapping[str, StageTask]) -> dict[str, Frontier]:
    """The frontiers of all problems that can be composed, one task a mesh."""
    by_mesh: dict[LogicalMesh, dict[Range, str]] = {}
    for key, task in tasks.items():
        by_mesh.setdefault(task.mesh.squeezed(), {})[task.first, task.last] = key
    todo = {}
    for mesh, keys in by_mesh.items():
        some = tasks[next(iter(keys.values()))]
        held = tuple((r, tasks[key].held) for r, key in keys.items())
        todo[sha256(repr((held, some.least_held, *keys.values())).encode()).hexdigest()] = MeshTask(
            ranges=held,
            least_held=some.least_held,
            mesh=mesh,
            device=some.device,
            inverse_b=some.inverse_b,
            discoveries=some.discoveries,
        )
    return {
        by_mesh[todo[name].mesh][r]: frontier
        for name, frontiers in run.on_meshes(compose_mesh, todo, "composition").items()
        for r, frontier in frontiers.items()
    }


def _fits(run: Run, tasks: Mapping[str, StageTask], asked: Mapping[str, tuple[int, ...]]) -> dict[str, Frontier]:
    """Choices of composed ranges that fit beside these numbers of microbatches."""
    todo = {}
    for key, counts in asked.items():
        task = tasks[key]
        todo[f"{key}-{sha256(repr(counts).encode()).hexdigest()[:16]}"] = FitTask(
            range=(task.first, task.last),
            counts=counts,
            mesh=task.mesh,
            device=task.device,
            inverse_b=task.inverse_b,
            discoveries=task.discoveries,
        )
    found = run.on_meshes(fit_range, todo, Search.FIT.value)
    return {name.split("-")[0]: frontier for name, here in found.items() for frontier in here.values()}
