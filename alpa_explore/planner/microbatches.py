"""B "auto": the planner runs for the candidate numbers of microbatches, and the plan with the best B is kept.

At other B (`microbatches_from_costs`), there are two cases. With microbatches of the same size, a larger B is more work
in an iteration: throughput rises, because the pipeline fills once for all microbatches, and a stage holds more of them,
up to the depth of the pipeline; the stage costs of a plan give these figures. With the same global batch, a larger B
has smaller microbatches: each B has a lower bound on T (`least_time`), the planner runs for those that may be the best,
those with the lowest bound first, and the plan keeps the results. In both cases the best B is the one with the highest
throughput; with the same global batch that is the least T.
"""

import math
from collections.abc import Sequence
from dataclasses import replace

from alpa_explore.cluster.precisions import tensors_of
from alpa_explore.errors import CancelledError, InfeasiblePlanError
from alpa_explore.inter_op.options import PipelineOptions
from alpa_explore.models.catalog import divisors_of
from alpa_explore.planner.least_time import LeastTime, least_time, least_time_searched
from alpa_explore.planner.nearest_fit import nothing_fits, nothing_fits_at_any, weights_too_large
from alpa_explore.planner.plan import Prepared, captured, plan_prepared, plan_request, prepared
from alpa_explore.planner.request import PlanRequest
from alpa_explore.planner.resources import Resources
from alpa_explore.plans.assemble import choose_stages
from alpa_explore.plans.plan import Plan
from alpa_explore.plans.records import TriedMicrobatches
from alpa_explore.plans.report.text import fullest
from alpa_explore.search.pipeline_query import PipelineQuery
from alpa_explore.tracing.cancelling import cancelled_by, stop_if_cancelled
from alpa_explore.tracing.catalogue import catalogue_batches

COUNTS = tuple(2**i for i in range(11))
"""The values of B that are tried where the size of a microbatch is fixed: 1 to 1024."""
ENOUGH = 0.01
"""With microbatches of a fixed size, throughput always rises with B: the least B within this relative distance of the
highest throughput is taken."""


def tried(plan: Plan) -> TriedMicrobatches:
    """The row of `plan`; its bytes are those of the fullest device."""
    full = fullest(plan)
    return TriedMicrobatches(
        num_microbatches=plan.options.num_microbatches,
        samples=plan.model.samples,
        iteration_seconds=plan.predicted.iteration_seconds,
        stages=len(plan.stages),
        fullest_stage=full.index,
        memory_bytes=plan.device_of(full).memory_bytes,
        weight_bytes=full.weight_bytes,
        held_bytes=full.microbatches_held * full.activation_bytes,
        workspace_bytes=full.workspace_bytes,
    )


def no_plan(num_microbatches: int, samples: int, error: InfeasiblePlanError) -> TriedMicrobatches:
    """The row of a B at which nothing fits."""
    return TriedMicrobatches(
        num_microbatches=num_microbatches, samples=samples, iteration_seconds=None, over_bytes=error.over_bytes
    )


def not_planned(num_microbatches: int, samples: int, least: LeastTime) -> TriedMicrobatches:
    """The row of a B at which no plan can be faster than that of another."""
    return TriedMicrobatches(
        num_microbatches=num_microbatches,
        samples=samples,
        iteration_seconds=None,
        over_bytes=least.over_bytes if least.over_bytes > 0 else None,
        least_seconds=least.seconds if least.seconds < math.inf else None,
    )


def possible_counts(counts: Sequence[int], pipeline: PipelineOptions) -> tuple[int, ...]:
    """The `counts` at which the schedule exists for the requested number of stages, or for any; all of them if there is
    none, so that planning reports the reason."""
    stages = pipeline.num_stages
    if stages is None:
        possible = tuple(b for b in counts if pipeline.terms(b).depths(2))
    else:
        possible = tuple(b for b in counts if stages in pipeline.terms(b).depths(stages))
    return possible or tuple(counts)


def microbatches_from_costs(plan: Plan) -> tuple[TriedMicrobatches, ...]:
    """The best plan at each B, with microbatches of the plan's size, by the stage costs of the plan; nothing is
    solved."""
    lines = []
    planned = plan.options.num_microbatches
    for b in sorted({*possible_counts(COUNTS, plan.options.pipeline), planned}):
        query = PipelineQuery(cluster=plan.cluster, options=plan.options.pipeline, num_microbatches=b)
        pipeline = query.best(plan.costs)
        if pipeline.feasible:
            at_b = replace(plan, options=replace(plan.options, num_microbatches=b))
            lines.append(tried(plan if b == planned else choose_stages(at_b, pipeline)))
        else:
            lines.append(no_plan(b, plan.model.samples, nothing_fits(plan.costs, query, samples=plan.model.samples)))
    return tuple(lines)


def microbatches_of(plan: Plan) -> tuple[TriedMicrobatches, ...]:
    """The rows that the plan keeps (same global batch), else those from its stage costs (same microbatch size)."""
    return plan.microbatches or microbatches_from_costs(plan)


def same_global_batch(lines: Sequence[TriedMicrobatches]) -> bool:
    """Whether the rows share the global batch rather than the size of a microbatch."""
    return len({line.samples for line in lines}) > 1


def best_count(lines: Sequence[TriedMicrobatches]) -> int | None:
    """The least B, with microbatches of one size, whose throughput is within `ENOUGH` of the highest; None where
    nothing fits at any B."""
    most = max((line.samples_per_second for line in lines), default=0.0)
    near = [line.num_microbatches for line in lines if line.samples_per_second >= most * (1 - ENOUGH)]
    return min(near) if most > 0.0 else None


