"""The Alpa planner on one screen, for one B: model → graph → layers → stage costs → pipeline → plan."""

import math
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple, TypeVar

from alpa_explore.cluster import logical_meshes
from alpa_explore.errors import CancelledError
from alpa_explore.graph import TrainingGraph
from alpa_explore.inter_op.options import check_options
from alpa_explore.intra_op.stage.layered_graph import LayeredGraph
from alpa_explore.intra_op.stage.recomputation import asked_for
from alpa_explore.layering import Layering, manual_layers
from alpa_explore.planner.default_layering import clustered, default_layering
from alpa_explore.planner.microbatch_graph import microbatch_graph
from alpa_explore.planner.nearest_fit import nothing_fits
from alpa_explore.planner.request import PlanRequest
from alpa_explore.planner.resources import Clock, Resources, many_problems
from alpa_explore.plans.assemble import Found, assemble, fastest_schedule
from alpa_explore.plans.plan import Plan
from alpa_explore.search.pipeline_query import PipelineQuery
from alpa_explore.search.profile_stages import profile_stages, profile_wanted, unpriced_stages
from alpa_explore.search.stage_pricing import StagePricing
from alpa_explore.search.stage_profile import StageProfile
from alpa_explore.search.stages.versions import layered_versions
from alpa_explore.sharding.spec_constraint import check_constraints
from alpa_explore.sharding.zigzag import in_zigzag_order
from alpa_explore.store.cache import Store

NOT_PROVEN = "The search was stopped: this is the best plan of the stages that were priced by then, not a proven one."
"""A warning of such a plan."""


Searched = TypeVar("Searched")


class Prepared(NamedTuple):
    """What is searched for: a request at one B, and what it names."""

    request: PlanRequest
    graph: TrainingGraph
    layering: Layering
    versions: Sequence[LayeredGraph]
    query: PipelineQuery
    clock: Clock

    @property
    def layer_flops(self) -> tuple[int, ...]:
        """Forward FLOPs of each layer."""
        return tuple(layer.flops for layer in self.layering.layers)


def plan_request(request: PlanRequest, resources: Resources, *, every_b: bool | None = None) -> Plan:
    """The passes in order. With `every_b` the stage costs of the plan give the plans for other numbers of microbatches,
    too (`profile_stages`). InfeasiblePlanError where no pipeline fits in memory or satisfies the constraints;
    CancelledError with the best plan that is known, if there is one (`CancelledError.known`)."""
    return plan_prepared(prepared(request, resources), resources, every_b=every_b)


def plan_prepared(ready: Prepared, resources: Resources, *, every_b: bool | None = None) -> Plan:
    """The search, and the plan; errors as those of `plan_request`."""
    request, query = ready.request, ready.query
    solving, flops = resources.solving(request.solver), ready.layer_flops
    search = partial(profile_stages, ready.versions, query, solving, layer_flops=flops, every_b=every_b)
    profile = _searched(ready, search)
    plan = _chosen(ready, profile, resources)
    if plan is None:
        raise nothing_fits(
            profile.costs,
            query,
            spec_constraints=request.spec_constraints,
            rematerialization=request.rematerialization,
            samples=ready.graph.samples,
        )
    return plan


def stages_of(ready: Prepared, resources: Resources, *, whole_meshes: bool = False) -> StagePricing:
    """All stages with their lower bounds (`unpriced_stages`)."""
    solving, flops = resources.solving("auto"), ready.layer_flops
    return unpriced_stages(ready.versions, ready.query, solving, layer_flops=flops, whole_meshes=whole_meshes)


def plan_of_wanted(
    ready: Prepared, stages: StagePricing, resources: Resources, *, below: float = math.inf, proven: bool = True
) -> tuple[float, Plan | None]:
    """(lower bound on T, the plan of those of `stages` that a pipeline wants), by composition alone, with arguments as
    those of `profile_wanted`. No plan where that gives none, or nothing fits."""
    bound, profile = _searched(ready, partial(profile_wanted, stages, below=below, proven=proven))
    return bound, None if profile is None else _chosen(ready, profile, resources)


def _searched(ready: Prepared, search: Callable[[], Searched]) -> Searched:
    """What a search finds; CancelledError with the best plan that is known."""
    with ready.clock("sharding"):
        try:
            return search()
        except CancelledError as error:
            if isinstance(known := error.known, StageProfile):
                known = replace(known, warnings=(*known.warnings, NOT_PROVEN))
                error.known = _assembled(ready, known, ready.query.best_of_each(known.costs))
            raise


def _chosen(ready: Prepared, profile: StageProfile, resources: Resources) -> Plan | None:
    with ready.clock("pipeline"):
        found = ready.query.best_of_each(profile.costs)
    return _assembled(ready, profile, found, resources.cancel)


def prepared(request: PlanRequest, resources: Resources) -> Prepared:
    """The passes before the search."""
    clock = Clock(resources.progress)
    query = PipelineQuery(cluster=request.cluster, options=request.pipeline, num_microbatches=request.count)
    with clock("capture"):
        graph = captured(request, resources)
    with clock("layering"):
        layering = layers_of(graph, request, resources.store)
        request = replace(request, rematerialization=asked_for(request.rematerialization, graph))
        check_options(request.pipeline, request.cluster, len(layering.layers))
        meshes = [m.squeezed().shape for s in query.submeshes for m in logical_meshes(request.cluster, s)]
        check_constraints(request.spec_constraints, graph, meshes)
        versions = layered_versions(
            graph,
            layering.layer_of_forward,
            request.rematerialization,
            request.spec_constraints,
            software=request.cluster.software,
        )
    return Prepared(request, graph, layering, versions, query, clock)


def _assembled(
    ready: Prepared, profile: StageProfile, found: Sequence[Found], cancel: threading.Event | None = None
) -> Plan | None:
    """The plan of the best pipeline; of several schedules, the one with the least T. None where nothing fits."""
    request, layering, clock = ready.request, ready.layering, ready.clock
    for schedule, pipeline in found:
        if pipeline is not None:
            options = replace(request.options(len(layering.layers)), pipeline=schedule)
            plan = assemble(ready.graph, request.cluster, options, layering, profile, pipeline, clock.seconds)
            if len(found) == 1:
                return plan
            with clock("schedules"):
                fastest = fastest_schedule(plan, found, cancel)
            return fastest.with_memo(statistics=replace(fastest.statistics, seconds=tuple(clock.seconds)))
    return None


def captured(request: PlanRequest, resources: Resources) -> TrainingGraph:
    """The graph of one microbatch, in the order of sequences that is asked for."""
    graph = microbatch_graph(
        request.model,
        request.count,
        rematerialization=request.whole_rematerialization,
        precision=request.precision,
        global_batch=request.global_batch,
        store=resources.store,
        capturing=partial(resources.capturing, many=many_problems(request.cluster)),
    )
    return graph if request.zigzag is None else in_zigzag_order(graph, request.zigzag)


def layers_of(graph: TrainingGraph, request: PlanRequest, store: Store | None = None) -> Layering:
    """Layers with the boundaries that the user set, clustered to the requested number, or to the default one. What is
    clustered is kept in `store`."""
    if request.boundaries:
        return manual_layers(graph, request.boundaries)
    if request.num_layers is not None:
        return clustered(graph, request.num_layers, request.delta, store)
    return default_layering(graph, request.delta, store, devices=request.cluster.devices)
