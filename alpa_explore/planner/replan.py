"""Another B, other pipeline options, or another delta, from the stage costs that a plan keeps."""

from __future__ import annotations

import math
import threading
from dataclasses import replace
from typing import Any

from alpa_explore.arguments import checked
from alpa_explore.errors import OptionError
from alpa_explore.execution.progress import ProgressCallback
from alpa_explore.inter_op.options import PipelineOptions, check_options
from alpa_explore.planner.default_layering import clustered
from alpa_explore.planner.interface import planned
from alpa_explore.planner.microbatches import best_count, microbatches_from_costs
from alpa_explore.planner.nearest_fit import nothing_fits
from alpa_explore.planner.plan import plan_of_wanted, prepared, stages_of
from alpa_explore.planner.request import (
    Count,
    PlanRequest,
    flop_tolerance,
    in_its_mode,
    microbatch_count,
    pipeline_options,
)
from alpa_explore.planner.resources import Running
from alpa_explore.plans.assemble import choose_stages, fastest_schedule
from alpa_explore.plans.plan import Plan
from alpa_explore.plans.rebuild import details_of
from alpa_explore.plans.records import PlanOptions
from alpa_explore.pricing.stage_costs import StageCosts
from alpa_explore.search.pipeline_query import PipelineQuery
from alpa_explore.tracing.cancelling import cancelled_by

_WANTED = (
    "Lower bounds excluded stages from the plan, which were not priced on every mesh. With this B or these options "
    "they do not: there may be a better plan. Plan anew to price what it needs."
)


@checked("plan")
def replan(
    plan: Plan,
    *,
    num_microbatches: Count | None = None,
    pipeline: PipelineOptions | None = None,
    delta: float | None = None,
    scheduler: Any = None,
    cache: bool = True,
    progress: ProgressCallback | None = None,
    cancel: threading.Event | None = None,
    known_alone: bool = False,
) -> Plan:
    """The best plan for another number of microbatches of the same size, for other pipeline options, or for another
    delta, from the stage costs that `plan` keeps. B "auto" takes the B with the highest throughput (the least B within
    1 % of it).

    Another B or other options take milliseconds: an evaluation of the stage costs and a run of the pipeline DP. No new
    choices are searched for, so a schedule that holds more microbatches may need a plan of its own; a warning says when
    stages that lower bounds had excluded (`StageCosts.screened`) may now be part of a better plan. Another B with the
    same global batch has microbatches of another size, and so other sharding problems: call `ax.plan`.

    The schedule "auto" compares those that the software runs, as `ax.plan` does.

    DualPipe, whose devices hold a stage of two copies of the model, has other sharding problems than the other
    schedules: to change between the two, the whole planner runs.

    Another delta may make other layers. Then only the stages of the best pipeline are priced. Where stages cannot be
    composed, or memory is so short that a proof is missing, the whole planner runs. Otherwise the costs of the new plan
    are not complete (`StageCosts.complete`): replanning it for another B uses the stages that were priced, and prices
    others where none of these fits, unless `known_alone`. A plan from a file is captured again first. `cancel` stops
    all of this; `scheduler`, `cache` and `progress`, as in `ax.plan`, count where stages are priced. Raises what
    `ax.plan` raises.
    """
    running = Running(scheduler=scheduler, cache=cache, progress=progress, cancel=cancel)
    options, asked = plan.options, plan.options.pipeline
    if pipeline is not None:
        asked = in_its_mode(pipeline_options(pipeline), plan.model.recipe, plan.cluster)
        options = replace(options, pipeline=asked)
    b = microbatch_count(options.num_microbatches if num_microbatches is None else num_microbatches)
    delta = options.delta if delta is None else flop_tolerance(delta)
    if delta != options.delta:
        if b == "auto":
            raise OptionError(
                "B must be a number when delta changes", found="'auto'", remedy="Replan for another B afterwards."
            )
        return _with_other_layers(plan, replace(options, num_microbatches=b, delta=delta), asked, running)
    if options.pipeline.terms(1).copies != plan.costs.copies:
        return _with_other_copies(plan, options, asked, b, running, known_alone=known_alone)
    plan = replace(plan, options=options, microbatches=(), schedules=())
    if b == "auto":
        lines = microbatches_from_costs(plan)
        b = best_count(lines) or options.num_microbatches
        plan = replace(plan, microbatches=lines)
    check_options(asked, plan.cluster, len(plan.layers), b)
    query = PipelineQuery(cluster=plan.cluster, options=asked, num_microbatches=b)
    found = query.best_of_each(plan.costs)
    first = next(((schedule, best) for schedule, best in found if best is not None), None)
    if first is None:
        if not plan.costs.complete and not known_alone:  # stages that were not priced may fit
            return _with_other_layers(plan, replace(options, num_microbatches=b), asked, running)
        if plan.costs.screened and not known_alone and _wants_screened(plan.costs, query):
            return _from_the_graph(plan, replace(options, num_microbatches=b), asked, running)
        raise nothing_fits(
            plan.costs,
            query,
            spec_constraints=options.spec_constraints,
            rematerialization=options.rematerialization,
            samples=plan.model.samples,
        )
    warnings = tuple(warning for warning in plan.warnings if warning != _WANTED)
    schedule, best = first
    options = replace(options, num_microbatches=b, pipeline=schedule)
    made = choose_stages(replace(plan, options=options, warnings=warnings), best)
    made = fastest_schedule(made, found, cancel) if len(found) > 1 else made
    query = replace(query, options=made.options.pipeline)
    if plan.costs.screened and _wants_screened(plan.costs, query):
        return made.with_memo(warnings=(*warnings, _WANTED))
    return made


