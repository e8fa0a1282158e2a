"""A baseline as a plan: its stages priced by the planner's cost model, with the strategies that its roles leave.

Each stage takes the fastest choice that is left (exactly), or the fastest that fits in memory at its place in the
pipeline. The iteration is that of Eq. 2, as for the planner's own plans, so figures, files and `replan` work alike.
A baseline that leaves all strategies is the planner itself under constraints: the same costs, so it is no faster.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from typing import Any

from alpa_explore import units
from alpa_explore.baselines.kinds import WITH_ROLES, Degrees, Way, check_kind, pipelines, ways
from alpa_explore.baselines.roles import Role, strategies_left
from alpa_explore.cluster import Cluster, LogicalMesh
from alpa_explore.cost.model import CostModel
from alpa_explore.errors import CancelledError, InfeasiblePlanError, OptionError, SolverError
from alpa_explore.graph import TrainingGraph
from alpa_explore.inter_op.options import PipelineOptions
from alpa_explore.inter_op.pipeline_dp import pipeline_dp
from alpa_explore.intra_op.problem.sharding_problem import ShardingProblem
from alpa_explore.intra_op.regrets import pinned
from alpa_explore.intra_op.solve import solve
from alpa_explore.intra_op.solve_limited import solve_limited
from alpa_explore.intra_op.stage.layered_graph import LayeredGraph, assign_layers
from alpa_explore.intra_op.stage.stage_graph import StageGraph, received_bytes, slice_stages
from alpa_explore.intra_op.stage.stage_problem import StageProblem, StageTotals, build_stage_problem
from alpa_explore.layering import Layering, cluster_operators
from alpa_explore.planner import plan as planner
from alpa_explore.plans.assemble import assemble
from alpa_explore.plans.plan import Plan, PlanOptions
from alpa_explore.pricing.stage_costs import RangeKey, StageCandidate, StageCosts
from alpa_explore.pricing.tuning import FITTING_SECONDS, TIE_SECONDS, TOLERANCE
from alpa_explore.search.profile_stages import StageProfile
from alpa_explore.search.versions import tied_weights
from alpa_explore.tracing.cancelling import cancelled_by


def baseline(
    model: TrainingGraph | str,
    cluster: Cluster | str,
    kind: str,
    *,
    num_microbatches: int,
    tp: int | None = None,
    dp: int | None = None,
    pp: int | None = None,
    num_layers: int | None = None,
    delta: float = 0.5,
    rematerialization: bool | None = None,
    precision: str | None = None,
    cancel: threading.Event | None = None,
) -> Plan:
    """The baseline `kind` (see `kinds`) for a captured graph or a catalogue model, cut at the layers of `ax.plan`.

    `tp`, `dp`, `pp` are the degrees of megatron (`pp` also of gpipe-equal-layers); those not given are tried, and the
    fastest that fits is returned. InfeasiblePlanError where none fits in memory, OptionError for degrees that do not
    divide; else as `ax.plan`.
    """
    cluster = cluster if isinstance(cluster, Cluster) else Cluster.parse(cluster)
    degrees = Degrees(tp=tp, dp=dp, pp=pp)
    check_kind(kind, degrees)
    started = time.perf_counter()
    with cancelled_by(cancel):
        graph = planner.resolve(model, num_microbatches, rematerialization=rematerialization, precision=precision)
    layering = (
        cluster_operators(graph, num_layers, delta=delta)
        if num_layers is not None
        else planner.default_layering(graph, delta)
    )
    count = len(layering.layers)
    if kind == "equal-operators":
        operators = len(graph.forward_operators)
        cuts = tuple(str(round(i * operators / count)) for i in range(1, count))
        found = planner.plan(
            graph,
            cluster,
            num_microbatches=num_microbatches,
            delta=delta,
            boundaries=cuts,
            cancel=cancel,
            num_layers=None if cuts else 1,
        )
        return _named(found, f"{kind} (layers of its own)")
    if num_microbatches < 1:
        raise OptionError(
            "The number of microbatches must be at least 1", found=f"B = {num_microbatches}", remedy="Give 1 or more."
        )
    if kind not in WITH_ROLES:
        asked = pipelines(kind, cluster, count, graph.samples, degrees)
        return _planned(
            graph, cluster, kind, asked, cancel, num_microbatches=num_microbatches, delta=delta, num_layers=count
        )
    pricer = _Pricer(assign_layers(graph, layering.layer_of_forward), layering, cluster, num_microbatches, cancel)
    tried = [(way, pricer.costs(way)) for way in ways(kind, cluster, count, graph.samples, degrees)]
    best = None
    for way, costs in tried:
        pipeline = pipeline_dp(
            costs.latency_table(num_microbatches),
            [m.devices for m in costs.submeshes],
            cluster.devices,
            num_microbatches,
        )
        if pipeline.feasible and (best is None or pipeline.total_seconds < best[2].total_seconds):
            best = (way, costs, pipeline)
    if best is None:
        raise _nothing_fits(kind, cluster, num_microbatches, tried)
    way, costs, pipeline = best
    options = PlanOptions(
        num_microbatches=num_microbatches,
        delta=delta,
        num_layers=count,
        solver="auto",
        baseline=f"{kind} ({way.text})",
    )
    profile = StageProfile(
        costs=costs,
        choices=pricer.choices,
        problem_of=pricer.problem,
        solves=pricer.solves,
        distinct_solves=len(pricer.choices),
        cached_solves=0,
        variables=pricer.variables,
        constraints=pricer.constraints,
        warnings=(),
    )
    return assemble(graph, cluster, options, layering, profile, pipeline, [("baseline", time.perf_counter() - started)])


def _planned(
    graph: TrainingGraph,
    cluster: Cluster,
    kind: str,
    asked: Sequence[tuple[str, PipelineOptions]],
    cancel: threading.Event | None,
    **options: Any,
) -> Plan:
    """The fastest of some pipelines, each planned under its constraints."""
    plans: list[Plan] = []
    refused: list[tuple[str, InfeasiblePlanError]] = []
    for text, pipeline in asked:
        _stop_if(cancel, f"{len(plans) + len(refused)} of its pipelines were planned")
        try:
            found = planner.plan(graph, cluster, cancel=cancel, pipeline=pipeline, **options)
        except InfeasiblePlanError as error:
            refused.append((text, error))
        else:
            plans.append(_named(found, f"{kind} ({text})"))
    if not plans:
        raise _none_fits(kind, cluster, refused)
    return min(plans, key=lambda plan: plan.predicted.iteration_seconds)


def _stop_if(cancel: threading.Event | None, so_far: str) -> None:
    if cancel is not None and cancel.is_set():
        raise CancelledError("The baseline was cancelled", found=so_far, remedy="Start again.")


def _named(plan: Plan, name: str) -> Plan:
    return replace(plan, options=replace(plan.options, baseline=name))


class _Pricer:
    """Prices stages of one graph on one cluster; equal stages with equal roles once."""

    def __init__(
        self,
        layered: LayeredGraph,
        layering: Layering,
        cluster: Cluster,
        num_microbatches: int,
        cancel: threading.Event | None,
    ) -> None:
        self.layer_flops = tuple(layer.flops for layer in layering.layers)
        self.layered, self.cluster, self.b, self.cancel = layered, cluster, num_microbatches, cancel
        self.stage_of: Callable[[int, int], StageGraph] = slice_stages(layered)
        self.choices: dict[str, tuple[int, ...]] = {}
        self.solves = self.variables = self.constraints = 0
        self._models: dict[LogicalMesh, CostModel] = {}
        self._known: dict[object, tuple[str, StageTotals] | None] = {}

    def problem(self, first: int, last: int, mesh: LogicalMesh) -> StageProblem:
        """The stage problem of these layers."""
        squeezed = mesh.squeezed()
        model = self._models.setdefault(squeezed, CostModel(self.cluster.device, squeezed))
        return build_stage_problem(self.stage_of(first, last), model)

    def costs(self, way: Way) -> StageCosts:
        """Candidates of the stages of `way`, each at its place."""
        candidates: dict[RangeKey, tuple[StageCandidate, ...]] = {}
        for place, (first, last) in zip(range(len(way.ranges), 0, -1), way.ranges, strict=True):
            found = [
                StageCandidate(logical_mesh=mesh, solution_key=name, **asdict(totals))
                for mesh, roles in way.meshes
                if (answer := self._solved(first, last, mesh, roles, min(place, self.b))) is not None
                for name, totals in (answer,)
            ]
            candidates[first, last, 0] = tuple(dict.fromkeys(found))
        received = received_bytes(self.layered)
        return StageCosts(
            num_layers=self.layered.num_layers,
            submeshes=(way.submesh,),
            device_memory_bytes=self.cluster.device.memory_bytes,
            candidates=candidates,
            layer_flops=self.layer_flops,
            received_bytes={r: received[r] for r in way.ranges},
            versions=(self.layered.rematerialized,),
            tied_weights=tied_weights(self.layered),
        )

    def _solved(
        self, first: int, last: int, mesh: LogicalMesh, roles: tuple[Role, ...], held: int
    ) -> tuple[str, StageTotals] | None:
        """(solution key, totals) of the fastest choice that is left, within memory where that is short."""
        key = (self.stage_of(first, last).structure_key, mesh.squeezed(), roles)
        limited = (*key, held)
        if limited in self._known:
            return self._known[limited]
        if key not in self._known:
            self._known[key] = self._fastest(first, last, mesh, roles)
        quickest = self._known[key]
        memory = self.cluster.device.memory_bytes
        if quickest is None or _peak(quickest[1], held) <= memory:
            return quickest
        problem, asked = self._asked(first, last, mesh, roles)
        # What does not fit is kept where nothing else is found: it says by how much.
        self._known[limited] = quickest
        with suppress(SolverError):  # out of time
            fitting = solve_limited(
                asked, problem.memory_limit(held, memory), time_limit_seconds=FITTING_SECONDS, gap=TOLERANCE
            )
            self.solves += 1
            if fitting.choices:
                self._known[limited] = self._keep(problem, fitting.choices)
        return self._known[limited]

    def _fastest(
        self, first: int, last: int, mesh: LogicalMesh, roles: tuple[Role, ...]
    ) -> tuple[str, StageTotals] | None:
        problem, asked = self._asked(first, last, mesh, roles)
        found = solve(asked)
        self.solves += 1
        self.variables += asked.variables
        self.constraints += len(asked.node_costs) + sum(sum(m.shape) for m in asked.edge_costs)
        return self._keep(problem, found.choices) if found.choices else None

    def _asked(
        self, first: int, last: int, mesh: LogicalMesh, roles: tuple[Role, ...]
    ) -> tuple[StageProblem, ShardingProblem]:
        """The stage problem, and what is left of it; among equally fast choices the leanest is wanted."""
        _stop_if(self.cancel, f"{self.solves} of its stages were solved")
        problem = self.problem(first, last, mesh)
        priced = problem.at(
            inverse_b=1.0 / self.b, memory_price=TIE_SECONDS / self.cluster.device.memory_bytes, microbatches_held=1
        )
        return problem, pinned(priced, strategies_left(problem, roles))

    def _keep(self, problem: StageProblem, choices: tuple[int, ...]) -> tuple[str, StageTotals]:
        name = f"baseline-{len(self.choices)}"
        self.choices[name] = choices
        return name, problem.totals(choices)


def _peak(totals: StageTotals, held: int) -> float:
    return totals.weight_bytes + held * totals.activation_bytes + totals.workspace_bytes


def _none_fits(kind: str, cluster: Cluster, refused: Sequence[tuple[str, InfeasiblePlanError]]) -> InfeasiblePlanError:
    """Names the pipeline that needs least."""
    text, error = min(refused, key=lambda one: math.inf if one[1].over_bytes is None else one[1].over_bytes)
    if error.over_bytes is None:
        return error
    memory = cluster.device.memory_bytes
    return _too_large(kind, f"{text} needs", memory + error.over_bytes, memory)


def _too_large(kind: str, needs: str, peak_bytes: float, memory_bytes: float) -> InfeasiblePlanError:
    return InfeasiblePlanError(
        f"The baseline {kind} does not fit in memory",
        found=f"{needs} {units.bytes_(peak_bytes)} of {units.bytes_(memory_bytes)} on a device",
        remedy="Give more microbatches of a smaller size, more devices, or a baseline that divides weights (zero-3, "
        "megatron with a larger tp or pp).",
        over_bytes=peak_bytes - memory_bytes,
    )


def _nothing_fits(
    kind: str, cluster: Cluster, num_microbatches: int, tried: Sequence[tuple[Way, StageCosts]]
) -> InfeasiblePlanError:
    """Names the way that needs least, and the stage in it that needs most."""
    needs = []
    for way, costs in tried:
        stages = []
        for (first, last, _), candidates in costs.candidates.items():
            place = sum(start > last for start, _ in way.ranges) + 1
            if candidates:
                stages.append((min(c.peak_bytes(min(place, num_microbatches)) for c in candidates), first, last))
        if stages:
            needs.append((*max(stages), way))
    if not needs:
        return InfeasiblePlanError(
            f"The baseline {kind} has no plan",
            found=f"no legal choice of strategies on {cluster}",
            remedy="Try another baseline, or `ax.plan`.",
        )
    peak, first, last, way = min(needs, key=lambda need: need[0])
    return _too_large(kind, f"layers {first}–{last} ({way.text}) need", peak, cluster.device.memory_bytes)
