"""Prices the stages of a pipeline whose mesh axes have roles, with the cost model of the planner.

Each stage gets the fastest choice of strategies that its roles permit (to the proven optimum); where that does not fit
in memory at its place in the pipeline, the fastest that fits.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict
from itertools import accumulate, pairwise

from alpa_explore.baselines.dims import dim_labels
from alpa_explore.baselines.role_pipelines import RolePipeline
from alpa_explore.baselines.roles import Role, permitted_problem
from alpa_explore.cluster import Cluster, LogicalMesh
from alpa_explore.cost.model import CostModel
from alpa_explore.errors import CancelledError, SolverError
from alpa_explore.intra_op.problem.sharding_problem import ShardingProblem, unrestricted_choices
from alpa_explore.intra_op.solve import solve
from alpa_explore.intra_op.solve_limited import solve_limited
from alpa_explore.intra_op.stage.build_problem import build_stage_problem
from alpa_explore.intra_op.stage.layered_graph import LayeredGraph
from alpa_explore.intra_op.stage.stage_graph import StageGraph, received_bytes, slice_stages
from alpa_explore.intra_op.stage.stage_problem import StageProblem
from alpa_explore.intra_op.stage.stage_totals import StageTotals
from alpa_explore.layering import Layering
from alpa_explore.numerics.arrays import Ints
from alpa_explore.plans.records import PlanOptions
from alpa_explore.pricing.stage_costs import RangeKey, StageCandidate, StageCosts
from alpa_explore.pricing.tuning import FITTING_SECONDS
from alpa_explore.schedules.catalog import INTERLEAVED, layers_in_turns, submeshes_in_turn
from alpa_explore.search.stage_profile import StageProfile
from alpa_explore.search.stages.tied_weights import tied_weights


class StagePricer:
    """Prices stages of one graph on one cluster; equal stages with equal roles are solved once."""

    def __init__(
        self,
        layered: LayeredGraph,
        layering: Layering,
        cluster: Cluster,
        options: PlanOptions,
        cancel: threading.Event | None,
        blocks: Sequence[int] = (),
    ) -> None:
        """`blocks` are those of each part of an interleaved pipeline, in the order of the model, where they are
        given."""
        self.layer_flops = tuple(layer.flops for layer in layering.layers)
        self.layered, self.cluster, self.cancel, self.blocks = layered, cluster, cancel, blocks
        self.num_microbatches = options.num_microbatches
        self.terms = options.pipeline.terms(options.num_microbatches)
        self._labels = dim_labels(layered.graph)
        self._stage_graph: Callable[[int, int], StageGraph] = slice_stages(layered)
        self._choices: dict[str, tuple[int, ...]] = {}
        self._solves = self._variables = self._constraints = 0
        self._models: dict[LogicalMesh, CostModel] = {}
        self._solved: dict[object, tuple[str, StageTotals] | None] = {}
        """Stage structure, mesh and roles (and microbatches held, where memory is short) -> solution."""
        self._sums_once: dict[object, bool] = {}
        """The same -> whether all whole gradients are summed once an iteration."""

    def problem(self, first: int, last: int, mesh: LogicalMesh) -> StageProblem:
        """The stage problem of these layers on a logical mesh."""
        squeezed = mesh.squeezed()
        if squeezed not in self._models:
            # A model of four axes or more holds hundreds of MB, and few pipelines share its mesh.
            self._models = {known: m for known, m in self._models.items() if len(known.shape) < 4}
            self._models[squeezed] = CostModel(self.cluster.device, squeezed)
        return build_stage_problem(self._stage_graph(first, last), self._models[squeezed])

    def costs(self, pipeline: RolePipeline) -> StageCosts:
        """Candidates of the stages of `pipeline`, each at its place. CancelledError where `cancel` is set."""
        candidates: dict[RangeKey, tuple[StageCandidate, ...]] = {}
        depth = len(pipeline.ranges)
        turns = self._in_turns(pipeline.ranges) if depth > 1 and self.terms.turns > 1 else {}
        for place, stage in zip(range(depth, 0, -1), pipeline.ranges, strict=True):
            # What runs in turns holds what its turns do.
            held = [(stage, 0.0 if turns else self.terms.held(place, depth))]
            held += zip(turns.get(stage, ()), self.terms.held_in_turns(place, depth), strict=bool(turns))
            for layers, microbatches in held:
                found = [(mesh, self._solution(*layers, mesh, roles, microbatches)) for mesh, roles in pipeline.meshes]
                made = [
                    StageCandidate(logical_mesh=mesh, solution_key=solution[0], **asdict(solution[1]))
                    for mesh, solution in found
                    if solution is not None
                ]
                candidates[*layers, 0] = tuple(dict.fromkeys((*candidates.get((*layers, 0), ()), *made)))
        received = received_bytes(self.layered)
        return StageCosts(
            num_layers=self.layered.num_layers,
            submeshes=(pipeline.submesh,),
            device_memory_bytes=self.cluster.device.memory_bytes,
            candidates=candidates,
            layer_flops=self.layer_flops,
            received_bytes={(first, last): received[first, last] for first, last, _ in candidates},
            versions=(self.layered.recomputation,),
            tied_weights=tied_weights(self.layered),
            turns=turns if all(candidates.values()) else {},
        )

    def _in_turns(self, ranges: Sequence[tuple[int, int]]) -> dict[tuple[int, int], tuple[tuple[int, int], ...]]:
        """The layers of each stage -> those of what it runs in turn under an interleaved schedule."""
        order = submeshes_in_turn(INTERLEAVED, len(ranges), self.terms.turns)
        counts = self.blocks or layers_in_turns([last - first + 1 for first, last in ranges], order)
        parts = [(first, end - 1) for first, end in pairwise(accumulate(counts, initial=0))]
        return {stage: tuple(parts[place :: len(ranges)]) for place, stage in enumerate(ranges)}

    def profile(self, costs: StageCosts) -> StageProfile:
        """`costs` with the solutions behind them and the statistics of all solves so far."""
        return StageProfile(
            costs=costs,
            choices=self._choices,
            problem_of=self.problem,
            solves=self._solves,
            distinct_solves=len(self._choices),
            cached_solves=0,
            variables=self._variables,
            constraints=self._constraints,
            warnings=(),
        )

    def _solution(
        self, first: int, last: int, mesh: LogicalMesh, roles: tuple[Role, ...], held: float
    ) -> tuple[str, StageTotals] | None:
        """(solution key, totals) of the fastest permitted choice, or of the fastest that fits with `held` microbatches.

        Where none is found that fits, the fastest one; None where no choice is legal.
        """
        key = (self._stage_graph(first, last).structure_key, mesh.squeezed(), roles)
        limited_key = (*key, held)
        if limited_key in self._solved:
            return self._solved[limited_key]
        if key not in self._solved:
            self._solved[key] = self._fastest(first, last, mesh, roles, sums_once=True)
            self._sums_once[key] = self._solved[key] is not None
            if self._solved[key] is None:  # some gradients come out whole, and cannot be added as parts of a sum
                self._solved[key] = self._fastest(first, last, mesh, roles, sums_once=False)
        fastest = self._solved[key]
        memory = self.cluster.device.memory_bytes
        if fastest is None or fastest[1].peak_bytes(held) <= memory:
            return fastest
        problem, permitted, kept = self._permitted(first, last, mesh, roles, sums_once=self._sums_once[key])
        # Kept where nothing that fits is found: the error states by how much it is too large.
        self._solved[limited_key] = fastest
        with suppress(SolverError):  # out of time
            beside = problem.beside_bytes(self._choices[fastest[0]])  # like roles store and gather alike
            limit = problem.memory_limit(held, memory - beside).restricted(kept)
            fitting = solve_limited(permitted, limit, time_limit_seconds=FITTING_SECONDS)
            self._solves += 1
            if fitting.choices:
                self._solved[limited_key] = self._store(problem, unrestricted_choices(kept, fitting.choices))
        return self._solved[limited_key]

    def _fastest(
        self, first: int, last: int, mesh: LogicalMesh, roles: tuple[Role, ...], *, sums_once: bool
    ) -> tuple[str, StageTotals] | None:
        problem, permitted, kept = self._permitted(first, last, mesh, roles, sums_once=sums_once)
        solution = solve(permitted)
        self._solves += 1
        self._variables += permitted.variables
        self._constraints += len(permitted.node_costs) + sum(sum(m.shape) for m in permitted.edge_costs)
        return self._store(problem, unrestricted_choices(kept, solution.choices)) if solution.choices else None

    def _permitted(
        self, first: int, last: int, mesh: LogicalMesh, roles: tuple[Role, ...], *, sums_once: bool
    ) -> tuple[StageProblem, ShardingProblem, tuple[Ints, ...]]:
        """The stage problem, and of it `permitted_problem`."""
        stop_if_cancelled(self.cancel, f"{self._solves} of its stages were solved")
        problem = self.problem(first, last, mesh)
        inverse_b = 1.0 / self.num_microbatches
        return problem, *permitted_problem(problem, roles, self._labels, inverse_b=inverse_b, sums_once=sums_once)

    def _store(self, problem: StageProblem, choices: tuple[int, ...]) -> tuple[str, StageTotals]:
        name = f"baseline-{len(self._choices)}"
        self._choices[name] = choices
        return name, problem.totals(choices)


def stop_if_cancelled(cancel: threading.Event | None, progress: str) -> None:
    """CancelledError, with the progress so far, where `cancel` is set."""
    if cancel is not None and cancel.is_set():
        raise CancelledError("The baseline was cancelled", found=progress, remedy="Start again.")