def best_count_plan(request: PlanRequest, resources: Resources) -> Plan:
    """The plan for the B with the highest throughput. InfeasiblePlanError, with the B and the stage that come closest
    to fitting, where none fits."""
    if isinstance(request.model, str):
        batches = catalogue_batches(
            request.model,
            rematerialization=request.whole_rematerialization,
            precision=tensors_of(request.precision),
            store=resources.store,
        )
        # The batches have the requested precision, rematerialisation and sequence.
        request = replace(request, model=batches, sequence=None)
    if request.global_batch is None:
        return _best_of_one_size(request, resources)
    return _best_of_one_batch(request, request.global_batch, resources)


def _best_of_one_batch(request: PlanRequest, global_batch: int, resources: Resources) -> Plan:
    """The best plan over all B that divide the global batch.

    The B with the lowest bound is planned first; those of which no plan can be faster than the best are not planned.
    """
    counts = possible_counts(divisors_of(global_batch), request.pipeline)
    _stop_if_weights_overflow(request, resources, first=counts[0], leanest=counts[-1])
    least, ready, failed = _least_times(request, counts, resources)
    lines = {count: no_plan(count, global_batch // count, error) for count, error in failed.items()}
    best: Plan | None = None
    for count in sorted(least, key=lambda b: (least[b].seconds, least[b].over_bytes)):
        if best is not None and least[count].seconds > best.predicted.iteration_seconds:
            lines[count] = not_planned(count, global_batch // count, least[count])
            continue
        try:
            of_count = ready.pop(count) if count in ready else _ready(request, count, resources)
            plan = plan_prepared(of_count, _named(resources, count))
        except InfeasiblePlanError as error:
            failed[count] = error
            lines[count] = no_plan(count, global_batch // count, error)
            continue
        except CancelledError as error:
            error.known = best if best is not None else error.known
            raise
        lines[count] = tried(plan)
        key = plan.predicted.iteration_seconds, count
        if best is None or key < (best.predicted.iteration_seconds, best.options.num_microbatches):
            best = plan
    if best is None:
        raise nothing_fits_at_any(failed)
    return replace(best, microbatches=tuple(lines[count] for count in counts))


def _least_times(
    request: PlanRequest, counts: Sequence[int], resources: Resources
) -> tuple[dict[int, LeastTime], dict[int, Prepared], dict[int, InfeasiblePlanError]]:
    """Of each B: a bound without a search; then, those with the lowest bound first, that of a search for the best
    pipeline, which ends where another B is better. What was prepared for those B that may be the best, and why there is
    no plan at others, whose microbatches cannot be sharded as is asked for."""
    least, ready, known = dict[int, LeastTime](), dict[int, Prepared](), math.inf
    failed: dict[int, InfeasiblePlanError] = {}
    for count in counts:
        with cancelled_by(resources.cancel):
            stop_if_cancelled()
        try:
            of_count = _ready(request, count, resources)
        except InfeasiblePlanError as error:
            failed[count] = error
        else:
            least[count] = least_time(of_count.versions, of_count.query)
    for count in sorted(least, key=lambda b: least[b].seconds):
        if least[count].seconds < known:
            of_count, solving = _ready(request, count, resources), _named(resources, count).solving("auto")
            least[count], found = least_time_searched(least[count], of_count.versions, of_count.query, solving, known)
            known = min(known, found)
            ready = {b: prepared for b, prepared in {**ready, count: of_count}.items() if least[b].seconds < known}
    return least, ready, failed


def _ready(request: PlanRequest, count: int, resources: Resources) -> Prepared:
    return prepared(request.at(count), _named(resources, count))


def _named(resources: Resources, count: int) -> Resources:
    return resources.named(f"B = {count}")


def _best_of_one_size(request: PlanRequest, resources: Resources) -> Plan:
    """The best plan over `COUNTS`, with microbatches of a fixed size.

    The largest B that fits is found by bisection, because more microbatches never hold less. Its stage costs give T at
    every other B; the best B then gets a plan of its own.
    """
    failed: dict[int, InfeasiblePlanError] = {}
    most: Plan | None = None
    counts = possible_counts(COUNTS, request.pipeline)
    _stop_if_weights_overflow(request, resources, first=counts[0], leanest=counts[0])
    low, index, high = 0, len(counts) - 1, len(counts) - 1  # the largest first: it usually fits
    while low <= high:
        try:
            most, low = _plan_at(request, counts[index], resources, every_b=True), index + 1
        except InfeasiblePlanError as error:
            failed[counts[index]], high = error, index - 1
        except CancelledError as error:
            error.known = most if most is not None else error.known
            raise
        index = (low + high) // 2
    if most is None:
        raise nothing_fits_at_any(failed)
    lines = microbatches_from_costs(most)
    best = best_count(lines)
    assert best is not None, "the plan itself is among them"
    chosen = most if best == most.options.num_microbatches else _plan_at(request, best, resources)
    return replace(chosen, microbatches=tuple(tried(chosen) if t.num_microbatches == best else t for t in lines))


def _plan_at(request: PlanRequest, count: int, resources: Resources, *, every_b: bool = False) -> Plan:
    return plan_request(request.at(count), _named(resources, count), every_b=every_b)


def _stop_if_weights_overflow(request: PlanRequest, resources: Resources, *, first: int, leanest: int) -> None:
    """InfeasiblePlanError where the lower bound on weights says that no B fits. Only the B that holds least is planned,
    to report how close it comes. If that plan exists after all, nothing is raised, and every B is tried."""
    why = weights_too_large(captured(request.at(first), resources), request.cluster)
    if not why:
        return
    try:
        _plan_at(request, leanest, resources)
    except InfeasiblePlanError as error:
        raise nothing_fits_at_any({leanest: error}, why) from error
