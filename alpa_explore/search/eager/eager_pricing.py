"""Stage costs from candidates first: every feasible (layer range × submesh × logical mesh), equal problems once.

The solves run in rounds, each through the cache and the executor:

0. Submeshes that no logical mesh divides well, as 3 nodes for sizes that are powers of two, are screened: their stages
   get lower bounds from FLOPs. When `resolve` finds that a pipeline may want one, they get those of composition, and
   when it still may, the whole submesh is priced; few are.
1. All layer ranges that are chains of blocks are composed, one task for each mesh. A mesh is deferred that the cache
   knows from another B or another memory (`known_meshes`); on large clusters the others are, too, once their fastest
   choices are known. Bounds follow from these choices, and the mesh is composed when `resolve` finds one of its
   stages in the best pipeline. That pipeline is the one of composing all meshes. Of a mesh that was composed at
   another B only the fastest choices at this one may be missing: its leaner choices are the same, and those for other
   B.
2. Every other distinct problem gets near-optimal choices with a lower bound.
3. Problems whose choices overflow the device at some place in the pipeline get leaner ones.
4. `resolve` has the open stages of the best pipeline priced: where memory is short, choices that fit are bounded, then
   composed (both together with the meshes of 1.), then solved for; all other problems are solved to optimality.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256

from alpa_explore.cluster import LogicalMesh, logical_meshes
from alpa_explore.execution.executors import Executor
from alpa_explore.execution.progress import ProgressCallback
from alpa_explore.intra_op.composition.cut_blocks import Range
from alpa_explore.intra_op.stage.layered_graph import LayeredGraph
from alpa_explore.numerics.memory import no_collection
from alpa_explore.pricing.frontier import Frontier
from alpa_explore.pricing.mesh_tasks import MeshTask, bound_mesh, compose_mesh, fastest_at_b, fastest_on_mesh
from alpa_explore.pricing.stage_costs import RangeKey, Screened, StageCosts
from alpa_explore.pricing.stage_tasks import Search, StageTask
from alpa_explore.pricing.tuning import PROVEN, TIE_SECONDS
from alpa_explore.search import tuning
from alpa_explore.search.bounds.lower_bounds import LowerBounds
from alpa_explore.search.eager.convergence import WITHIN_MEMORY, Convergence, OpenQuestion, next_searches
from alpa_explore.search.eager.known_meshes import KnownMeshes, at_inverse_b
from alpa_explore.search.eager.known_within_memory import KnownWithinMemory
from alpa_explore.search.eager.task_runner import Job, TaskRunner, entry_names
from alpa_explore.search.eager.within_memory import COMPOSITION, WithinMemory
from alpa_explore.search.pipeline_query import HeldStage, PipelineQuery
from alpa_explore.search.stage_profile import TIME_LIMIT_REACHED, StageProfile
from alpa_explore.search.stages.candidates import Candidates, CellProblem, Choices
from alpa_explore.search.stages.feasible_stages import feasible_stages
from alpa_explore.search.stages.problem_keys import price_key, problem_key
from alpa_explore.search.stages.stage_problems import StageProblems, unpriced_costs
from alpa_explore.sharding.splits import discover_all
from alpa_explore.store.cache import Store

_BUDGET_SPENT = "Memory is so short that not every stage was searched for choices that fit: there may be a better plan."


@dataclass(frozen=True, slots=True, kw_only=True)
class SolveContext:
    """How problems are solved: the solver, the executor, the cache, and the progress and cancellation of the solves."""

    solver: str
    executor: Executor
    store: Store | None
    progress: ProgressCallback | None = None
    cancel: threading.Event | None = None


class EagerPricing:
    """Candidates of all feasible stages of `layered`, from `begin` on; CancelledError when cancelled (finished tasks
    stay in the cache)."""

    def __init__(
        self,
        layered: LayeredGraph,
        query: PipelineQuery,
        solving: SolveContext,
        layer_flops: tuple[int, ...],
        *,
        bound_first: bool = False,
    ) -> None:
        """`bound_first`: meshes that are not known are bounded before they are composed."""
        self.layered, self.query, self._bound_first = layered, query, bound_first
        self.counts = query.held_counts(layered.num_layers)
        self._problems = StageProblems(layered, query.cluster)
        self._unpriced = unpriced_costs(layered, query, layer_flops)
        self._solver = solving.solver
        self._meshes = [logical_meshes(query.cluster, submesh) for submesh in query.submeshes]
        self._feasible = list(feasible_stages(layered.num_layers, query.submeshes, query.cluster.devices))
        self.tasks: dict[str, StageTask] = {}
        self._wanted: list[CellProblem] = []
        self._keys_of: dict[RangeKey, list[str]] = {}
        self._runner = TaskRunner(
            layered=layered,
            executor=solving.executor,
            store=solving.store,
            progress=solving.progress,
            cancel=solving.cancel,
        )
        self._known = KnownMeshes(solving.store)
        self._frontiers: dict[str, list[Frontier]] = {}
        self.composed: set[str] = set()
        self.deferred: dict[str, str] = {}
        """Problem -> name of the task that would compose its mesh."""
        self._composed_elsewhere: dict[str, Mapping[Range, Frontier]] = {}
        """Name of a task that would compose a mesh -> what its composition at another B found."""
        self._bounded: dict[str, Mapping[Range, Frontier]] = {}
        """Name of a task whose fastest choices were found here, not in the cache -> what was found."""
        self.mesh_tasks: dict[str, tuple[MeshTask, dict[Range, str]]] = {}
        """By a digest, with the problems of the ranges."""
        self._convergence = Convergence(
            self.tasks,
            self._frontiers,
            inverse_b=1.0 / query.num_microbatches,
            composed=self.composed,
            deferred=self.deferred.keys(),
        )
        self._within_memory = WithinMemory(
            self.tasks, self._convergence, self._problems, self._runner, KnownWithinMemory(solving.store)
        )
        self._candidates = Candidates(self._wanted, self._frontiers)
        self._questions: dict[RangeKey, dict[int, list[OpenQuestion]]] = {}
        self.screened = self._screen()
        self._composed_bounds: set[int] = set()
        """Submeshes whose screened stages have the lower bounds of composition."""

    def begin(self) -> None:
        """Candidates of all stages that are not screened."""
        self._price_submeshes(set(range(len(self.query.submeshes))) - {submesh for _, _, submesh in self.screened})

    def known_costs(self) -> StageCosts:
        """The candidates so far, also where `begin` or `price` was cancelled; without bounds, so nothing is proven."""
        for name, (search, frontiers) in self._runner.finished.items():
            task, keys = self.mesh_tasks.get(name, (None, {}))
            if task is None or search not in (Search.COMPOSED.value, Search.BOUNDED_WITH_CHOICES.value):
                continue
            for layers, found in frontiers.items():
                at_b = found if search == Search.COMPOSED.value else at_inverse_b(found, task.inverse_b)
                if at_b is not None and keys[layers] not in self._frontiers:
                    self._frontiers[keys[layers]] = [at_b]
        return replace(self._unpriced, candidates=self._candidates(known_alone=True), complete=False)

    def _screen(self) -> dict[RangeKey, Screened]:
        """The feasible stages on submeshes that are divided badly."""
        lower_bounds = LowerBounds(
            self.layered,
            [kind.device for kind in self.query.cluster.kinds],
            self._meshes,
            other=self.layered,
            known=self._unpriced,
            num_microbatches=self.query.num_microbatches,
        )
        divided = [lower_bounds.divided(submesh) for submesh in range(len(self._meshes))]
        well = tuning.WELL_DIVIDED * max(divided)
        return {
            cell: Screened(
                seconds=min(lower_bounds.seconds(*cell, mesh) for mesh in self._meshes[cell[2]]),
                most_held=math.floor(min(lower_bounds.most_held(*cell), self.query.num_microbatches)),
            )
            for cell in self._feasible
            if divided[cell[2]] < well
        }

    def raise_bounds(self, submeshes: Collection[int]) -> None:
        """Give the screened stages on these submeshes the least seconds of composition, for any memory."""
        self._composed_bounds |= set(submeshes)
        discoveries = discover_all(self.layered.graph)
        tasks: dict[str, MeshTask] = {}
        keys_of: dict[RangeKey, list[tuple[str, Range]]] = {}
        for submesh in submeshes:
            # Of the ranges with equal problems one is composed.
            ranges = {
                cell: self._problems.stage(*cell[:2]).structure_key for cell in self.screened if cell[2] == submesh
            }
            first = {key: cell[:2] for cell, key in reversed(ranges.items())}
            for mesh in self._meshes[submesh]:
                device = self.query.cluster.kinds[mesh.kind].device
                task = MeshTask(
                    ranges=tuple((r, 1) for r in first.values()),
                    least_held=1,
                    mesh=mesh.squeezed(),
                    device=device,
                    inverse_b=0.0,
                    discoveries=discoveries,
                )
                prices = price_key(mesh, replace(device, memory_bytes=0), "auto", 0, discoveries)
                name = _digest((prices, *first.items()))
                tasks[name] = task
                for cell, key in ranges.items():
                    keys_of.setdefault(cell, []).append((name, first[key]))
        found = self._runner.on_meshes(bound_mesh, tasks, Search.BOUNDED.value)
        for cell, keys in keys_of.items():
            known = self.screened[cell]
            least = min(found[name][r].bound_seconds if r in found[name] else 0.0 for name, r in keys)
            self.screened[cell] = known._replace(seconds=max(known.seconds, least))
        self.screened = {cell: bound for cell, bound in self.screened.items() if bound.seconds < math.inf}

    def _price_submeshes(self, submeshes: Collection[int]) -> None:
        """Candidates of all feasible stages on these submeshes."""
        with no_collection():  # ten thousands of permanent objects
            new = self._collect(submeshes)
            tasks = self._tasks_of_meshes(new) if self._solver == "auto" else {}
            self.mesh_tasks |= tasks
            stored = self._runner.stored_on_meshes(tasks, Search.COMPOSED.value)
            unknown = self._defer([name for name in tasks if name not in stored])
        if self._bound_first:
            bounded = self._bound(unknown)
            unknown = [name for name in unknown if name not in bounded]
        self._compose([*stored, *unknown], stored)

    def _collect(self, submeshes: Collection[int]) -> list[str]:
        """The distinct problems of all feasible stages on these submeshes, as tasks; the keys of those that are new."""
        cluster, b = self.query.cluster, self.query.num_microbatches
        discoveries = discover_all(self.layered.graph)
        prices = {
            mesh: price_key(mesh, cluster.kinds[mesh.kind].device, self._solver, b, discoveries)
            for submesh in submeshes
            for mesh in self._meshes[submesh]
        }
        layers, known = self.layered.num_layers, set(self.tasks)
        for first, last, submesh in self._feasible:
            if submesh not in submeshes:
                continue
            # At least its place from the end: with another B the same stage may hold that many.
            held = max(layers - last, self.query.most_held(first, last, layers))
            for mesh in self._meshes[submesh]:
                key = problem_key(self._problems.stage(first, last), prices[mesh])
                self._wanted.append(CellProblem((first, last, submesh), mesh, key))
                self._keys_of.setdefault((first, last, submesh), []).append(key)
                if key not in self.tasks or (key not in known and self.tasks[key].held < held):
                    self.tasks[key] = StageTask(
                        first=first,
                        last=last,
                        mesh=mesh,
                        held=held,
                        least_held=self.counts[0],
                        device=cluster.kinds[mesh.kind].device,
                        solver=self._solver,
                        inverse_b=1.0 / b,
                        search=Search.NEAR_OPTIMAL,
                        discoveries=discoveries,
                    )
        return [key for key in self.tasks if key not in known]

    def costs(self) -> StageCosts:
        """All candidates, and a lower bound for every stage that may have a better choice."""
        convergence = self._convergence
        self._questions = {
            cell: questions
            for cell, keys in self._keys_of.items()
            if (questions := convergence.open_questions(keys, self.counts))
        }
        bounds = {
            cell: {held: min(q.bound_seconds for q in questions) for held, questions in by_held.items()}
            for cell, by_held in self._questions.items()
        }
        with no_collection():
            return replace(self._unpriced, candidates=self._candidates(), bounds=bounds, screened=self.screened)

    def compose_deferred(self) -> None:
        """Compose all meshes that were deferred."""
        if names := list(dict.fromkeys(self.deferred.values())):
            self._compose(names)

    def price_without_memory(self, open_stages: Sequence[HeldStage]) -> bool:
        """As `price`, but without the searches within memory, which take longest; whether there was anything else."""

        def within_memory(cell: RangeKey, held: int) -> bool:
            questions = self._questions.get(cell, {}).get(held, [])
            first = min(questions, key=lambda question: question.bound_seconds, default=None)
            return first is None or first.search in WITHIN_MEMORY

        others = [(cell, held) for cell, held in open_stages if cell in self.screened or not within_memory(cell, held)]
        if others:
            self.price(others)
        return bool(others)

    def price(self, open_stages: Sequence[HeldStage]) -> None:
        """Run the searches that would close the gap of these stages; where a mesh that was deferred has the lowest
        bound, it is composed first."""
        wanted = {cell[2] for cell, _ in open_stages if cell in self.screened}
        if loose := wanted - self._composed_bounds if self._solver == "auto" else set():
            self.raise_bounds(loose)
        if tight := wanted - loose:
            self.screened = {cell: bound for cell, bound in self.screened.items() if cell[2] not in tight}
            self._price_submeshes(tight)
        meshes: dict[str, None] = {}
        asked: list[tuple[int, list[OpenQuestion]]] = []
        for cell, held in open_stages:
            questions = self._questions.get(cell, {}).get(held, [])
            questions = sorted(questions, key=lambda question: question.bound_seconds)
            if questions and questions[0].search is Search.COMPOSED:
                # By bounds without regard to memory the first rarely closes the question: the next one beside it.
                names = [self.deferred[q.key] for q in questions if q.search is Search.COMPOSED]
                meshes |= dict.fromkeys(names[: 2 if names[0] in self._bounded else 1])
            else:
                asked.append((held, questions))
        searches = next_searches(asked, self.tasks)
        if self._within_memory.recall([key for key, _ in searches.get(Search.BOUNDED_WITHIN_MEMORY, ())]):
            return  # they may be closed
        jobs: dict[str, Job] = {}
        for search in [search for search in searches if search in COMPOSITION]:
            keys = searches.pop(search)
            jobs |= self._within_memory.jobs(search, [key for key, _ in keys])
            self._convergence.close(search, keys)
        with no_collection():
            if meshes:
                self._compose(list(meshes), beside=jobs)
            else:
                self._within_memory.record(jobs, self._runner.run_on_meshes(jobs))
        for search, keys in searches.items():
            self._search(search, keys)
            self._convergence.close(search, keys)

    def bounded(self) -> dict[RangeKey, Screened]:
        """The stages with logical meshes that are still deferred, and what bounds their choices there at every B."""
        bounded: dict[RangeKey, Screened] = {}
        for cell, keys in self._keys_of.items():
            for key in keys:
                if key in self.deferred and (bound := self._bound_at_every_b(key)) is not None:
                    bounded[cell] = bounded.get(cell, bound).weakest(bound)
        return bounded

    def _bound_at_every_b(self, key: str) -> Screened | None:
        """What bounds the choices of a deferred problem at B up to a million: the chord from there to the requested B;
        None where no choice is legal or none fits."""
        (frontier,), task = self._frontiers[key], self.tasks[key]
        most = task.held
        if frontier.least_peaks:
            peaks = frontier.least_peaks[: most - task.least_held + 1]
            most = task.least_held - 1 + sum(peak <= task.device.memory_bytes for peak in peaks)
        if not frontier.optima or most < task.least_held:
            return None
        smallest, least = frontier.optima[0]
        least = min(least * (1 - PROVEN) - TIE_SECONDS, frontier.bound_seconds)
        rise = (frontier.bound_seconds - least) / (task.inverse_b - smallest) if task.inverse_b > smallest else 0.0
        return Screened(least - rise * smallest, most, task.inverse_b, frontier.bound_seconds)

    def profile(self, costs: StageCosts) -> StageProfile:
        """The result for the planner."""
        frontiers = [frontier for of_problem in self._frontiers.values() for frontier in of_problem]
        return StageProfile(
            costs=costs,
            choices=Choices(self._candidates.points, self.layered, self._problems.equal_problem),
            problem_of=self._problems.problem,
            solves=sum(f.solves for f in frontiers),
            distinct_solves=len(frontiers),
            cached_solves=self._runner.cached + sum(name not in self._bounded for name in self.deferred.values()),
            variables=sum(of_problem[0].variables for of_problem in self._frontiers.values()),
            constraints=sum(of_problem[0].constraints for of_problem in self._frontiers.values()),
            warnings=(
                *((TIME_LIMIT_REACHED,) if not all(f.optimal for f in frontiers) else ()),
                *((_BUDGET_SPENT,) if self._convergence.budget_spent else ()),
            ),
        )

    def _search(self, search: Search, keys: Iterable[tuple[str, int]]) -> None:
        """Run one kind of task for these (problem, microbatches held) and record the frontiers."""
        tasks = {
            f"{key}|{held}": replace(
                self.tasks[key], search=search, held=held, bound_seconds=self._convergence.device_bound(key)
            )
            for key, held in keys
        }
        for name, frontier in self._runner.solve(tasks).items():
            self._convergence.add(name.split("|")[0], frontier)

    def _tasks_of_meshes(self, keys: Sequence[str]) -> dict[str, tuple[MeshTask, dict[Range, str]]]:
        """One task for each mesh of these problems, by a digest, with the problems of its ranges."""
        by_mesh: dict[LogicalMesh, dict[Range, str]] = {}
        for key in keys:
            task = self.tasks[key]
            by_mesh.setdefault(task.mesh.squeezed(), {})[task.first, task.last] = key
        tasks = {}
        for mesh, of_mesh in by_mesh.items():
            first = self.tasks[next(iter(of_mesh.values()))]
            held = tuple((layers, self.tasks[key].held) for layers, key in of_mesh.items())
            on_mesh = MeshTask(
                ranges=held,
                least_held=first.least_held,
                mesh=mesh,
                device=first.device,
                inverse_b=first.inverse_b,
                discoveries=first.discoveries,
            )
            tasks[_digest((held, first.least_held, *of_mesh.values()))] = on_mesh, of_mesh
        return tasks

    def _defer(self, names: Iterable[str]) -> list[str]:
        """Give the problems of these meshes what is known from another B or memory, where all of a mesh are known; the
        meshes with nothing that is known."""
        unknown: list[str] = []
        proven: set[str] = set()
        for name in names:
            task, keys = self.mesh_tasks[name]
            known = self._known.find(task, self.alike(task), bounded=self._bound_first)
            if known is None:
                unknown.append(name)
                continue
            self._defer_with(name, known.frontiers)
            if known.composed:
                self._composed_elsewhere[name] = known.frontiers
                proven |= {keys[layers] for layers, frontier in known.frontiers.items() if frontier.proven}
        for key in proven:
            del self.deferred[key]
        self.composed |= proven
        self._runner.cached += len(proven)
        self._find_leaner(proven)
        return unknown

    def _defer_with(self, name: str, known: Mapping[Range, Frontier]) -> None:
        keys = self.mesh_tasks[name][1]
        for layers, frontier in known.items():
            self._frontiers[keys[layers]] = [frontier]
            self.deferred[keys[layers]] = name

    def _bound(self, names: Collection[str]) -> set[str]:
        """Find the fastest choices on these meshes, and defer those where all ranges have some: these are returned."""
        todo = {name: self.mesh_tasks[name][0] for name in names}
        run = self._runner.run_on_meshes(
            {name: Job(fastest_on_mesh, task, Search.BOUNDED_WITH_CHOICES.value) for name, task in todo.items()}
        )
        entries = entry_names(run, Search.BOUNDED_WITH_CHOICES.value)
        bounded = set()
        for name, found in run.items():
            task = todo[name]
            frontiers = {r: at_inverse_b(frontier, task.inverse_b) for r, frontier in found.items()}
            known = {r: frontier for r, frontier in frontiers.items() if frontier is not None}
            if len(known) == len(task.ranges):
                self._known.add(task, self.alike(task), entries[name], bounded=True)
                self._defer_with(name, known)
                self._bounded[name] = found
                bounded.add(name)
        return bounded

    def _compose(
        self,
        names: Collection[str],
        stored: Mapping[str, Mapping[Range, Frontier]] | None = None,
        beside: Mapping[str, Job] | None = None,
    ) -> None:
        """Compose all ranges on these meshes, or take what is in the cache, and solve all problems that cannot be
        composed; those that overflow the device get leaner choices. The jobs `beside` find choices within memory for
        problems that are composed already; they run together with the composition."""
        stored, beside = stored or {}, beside or {}
        todo = {name: self.mesh_tasks[name][0] for name in names if name not in stored}
        jobs = {
            name: Job(fastest_at_b, task, Search.COMPOSED.value)
            if name in self._composed_elsewhere
            else Job(compose_mesh, replace(task, bounds=self._bounded.get(name, {})), Search.COMPOSED.value)
            for name, task in todo.items()
        }
        run = self._runner.run_on_meshes({**jobs, **beside}, known=self._composed_elsewhere)
        self._within_memory.record(beside, {name: run.pop(name) for name in beside})
        for name, frontiers in (*stored.items(), *run.items()):
            keys = self.mesh_tasks[name][1]
            # What was found within memory for a problem that was proven before stays.
            before = {key: self._frontiers.pop(key, ()) for key in keys.values()}
            for key in keys.values():
                self.deferred.pop(key, None)
            self._frontiers |= {keys[r]: [frontier, *before[keys[r]][1:]] for r, frontier in frontiers.items()}
            self.composed |= {keys[layers] for layers in frontiers}
        entries = entry_names(run, Search.COMPOSED.value)
        for name, frontiers in run.items():
            if len(frontiers) == len(todo[name].ranges):
                self._known.add(todo[name], self.alike(todo[name]), entries[name], bounded=False)
        solved = self._runner.solve({key: task for key, task in self.tasks.items() if key not in self._frontiers})
        self._frontiers |= {key: [frontier] for key, frontier in solved.items()}
        self._find_leaner({key for name in names for key in self.mesh_tasks[name][1].values()} | solved.keys())

    def _find_leaner(self, new: Collection[str]) -> None:
        """Leaner choices for those of these problems that overflow the device and have no exact frontier yet."""
        # A composed range has the convex part of its frontier already; the exact frontier is computed for small
        # problems.
        inexact = [
            key
            for key in self.tasks
            if key in new
            and (
                not self._frontiers[key][0].proven
                or self._frontiers[key][0].variables <= tuning.EXACT_FRONTIER_VARIABLES
            )
        ]
        self._search(Search.LEANER, [(k, self.tasks[k].held) for k in inexact if self._convergence.overflows(k)])

    def alike(self, task: MeshTask) -> dict[Range, str]:
        """Keys of the problems of a task that are the same at every B and with every memory."""
        return self._problems.alike([layers for layers, _ in task.ranges], task.mesh, task.device, task.discoveries)


def _digest(body: tuple[object, ...]) -> str:
    return sha256(repr(body).encode()).hexdigest()