def _wants_screened(costs: StageCosts, query: PipelineQuery) -> bool:
    """Whether a pipeline with choices that were not looked for may be better than all others."""
    b = query.num_microbatches
    for cell, held in query.best_stages(replace(costs, bounds={})):
        bounds = [bound.at(1.0 / b) for bound in costs.screened.get(cell, ()) if held <= bound.most_held]
        known = costs.choose(cell, held, b)
        if min(bounds, default=math.inf) < (math.inf if known is None else known.latency_seconds(b)):
            return True
    return False


def _with_other_copies(
    plan: Plan, options: PlanOptions, asked: PipelineOptions, b: Count, running: Running, *, known_alone: bool
) -> Plan:
    """The best plan for a schedule that runs another number of copies of the model than that of `plan`."""
    check_options(options.pipeline, plan.cluster, len(plan.layers), None if b == "auto" else b)
    if known_alone or b == "auto" or options.boundaries or options.baseline:
        raise OptionError(
            "The stage costs of a plan are those of one schedule with two copies of the model, or of all others",
            found=f"a plan for {plan.options.pipeline.schedule}, and the schedule {options.pipeline.schedule}",
            remedy="Call ax.plan with that schedule.",
        )
    return _from_the_graph(plan, replace(options, num_microbatches=b), asked, running)


def _from_the_graph(plan: Plan, options: PlanOptions, asked: PipelineOptions, running: Running) -> Plan:
    """The whole planner on the graph of `plan`."""
    with cancelled_by(running.cancel):
        details = details_of(plan)
    request = PlanRequest.again(options, details.graph, plan.cluster, details.graph.zigzag)
    return planned(replace(request, pipeline=asked), running)


def _with_other_layers(before: Plan, options: PlanOptions, asked: PipelineOptions, running: Running) -> Plan:
    """The best plan with the delta of `options`, where `before` has another; `asked` may compare schedules."""
    if options.boundaries or options.baseline:
        raise OptionError(
            "delta has no effect on these layers",
            remedy="Call ax.plan without boundaries to choose layers by delta.",
            found=options.baseline or f"{len(options.boundaries)} boundaries set by hand",
        )
    with cancelled_by(running.cancel):
        details = details_of(before)
    basis = before.basis or before
    layering = clustered(details.graph, options.num_layers, options.delta)
    known, now = ([len(layer.operators) for layer in layers] for layers in (basis.layers, layering.layers))
    if now == known and basis.costs.complete:
        return replan(replace(basis, options=options, microbatches=(), schedules=()), pipeline=asked)
    request = replace(PlanRequest.again(options, details.graph, basis.cluster, details.graph.zigzag), pipeline=asked)
    check_options(asked, basis.cluster, options.num_layers, options.num_microbatches)
    if options.solver == "auto":
        with running.resources() as resources:
            ready = prepared(request, resources)
            _, made = plan_of_wanted(ready, stages_of(ready, resources), resources)
        if made is not None:
            return made.with_memo(basis=basis, warnings=(*made.warnings, *resources.warnings))
    return planned(request, running)
