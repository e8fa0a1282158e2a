"""Stage costs from candidates first: every feasible (layer range × submesh × logical mesh), equal problems once.

What the books of earlier searches say, at whatever B and memory, is read first (`Library`). Then tasks run in rounds:

0. Submeshes that no logical mesh divides well, as 3 nodes for sizes that are powers of two, are screened: their stages
   get lower bounds from FLOPs. When `resolve` finds that a pipeline may want one, they get those of composition, and
   when it still may, the whole submesh is priced; few are.
1. All layer ranges that are chains of blocks are composed, one task for each mesh of which no book has choices; on
   large clusters their fastest choices are composed alone. Where composition has more to say about a problem than its
   book (`Reading.complete`), the book bounds it, and the mesh is composed when `resolve` finds one of its stages in the
   best pipeline. The result is the same as if all meshes were composed.
2. Every other distinct problem gets near-optimal choices with a lower bound.
3. Problems whose choices overflow the device at some place in the pipeline get leaner ones.
4. `resolve` has the open stages of the best pipeline priced: where memory is short, choices that fit are bounded, then
   composed (both together with the meshes of 1.), then solved for; all other problems are solved to optimality.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from alpa_explore.cluster import LogicalMesh, logical_meshes
from alpa_explore.intra_op.composition.cut_blocks import Range
from alpa_explore.intra_op.stage.layered_graph import LayeredGraph
from alpa_explore.numerics.memory import no_collection
from alpa_explore.pricing.price_book import Reading, Search
from alpa_explore.pricing.stage_costs import RangeKey, Screened, StageCandidate, StageCosts
from alpa_explore.pricing.tasks import Task
from alpa_explore.pricing.tuning import SMALLEST_INVERSE_B
from alpa_explore.search import tuning
from alpa_explore.search.bounds.lower_bounds import LowerBounds
from alpa_explore.search.eager.library import Library, SolveContext
from alpa_explore.search.eager.open_questions import WITHIN_MEMORY, OpenQuestion, next_searches, open_questions
from alpa_explore.search.pipeline_query import HeldStage, PipelineQuery
from alpa_explore.search.stage_profile import TIME_LIMIT_REACHED, StageProfile
from alpa_explore.search.stages.candidates import Candidates, CellProblem, Choices
from alpa_explore.search.stages.feasible_stages import feasible_stages
from alpa_explore.search.stages.problem_keys import price_key, problem_key
from alpa_explore.search.stages.stage_problems import StageProblems, unpriced_costs

_BUDGET_SPENT = "Memory is so short that not every stage was searched for choices that fit: there may be a better plan."


class EagerPricing:
    """Candidates of all feasible stages of `layered`, from `begin` on; CancelledError when cancelled (what was found
    stays in the cache)."""

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
        self._stages = self._feasible_stages()
        """Every feasible cell with its problem on each logical mesh."""
        self._tasks: dict[str, Task] = {}
        """Of every distinct problem, its near-optimal choices."""
        self._problems_on: dict[LogicalMesh, dict[Range, str]] = {}
        """Squeezed mesh -> the distinct problems on it, by a range that has it."""
        self.library = Library(layered, solving)
        self._readings: dict[str, Reading] = {}
        self._candidates = Candidates()
        self._priced: set[int] = set()
        """Submeshes whose stages have candidates."""
        self._questions: dict[RangeKey, Mapping[int, Sequence[OpenQuestion]]] = {}
        self._asked: dict[RangeKey, tuple[bool, list[Reading], Mapping[int, Sequence[OpenQuestion]]]] = {}
        """What was read for each cell, and the questions that this left open."""
        self._solved_within: set[tuple[str, int]] = set()
        """(problem, microbatches held) that solvers were asked for."""
        self.screened = self._screen()
        self._composed_bounds: set[int] = set()
        """Submeshes whose screened stages have the lower bounds of composition."""
        with no_collection():  # ten thousands of permanent objects
            self._collect()
            for mesh, problems in self._problems_on.items():
                self.library.open(problems.values(), query.cluster.kinds[mesh.kind].device.reserved_bytes)

    def _feasible_stages(self) -> dict[RangeKey, list[CellProblem]]:
        cluster = self.query.cluster
        # Kinds of nodes that differ in memory alone have books of their own.
        kinds = [str(kind.device.memory_bytes) if cluster.others else "" for kind in cluster.kinds]
        prices = {
            mesh: price_key(mesh, cluster.kinds[mesh.kind].device, self._solver) + kinds[mesh.kind]
            for meshes in self._meshes
            for mesh in meshes
        }
        return {
            cell: [
                CellProblem(cell, mesh, problem_key(self._problems.stage(*cell[:2]), prices[mesh]))
                for mesh in self._meshes[cell[2]]
            ]
            for cell in feasible_stages(self.layered.num_layers, self.query.submeshes, cluster.devices)
        }

    def _collect(self) -> None:
        """The distinct problems of all feasible stages, as tasks."""
        layers = self.layered.num_layers
        for (first, last, _), stages in self._stages.items():
            # At least its place from the end: with another B the same stage may hold that many.
            held = max(layers - last, self.query.most_held(first, last, layers))
            for _, mesh, key in stages:
                if key not in self._tasks or self._tasks[key].ranges[0][1] < held:
                    self._tasks[key] = Task(
                        search=Search.NEAR_OPTIMAL,
                        ranges=(((first, last), held),),
                        least_held=self.counts[0],
                        mesh=mesh,
                        device=self.query.cluster.kinds[mesh.kind].device,
                        solver=self._solver,
                        inverse_b=1.0 / self.query.num_microbatches,
                    )
        for key, task in self._tasks.items():
            self._problems_on.setdefault(task.mesh.squeezed(), {})[task.ranges[0][0]] = key

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
            for cell in self._stages
            if divided[cell[2]] < well
        }

    def begin(self) -> None:
        """Candidates of all stages that are not screened."""
        self._price_submeshes(set(range(len(self._meshes))) - {submesh for _, _, submesh in self.screened})

    def known_costs(self) -> StageCosts:
        """The candidates so far, also where `begin` or `price` was cancelled; without bounds, so nothing is proven."""
        return replace(self._unpriced, candidates=self._known_candidates(), complete=False)

    def costs(self) -> StageCosts:
        """All candidates, and a lower bound for every stage that may have a better choice."""
        self._questions = {
            cell: questions
            for cell in self._stages
            if cell[2] in self._priced and (questions := self._open_questions(cell))
        }
        bounds = {
            cell: {held: min(q.bound_seconds for q in questions) for held, questions in by_held.items()}
            for cell, by_held in self._questions.items()
        }
        with no_collection():
            candidates = self._known_candidates()
        return replace(self._unpriced, candidates=candidates, bounds=bounds, screened=self.screened)

    def _open_questions(self, cell: RangeKey) -> Mapping[int, Sequence[OpenQuestion]]:
        """Of a cell, asked again when one of its books has grown."""
        solve = len(self._solved_within) <= tuning.MOST_SOLVED_WITHIN_MEMORY
        readings = {stage.key: self._read(stage.key) for stage in self._stages[cell]}
        known = self._asked.get(cell)
        if (
            known is None
            or known[0] != solve
            or any(now is not then for now, then in zip(readings.values(), known[1], strict=True))
        ):
            known = self._asked[cell] = (
                solve,
                list(readings.values()),
                open_questions(readings, self.counts, solve=solve),
            )
        return known[2]

    def _known_candidates(self) -> dict[RangeKey, tuple[StageCandidate, ...]]:
        stages = (stage for cell, of_cell in self._stages.items() if cell[2] in self._priced for stage in of_cell)
        return self._candidates.of(stages, self._read)

    def _read(self, key: str) -> Reading:
        """What the book of a problem says now."""
        book, reading = self.library[key], self._readings.get(key)
        if reading is None or reading.book is not book:
            task = self._tasks[key]
            reading = self._readings[key] = Reading(
                book=book,
                inverse_b=task.inverse_b,
                memory_bytes=task.device.memory_bytes,
                least_held=task.least_held,
                most_held=task.ranges[0][1],
            )
        return reading

    def price_without_memory(self, open_stages: Sequence[HeldStage]) -> bool:
        """As `price`, but without the searches within memory, which take longest; whether there was anything else."""

        def within_memory(cell: RangeKey, held: int) -> bool:
            questions = self._questions.get(cell, {}).get(held, ())
            first = min(questions, key=lambda question: question.bound_seconds, default=None)
            return first is None or first.search in WITHIN_MEMORY

        others = [(cell, held) for cell, held in open_stages if cell in self.screened or not within_memory(cell, held)]
        if others:
            self.price(others)
        return bool(others)

    def price(self, open_stages: Sequence[HeldStage]) -> None:
        """Run the searches that would close the gap of these stages; where a mesh whose composition is not complete has
        the lowest bound, it is composed first."""
        wanted = {cell[2] for cell, _ in open_stages if cell in self.screened}
        if loose := wanted - self._composed_bounds if self._solver == "auto" else set():
            self.raise_bounds(loose)
        if tight := wanted - loose:
            self.screened = {cell: bound for cell, bound in self.screened.items() if cell[2] not in tight}
            self._price_submeshes(tight)
        meshes: dict[LogicalMesh, None] = {}
        asked: list[tuple[int, list[OpenQuestion]]] = []
        for cell, held in open_stages:
            questions = sorted(self._questions.get(cell, {}).get(held, ()), key=lambda question: question.bound_seconds)
            if questions and questions[0].search is Search.COMPOSED:
                # By bounds without regard to memory the first rarely closes the question: the next one beside it.
                open_meshes = [self._tasks[q.key].mesh.squeezed() for q in questions if q.search is Search.COMPOSED]
                meshes |= dict.fromkeys(open_meshes[: 1 if self._has_leaner(open_meshes[0]) else 2])
            else:
                asked.append((held, questions))
        searches = next_searches(asked)
        within = [
            task
            for search in (Search.BOUNDED_WITHIN_MEMORY, Search.COMPOSED_WITHIN_MEMORY)
            for task in self._within_memory(search, searches.pop(search, []))
        ]
        with no_collection():
            self._compose(meshes, beside=within)
        for search, keys in searches.items():
            if search is Search.SOLVED_WITHIN_MEMORY:
                self._solved_within |= set(keys)
                self._search(search, keys)
            else:
                self._search(search, {key: self._tasks[key].ranges[0][1] for key, _ in keys}.items())

    def finish_composition(self) -> None:
        """Finish the composition of all meshes."""
        partial = (key for key in self._tasks_of(self._priced) if not self._read(key).complete)
        self._compose(dict.fromkeys(self._tasks[key].mesh.squeezed() for key in partial))

    def raise_bounds(self, submeshes: Collection[int]) -> None:
        """Give the screened stages on these submeshes the least seconds of composition, for any memory."""
        self._composed_bounds |= set(submeshes)
        todo: dict[LogicalMesh, dict[Range, str]] = {}
        for key in self._tasks_of(submeshes):
            if not self.library[key].bounds:
                task = self._tasks[key]
                todo.setdefault(task.mesh.squeezed(), {})[task.ranges[0][0]] = key
        self.library.run([(self._on_mesh(Search.BOUNDED, problems), problems) for problems in todo.values()])
        for cell, known in list(self.screened.items()):
            if cell[2] in submeshes:
                least = min(self.library[stage.key].bound(0.0) for stage in self._stages[cell])
                self.screened[cell] = known._replace(seconds=max(known.seconds, least))
        self.screened = {cell: bound for cell, bound in self.screened.items() if bound.seconds < math.inf}

    def bounded(self) -> dict[RangeKey, Screened]:
        """The stages with logical meshes whose composition is not complete, and what bounds their choices there at
        every B."""
        bounded: dict[RangeKey, Screened] = {}
        for cell, stages in self._stages.items():
            for stage in stages if cell[2] in self._priced else ():
                reading = self._read(stage.key)
                if not reading.complete and (bound := reading.at_every_b()) is not None:
                    bounded[cell] = bounded.get(cell, bound).weakest(bound)
        return bounded

    def profile(self, costs: StageCosts) -> StageProfile:
        """The result for the planner."""
        books = self.library.books()
        spent = len(self._solved_within) > tuning.MOST_SOLVED_WITHIN_MEMORY
        return StageProfile(
            costs=costs,
            choices=Choices(self._candidates.points, self.layered, self._problems.equal_problem),
            problem_of=self._problems.problem,
            solves=sum(book.solves for book in books),
            distinct_solves=len(books),
            cached_solves=self.library.cached,
            variables=sum(book.variables for book in books),
            constraints=sum(book.constraints for book in books),
            warnings=(
                *((TIME_LIMIT_REACHED,) if not all(book.optimal for book in books) else ()),
                *((_BUDGET_SPENT,) if spent else ()),
            ),
        )

    def _tasks_of(self, submeshes: Collection[int]) -> list[str]:
        """The distinct problems of the stages on these submeshes."""
        stages = (stage for cell, of_cell in self._stages.items() if cell[2] in submeshes for stage in of_cell)
        return list(dict.fromkeys(stage.key for stage in stages))

    def _price_submeshes(self, submeshes: Collection[int]) -> None:
        """Candidates of all feasible stages on these submeshes."""
        self._priced |= set(submeshes)
        keys = self._tasks_of(submeshes)
        if self._solver == "auto":
            enough = (Search.COMPOSED, Search.BOUNDED_WITH_CHOICES) if self._bound_first else (Search.COMPOSED,)
            unknown = [key for key in keys if not any(self.library[key].has_tried(search) for search in enough)]
            meshes = dict.fromkeys(self._tasks[key].mesh.squeezed() for key in unknown)
            if self._bound_first:
                self._sweep(Search.BOUNDED_WITH_CHOICES, meshes)
                partly = [key for key in unknown if not self.library[key].composed]
                meshes = dict.fromkeys(self._tasks[key].mesh.squeezed() for key in partly)
            self._sweep(Search.COMPOSED, meshes)
        unknown = [k for k in keys if not (self.library[k].composed or self.library[k].has_tried(Search.NEAR_OPTIMAL))]
        self._search(Search.NEAR_OPTIMAL, [(k, self._tasks[k].ranges[0][1]) for k in unknown])
        self._find_leaner(keys)

    def _compose(
        self, meshes: Collection[LogicalMesh], beside: Sequence[tuple[Task, Mapping[Range, str]]] = ()
    ) -> None:
        """Finish the composition of these meshes; problems that overflow the device get leaner choices. The tasks
        `beside` find choices within memory for problems that are composed already; they run together with these."""
        leaner = {mesh: self._has_leaner(mesh) for mesh in meshes}
        self.library.run(
            [
                (self._on_mesh(Search.FASTEST_COMPOSED if leaner[mesh] else Search.COMPOSED, problems), problems)
                for mesh in meshes
                for problems in [self._composable(mesh)]
            ]
            + list(beside)
        )
        self._find_leaner([key for mesh in meshes for key in self._problems_on[mesh].values()])

    def _sweep(self, search: Search, meshes: Iterable[LogicalMesh]) -> None:
        """Run one search for all problems on each of these meshes."""
        of_mesh = [self._composable(mesh) for mesh in meshes]
        self.library.run([(self._on_mesh(search, problems), problems) for problems in of_mesh if problems])

    def _on_mesh(self, search: Search, problems: Mapping[Range, str]) -> Task:
        """One task for these problems, which are on one mesh."""
        tasks = [self._tasks[key] for key in problems.values()]
        books = {layers: self.library[key] for layers, key in problems.items()}
        bounded = all({SMALLEST_INVERSE_B, tasks[0].inverse_b} <= dict(book.bounds).keys() for book in books.values())
        return replace(
            tasks[0],
            search=search,
            mesh=tasks[0].mesh.squeezed(),
            ranges=tuple((layers, task.ranges[0][1]) for layers, task in zip(problems, tasks, strict=True)),
            known=books if search is Search.COMPOSED and bounded else {},
        )

    def _composable(self, mesh: LogicalMesh) -> dict[Range, str]:
        """The problems on a squeezed mesh of which it is not known that they cannot be composed."""
        problems = self._problems_on[mesh].items()
        books = {key: self.library[key] for _, key in problems}
        return {r: key for r, key in problems if books[key].composed or not books[key].has_tried_composition}

    def _has_leaner(self, mesh: LogicalMesh) -> bool:
        """Whether composition has nothing more to say about a mesh but the fastest choices at this B."""
        return all(self._read(key).has_leaner for key in self._composable(mesh).values())

    def _within_memory(self, search: Search, keys: Iterable[tuple[str, int]]) -> list[tuple[Task, Mapping[Range, str]]]:
        """A task for each of these problems, for all numbers of microbatches held at which memory is short."""
        counts: dict[str, set[int]] = {}
        for key, held in keys:
            counts.setdefault(key, set()).add(held)
        tasks: list[tuple[Task, Mapping[Range, str]]] = []
        for key, asked in counts.items():
            task, reading = self._tasks[key], self._read(key)
            asked.update(n for n in range(task.least_held, reading.most_held + 1) if reading.short_of_memory(n))
            tasks.append((replace(task, search=search, counts=tuple(sorted(asked))), {task.ranges[0][0]: key}))
        return tasks

    def _search(self, search: Search, keys: Iterable[tuple[str, int]]) -> None:
        """Run one search for these (problem, microbatches held), one task each."""
        tasks: list[tuple[Task, Mapping[Range, str]]] = []
        for key, held in keys:
            task, bound = self._tasks[key], self._read(key).device_bound
            layers, _ = task.ranges[0]
            tasks.append((replace(task, search=search, ranges=((layers, held),), bound_seconds=bound), {layers: key}))
        self.library.run(tasks)

    def _find_leaner(self, keys: Iterable[str]) -> None:
        """Leaner choices for those of these problems that overflow the device and have no exact frontier yet."""
        todo = []
        for key in keys:
            reading = self._read(key)
            # A composed range has the convex part of its frontier already; the exact frontier is computed for small
            # problems.
            inexact = not reading.proven or reading.book.variables <= tuning.EXACT_FRONTIER_VARIABLES
            if reading.complete and inexact and reading.overflows(held := reading.most_held):
                where = {"inverse_b": reading.inverse_b, "memory_bytes": reading.memory_bytes, "held": held}
                if not reading.book.has_tried(Search.LEANER, **where):
                    todo.append((key, held))
        self._search(Search.LEANER, todo)
