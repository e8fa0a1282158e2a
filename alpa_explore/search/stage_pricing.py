"""The stage costs of a search: which problems get choices first, and what is searched for where a stage stays open.

Every feasible (layer range × submesh × logical mesh), in every version of the layering, has a problem with a price
book (`Library`); equal problems have one. `first` says which choices all of them get at once: those of COMPOSED, for
other B and memories too; those of FASTEST_COMPOSED, for this B and the largest; or none. The problems of submeshes that
no logical mesh divides well, as 3 nodes for sizes that are powers of two, wait in any case. A problem that waits has
the lower bound that follows from its FLOPs and bytes (`search.bounds`); it gets its fastest choices when a pipeline may
want it.

Problems that cannot be composed get lower bounds from short runs of layers (`intra_op.range_bounds`); each is solved by
itself when a pipeline may want it. Where that is little work, and by other solvers than "auto", all of them are solved
at once. `resolve` has the open stages of the best pipeline priced: where composition has more to say about a problem
than its book (`Reading.unfinished`), that is done, leaner choices for its whole mesh; where memory is short, choices
that fit are bounded, then solved for, large ones as long as the best pipeline is not proven to within TOLERANCE; all
others are solved to optimality. The result is the same as if everything had been solved at once, but where problems are
left unproven: then the warnings of the profile say how far the best pipeline may be from its lower bound.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache

from alpa_explore.cluster import LogicalMesh, logical_meshes
from alpa_explore.inter_op.pipeline_dp import MOST_NEAR
from alpa_explore.intra_op.composition.cut_blocks import Range
from alpa_explore.intra_op.stage.layered_graph import LayeredGraph
from alpa_explore.intra_op.stage.stage_problem import StageProblem
from alpa_explore.intra_op.tuning import EASY_ILP_VARIABLES
from alpa_explore.pricing.price_book import Search
from alpa_explore.pricing.stage_costs import RangeKey, Screened, StageCandidate, StageCosts, undominated
from alpa_explore.pricing.tasks import Task
from alpa_explore.pricing.tuning import SMALLEST_INVERSE_B, TOLERANCE
from alpa_explore.search import tuning
from alpa_explore.search.bounds.lower_bounds import LowerBounds
from alpa_explore.search.library import Library, OnMesh, SolveContext
from alpa_explore.search.open_questions import WITHIN_MEMORY, Asked, OpenQuestion, next_searches, open_questions
from alpa_explore.search.pipeline_query import HeldStage, PipelineQuery
from alpa_explore.search.stage_profile import StageProfile
from alpa_explore.search.stages.candidates import Candidates, CellProblem, Choices
from alpa_explore.search.stages.stage_problems import (
    StageProblems,
    feasible_stages,
    price_key,
    problem_key,
    unpriced_costs,
)

Questions = Mapping[int, Sequence[OpenQuestion]]
"""Microbatches held -> the questions that are open then."""


class NotComposableError(Exception):
    """A problem that is priced on demand cannot be composed."""


class StagePricing:
    """The stage costs of the versions of a layering, from `begin` on. CancelledError when cancelled: what was found
    stays in the cache."""

    def __init__(
        self,
        versions: Sequence[LayeredGraph],
        query: PipelineQuery,
        solving: SolveContext,
        *,
        layer_flops: tuple[int, ...],
        first: Search | None,
        whole_meshes: bool = False,
    ) -> None:
        """`first` as above. Where it is None every problem waits: then composition has to do, for this B alone, without
        leaner choices and without a solver for choices that fit. With `whole_meshes` it bounds all problems on a mesh
        when a pipeline wants one of them."""
        self.query, self._first, self._solver, self._whole_meshes = query, first, solving.solver, whole_meshes
        self._on_demand = first is None
        b = 1.0 / query.num_microbatches
        self._inverse_bs = (b,) if self._on_demand else tuple(sorted({SMALLEST_INVERSE_B, b}))
        """Where the first of the fastest choices are composed."""
        self.num_layers = versions[0].num_layers
        self.counts = query.held_counts(self.num_layers)
        self.lower_bounds = [
            LowerBounds(version, [kind.device for kind in query.cluster.kinds]) for version in versions
        ]
        """Of each version."""
        self._problems = [StageProblems(layered, query.cluster) for layered in versions]
        self._unpriced = replace(unpriced_costs(versions, query, layer_flops), complete=not self._on_demand)
        self._stages: dict[RangeKey, list[CellProblem]] = {}
        """Every feasible cell with its problems: of each version, on each logical mesh."""
        self._at_once: dict[str, None] = {}
        """The problems that get choices in `begin`."""
        tasks, unsampled = self._collect()
        self.library = Library(versions, solving, tasks, unsampled, leaner=not self._on_demand)
        self._seconds_alone, self._operators_solved = 0.0, 0
        """Spent on problems that a pipeline wants and that cannot be composed; operators of all that cannot."""
        self._candidates = Candidates()
        self._known: dict[RangeKey, tuple[StageCandidate, ...]] = {}
        """The candidates of every cell that has some."""
        self._questions: dict[RangeKey, Questions] = {}
        """Those of every cell that has some."""
        self._bounds: dict[bool, dict[RangeKey, dict[int, float]]] = {False: {}, True: {}}
        """Of the open questions of every cell; for True those for which no search is left, too."""
        self._solvers_left: bool | None = None
        """Whether solvers could be asked for choices that fit when the books were read last; None before that."""
        self._asked_solvers: set[Asked] = set()

    def _collect(self) -> tuple[dict[str, Task], dict[str, Screened]]:
        """The distinct problems of all feasible stages, as tasks for near-optimal choices, and what bounds their
        choices."""
        query, cluster, layers = self.query, self.query.cluster, self.num_layers
        submeshes = query.submeshes
        meshes = [logical_meshes(cluster, submesh) for submesh in submeshes]
        # Kinds of nodes that differ in memory alone have books of their own.
        kinds = [str(kind.device.memory_bytes) if cluster.others else "" for kind in cluster.kinds]
        prices = {
            mesh: price_key(mesh, cluster.kinds[mesh.kind].device, self._solver) + kinds[mesh.kind]
            for of_submesh in meshes
            for mesh in of_submesh
        }
        tasks, unsampled = dict[str, Task](), dict[str, Screened]()
        cells = list(feasible_stages(layers, submeshes, cluster.devices))
        # At least its place from the end: with another B the same stage may hold that many.
        most_held = {(k, i): max(layers - i, query.most_held(k, i, layers)) for k, i in {cell[:2] for cell in cells}}
        most_of_all = max(most_held.values(), default=0)  # equal problems may stand at other places
        round_held = math.ceil if query.holds_parts(layers) else math.floor
        for version, (problems, bounds) in enumerate(zip(self._problems, self.lower_bounds, strict=True)):
            divided = [0.0 if self._on_demand else bounds.divided(of_submesh) for of_submesh in meshes]
            for cell in cells:
                first, last, submesh = cell
                waits = self._on_demand or divided[submesh] < tuning.WELL_DIVIDED * max(divided)
                held = most_held[first, last]
                most = bounds.most_held(first, last, submeshes[submesh])
                most = round_held(min(max(most, 0.0), most_of_all))
                for mesh in meshes[submesh]:
                    key = problem_key(problems.stage(first, last), prices[mesh])
                    self._stages.setdefault(cell, []).append(CellProblem(cell, mesh, version, key))
                    if key not in unsampled:
                        unsampled[key] = Screened(bounds.seconds(first, last, mesh) if waits else 0.0, most)
                    if not waits:
                        self._at_once[key] = None
                    if key not in tasks or tasks[key].ranges[0][1] < held:
                        tasks[key] = Task(
                            search=Search.NEAR_OPTIMAL,
                            ranges=(((first, last), held),),
                            least_held=self.counts[0],
                            mesh=mesh,
                            device=cluster.kinds[mesh.kind].device,
                            version=version,
                            solver=self._solver,
                            inverse_b=1.0 / query.num_microbatches,
                        )
        return tasks, unsampled

    def begin(self) -> None:
        """Choices for all problems that do not wait."""
        if self._first is not None:
            self._sample(self._at_once, self._first)

    def known_costs(self) -> StageCosts:
        """The candidates so far, also where `begin` or `price` was cancelled; without bounds, so nothing is proven."""
        self._read()
        return replace(self._unpriced, candidates=self._candidates_by_cell(), complete=False)

    def costs(self, *, given_up: bool = False) -> StageCosts:
        """All candidates, and a lower bound for every stage that may have a better choice that a search may find; where
        they are `given_up`, also for those with a choice that none will find."""
        self._read()
        bounds = {cell: of_cell for cell, of_cell in self._bounds[given_up].items() if of_cell}
        return replace(self._unpriced, candidates=self._candidates_by_cell(), bounds=bounds)

    def over_bytes(self) -> dict[RangeKey, dict[int, float]]:
        """Of every cell, for each number of microbatches held: by how much more than it has a device needs at least."""
        parts, over = self.query.holds_parts(self.num_layers), dict[RangeKey, dict[int, float]]()
        for (first, last, submesh), stages in self._stages.items():
            on, books = self.query.submeshes[submesh], {stage.key: self.library[stage.key] for stage in stages}
            over[first, last, submesh] = {
                held: min(
                    max(
                        self.lower_bounds[stage.version].over_bytes(first, last, on, held - parts),
                        books[stage.key].least_peak(held - parts) - self._unpriced.memory_of(on),
                    )
                    for stage in stages
                )
                for held in self.counts
            }
        return over

    def gap(self) -> float:
        """The share by which the best pipeline of the candidates may exceed the best of all, as far as is proven; inf
        where none of them fits, though one may."""
        costs = self.costs(given_up=True)
        return self.query.gap(costs) if costs.bounds else 0.0

    def _read(self) -> None:
        """Read the books that have grown, for the candidates and the open questions of their cells."""
        solved = sum(search is Search.SOLVED_WITHIN_MEMORY for search, *_ in self._asked_solvers)
        solve = not self._on_demand and solved < tuning.MOST_SOLVED_WITHIN_MEMORY
        news, same, self._solvers_left = self.library.news(), solve == self._solvers_left, solve
        read, is_sampled = self.library.read, self.library.is_sampled
        for cell, stages in self._stages.items() if news or not same else ():
            if same and all(stage.key not in news for stage in stages):
                continue
            readings = {stage.key: read(stage.key) for stage in stages}
            questions = open_questions(readings, self.counts, solve=solve, asked=self._asked_solvers)
            self._questions[cell] = questions
            self._bounds[True][cell] = {held: min(q.bound_seconds for q in of) for held, of in questions.items()}
            self._bounds[False][cell] = {
                held: min(asked)
                for held, of in questions.items()
                if (asked := [q.bound_seconds for q in of if q.search is not None])
            }
            if sampled := [stage for stage in stages if is_sampled(stage.key)]:
                self._known |= self._candidates.of(sampled, read)

    def _candidates_by_cell(self) -> dict[RangeKey, tuple[StageCandidate, ...]]:
        return {cell: self._known[cell] for cell in self._stages if cell in self._known}

    def price(
        self,
        open_stages: Sequence[HeldStage],
        *,
        gap: Callable[[], float] = lambda: math.inf,
        within_memory: bool = True,
    ) -> bool:
        """Run the searches that would close the gap of these stages; of each those for its lowest bound. Without
        `within_memory` no choices are searched for that fit, which takes longest. By `gap` the best pipeline that is
        known may be slower than the best one: where it is small, no solver is asked about a large problem, and where
        much time was spent, too, no problem is solved by itself any more. Whether there was anything to do."""
        self.library.stop_if_cancelled()
        gap = cache(gap)
        enough, asked = cache(lambda: self._is_enough(gap())), list[tuple[int, list[OpenQuestion]]]()
        for cell, held in open_stages:
            questions = [q for q in self._questions.get(cell, {}).get(held, ()) if q.search is not None]
            questions.sort(key=lambda question: question.bound_seconds)
            if any(map(self._takes_a_solver_long, questions)) and gap() <= TOLERANCE:
                questions = [question for question in questions if not self._takes_a_solver_long(question)]
            if not questions or (not within_memory and questions[0].search in WITHIN_MEMORY):
                continue
            if not self._is_alone(questions[0].key) or not enough():
                asked.append((held, questions))
        self._run(next_searches(asked, 2 if self._whole_meshes else 1))  # a second mesh beside the first
        return bool(asked)

    def price_turns(self, costs: StageCosts, search: Search) -> None:
        """Choices for the stages that the submeshes of the best pipelines, and of those near them, run in turn: no
        pipeline wants them as stages of its own, and without them T is not known."""
        cells = dict.fromkeys(
            cell
            for asked in self.query.each(costs.num_layers)
            if asked.options.terms(1).turns > 1 and (best := asked.best(costs)).feasible
            for stages in (best.stages, *best.near[:MOST_NEAR])
            for cell in asked.in_turns(stages)
        )
        keys = {stage.key: None for cell in cells for stage in self._stages.get(cell, ())}
        self._sample([key for key in keys if not self.library.is_sampled(key)], search)

    def finish_composition(self) -> None:
        """Finish the composition of all problems that have choices."""
        searches: dict[Search, list[tuple[str, int]]] = {}
        for key in filter(self.library.is_sampled, self.library.tasks):
            if (search := self.library.read(key).unfinished) is not None:
                searches.setdefault(search, []).append((key, 0))
        self._run(searches)

    def _run(self, searches: Mapping[Search, Sequence[tuple[str, int]]]) -> None:
        """Run searches for these (problem, microbatches held)."""
        self._sample([key for key, _ in searches.get(Search.FASTEST_COMPOSED, ())], Search.FASTEST_COMPOSED)
        meshes = dict.fromkeys(self.library.tasks[key].on for key, _ in searches.get(Search.COMPOSED, ()))
        tasks = [self._on_mesh(Search.COMPOSED, self._without_leaner(on)) for on in meshes]
        tasks += self._bounded_within_memory(searches.get(Search.BOUNDED_WITHIN_MEMORY, ()))
        self.library.run(tasks)
        for search in (Search.FASTEST, Search.SOLVED_WITHIN_MEMORY):
            self._solve(search, searches.get(search, ()))

    def profile(self, costs: StageCosts, warnings: Sequence[str] = ()) -> StageProfile:
        """The result for the planner."""
        books = self.library.books()

        def problem_of(first: int, last: int, mesh: LogicalMesh, version: int = 0) -> StageProblem:
            return self._problems[version].problem(first, last, mesh)

        return StageProfile(
            costs=costs,
            choices=Choices(self._candidates.points, self._problems),
            problem_of=problem_of,
            solves=sum(book.solves for book in books),
            distinct_solves=len(books),
            cached_solves=self.library.cached,
            variables=sum(book.variables for book in books),
            constraints=sum(book.constraints for book in books),
            warnings=tuple(warnings),
        )

    def screened(self) -> dict[RangeKey, tuple[Screened, ...]]:
        """What bounds, at every B, the choices of the problems that were not searched to the end."""
        screened = {}
        for cell, stages in self._stages.items():
            readings = (self.library.read(stage.key) for stage in stages)
            partial = [bound for r in readings if r.unfinished and (bound := r.at_every_b()) is not None]
            if partial:
                screened[cell] = undominated(partial)
        return screened

    def _is_alone(self, key: str) -> bool:
        """Whether a problem can be solved by itself alone, and has bounds until a pipeline wants it."""
        return self.library[key].has_tried(Search.BOUNDED_IN_RUNS)

    def _takes_a_solver_long(self, question: OpenQuestion) -> bool:
        """Whether a solver is to be asked about choices of a large problem that fit."""
        large = self.library[question.key].variables > EASY_ILP_VARIABLES
        return large and question.search is Search.SOLVED_WITHIN_MEMORY

    def _is_enough(self, gap: float) -> bool:
        """Whether a pipeline is known, and none is much faster or too much time was spent."""
        enough = tuning.SECONDS_WITHIN_TOLERANCE if gap <= TOLERANCE else tuning.SECONDS_ALONE
        return gap < math.inf and self._seconds_alone >= enough

    def _solve(self, search: Search, asked: Sequence[tuple[str, int]]) -> None:
        """Ask a solver about these (problem, microbatches held), once in this search; the time that problems take that
        cannot be composed is counted."""
        begin, keys = time.monotonic(), [key for key, _ in asked]
        self._asked_solvers |= {(search, key, held) for key, held in asked}
        self.library.sampled(keys)
        self._search(search, asked)
        if any(map(self._is_alone, keys)):
            self._seconds_alone += time.monotonic() - begin

    def _sample(self, keys: Collection[str], search: Search) -> None:
        """Fastest choices for these problems, by this search; where that is cancelled, those that are found by then
        count."""
        try:
            keys = self._fastest_choices(keys, search)
        finally:
            self.library.sampled(keys)

    def _fastest_choices(self, keys: Collection[str], search: Search) -> Collection[str]:
        """The problems that get choices. Those that cannot be composed get better bounds instead, where composition is
        the solver and they are many or large."""
        library = self.library
        if self._solver == "auto":
            begun = [key for key in keys if not library.is_sampled(key) and self._has_begun(key, search)]
            new = dict.fromkeys(key for key in keys if key not in set(begun))
            if self._whole_meshes and search is Search.FASTEST_COMPOSED:
                meshes = dict.fromkeys(library.tasks[key].on for key in new)
                new |= dict.fromkeys(key for on in meshes for key in library.problems_on[on].values())
            self._sweep(search, new)
        unknown = [key for key in keys if not library[key].composed]
        if self._on_demand and unknown:
            raise NotComposableError
        ranges = [(library.tasks[key].version, *library.tasks[key].ranges[0][0]) for key in unknown]
        self._operators_solved += sum(
            len(self._problems[version].stage(*layers).operators) for version, *layers in ranges
        )
        if self._solver != "auto" or self._operators_solved <= tuning.OPERATORS_SOLVED_AT_ONCE:
            near = Search.NEAR_OPTIMAL
            memory = {key: library.tasks[key].device.memory_bytes for key in unknown}
            unknown = [key for key in unknown if not library[key].has_tried(near, memory_bytes=memory[key])]
            self._search(near, [(key, 0) for key in unknown])
            return keys
        here = 1.0 / self.query.num_microbatches
        runs = Search.BOUNDED_IN_RUNS
        self._sweep(runs, [key for key in unknown if not library[key].has_tried(runs, inverse_b=here)])
        return [key for key in keys if key not in set(unknown)]

    def _has_begun(self, key: str, search: Search) -> bool:
        """Whether the book of a problem says, without this search, what a pipeline may want."""
        book, fastest = self.library[key], Search.FASTEST_COMPOSED
        return book.has_tried(Search.COMPOSED) or (
            search is fastest and book.has_tried(fastest, inverse_b=self._inverse_bs[0])
        )

    def _sweep(self, search: Search, keys: Collection[str]) -> None:
        """Run one search for these problems, those on one mesh together."""
        by_mesh: dict[OnMesh, dict[Range, str]] = {}
        for key in keys:
            task = self.library.tasks[key]
            by_mesh.setdefault(task.on, {})[task.ranges[0][0]] = key
        self.library.run([self._on_mesh(search, problems) for problems in by_mesh.values()])

    def _on_mesh(self, search: Search, problems: Mapping[Range, str]) -> Task:
        """One task for these problems, which are on one mesh."""
        tasks = [self.library.tasks[key] for key in problems.values()]
        books = {layers: self.library[key] for layers, key in problems.items()}
        known = set.intersection(*(set(dict(book.bounds)) for book in books.values()))
        ends, fastest = {SMALLEST_INVERSE_B, tasks[0].inverse_b}, search is Search.FASTEST_COMPOSED
        return replace(
            tasks[0],
            search=search,
            mesh=tasks[0].mesh.squeezed(),
            ranges=tuple((layers, task.ranges[0][1]) for layers, task in zip(problems, tasks, strict=True)),
            inverse_bs=tuple(b for b in self._inverse_bs if b not in known) if fastest else (),
            known=books if search is Search.COMPOSED and ends <= known else {},
        )

    def _without_leaner(self, on: OnMesh) -> dict[Range, str]:
        """The problems on a mesh with choices, none of which were composed at prices of memory."""
        problems = self.library.problems_on[on].items()
        sampled = {r: key for r, key in problems if self.library.is_sampled(key) and self.library[key].composed}
        return {r: key for r, key in sampled.items() if not self.library.read(key).has_leaner}

    def _bounded_within_memory(self, keys: Iterable[tuple[str, int]]) -> list[Task]:
        """A task for each of these problems, for all numbers of microbatches held at which memory is short."""
        counts: dict[str, set[int]] = {}
        for key, held in keys:
            counts.setdefault(key, set()).add(held)
        tasks = []
        for key, asked in counts.items():
            task, reading = self.library.tasks[key], self.library.read(key)
            asked.update(n for n in range(task.least_held, reading.most_held + 1) if reading.short_of_memory(n))
            tasks.append(replace(task, search=Search.BOUNDED_WITHIN_MEMORY, counts=tuple(sorted(asked))))
        return tasks

    def _search(self, search: Search, asked: Iterable[tuple[str, int]]) -> None:
        """Run one search for these (problem, microbatches held, 0 for the most), one task each."""
        tasks = []
        for key, held in asked:
            task, bound = self.library.tasks[key], self.library.read(key).device_bound
            ((layers, most),) = task.ranges
            tasks.append(replace(task, search=search, ranges=((layers, held or most),), bound_seconds=bound))
        self.library.run(tasks)
