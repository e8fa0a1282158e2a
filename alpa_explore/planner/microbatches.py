"""B "auto": the planner runs for the candidate numbers of microbatches, and the plan with the best B is kept.

At other B (`microbatches_from_costs`), there are two cases. With microbatches of the same size, a larger B is more work
in an iteration: throughput rises, because the pipeline fills once for all microbatches, and a stage holds more of them,
up to the depth of the pipeline; the stage costs of a plan give these figures. With the same global batch, a larger B
has smaller microbatches: each B has a lower bound on T (`least_time`); those that may be the best are planned with the
stages alone that a pipeline wants, and the best of them with all stages. The plan keeps what each B takes. In both
cases the best B is the one with the highest throughput; with the same global batch that is the least T.
"""

import math
from collections.abc import Sequence
from dataclasses import replace

from alpa_explore.cluster.precisions import tensors_of
from alpa_explore.errors import CancelledError, InfeasiblePlanError
from alpa_explore.inter_op.options import PipelineOptions
from alpa_explore.models.catalog import divisors_of
from alpa_explore.planner.least_time import LeastTime, least_over, least_time
from alpa_explore.planner.nearest_fit import nothing_fits, nothing_fits_at_any, weights_too_large
from alpa_explore.planner.plan import (
    NOT_PROVEN,
    Prepared,
    captured,
    plan_of_wanted,
    plan_prepared,
    plan_request,
    prepared,
    stages_of,
)
from alpa_explore.planner.request import PlanRequest
from alpa_explore.planner.resources import Clock, Resources
from alpa_explore.plans.assemble import choose_stages
from alpa_explore.plans.plan import Plan
from alpa_explore.plans.records import TriedMicrobatches
from alpa_explore.plans.report.text import fullest
from alpa_explore.search.pipeline_query import PipelineQuery
from alpa_explore.search.stage_pricing import StagePricing
from alpa_explore.tracing.catalogue import catalogue_batches

COUNTS = tuple(2**i for i in range(11))
"""The values of B that are tried where the size of a microbatch is fixed: 1 to 1024."""
ENOUGH = 0.01
"""With microbatches of a fixed size, throughput always rises with B: the least B within this relative distance of the
highest throughput is taken."""
ALIKE = 0.005
"""By what share, at most, T is taken to be lower where all stages are priced than in the best plan of the stages that a
pipeline wants: other partitions near the best are compared then, and a solver is asked where memory is short. Measured:
0.23 % at one of 15 values of B of small models, 0.001 % at some where memory is short, 0 at the others and for
Mixtral-8x7B on 4x8:h100. It does not hold where turns do not fit with the fastest choices: 3 % for Llama-3-8B on
1x8:h100 at B = 128."""


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
        over_bytes=least.over_bytes if 0 < least.over_bytes < math.inf else None,
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

    The stages that a pipeline wants are priced, always of the B with the lowest bound by then, until the bounds of all
    others exceed the best T of a plan of such stages. Then those B that may be the best, by their bound or within
    `ALIKE` of it, are planned with all stages. Where none fits, the one that lacks least by the lower bounds is
    planned, and those that may lack less.
    """
    counts = possible_counts(divisors_of(global_batch), request.pipeline)
    _stop_if_weights_overflow(request, resources, first=counts[len(counts) // 2], leanest=counts[-1])
    ready, least, failed = _bounded(request, counts, resources)
    lines = {count: no_plan(count, global_batch // count, error) for count, error in failed.items()}
    best: Plan | None = None
    wanted: Plan | None = None
    try:
        waiting = set(least)
        while waiting:
            count = min(waiting, key=lambda b: least[b].seconds)
            others = min((least[b].seconds for b in waiting - {count}), default=math.inf)
            known = math.inf if wanted is None else wanted.predicted.iteration_seconds
            seconds, plan = least[count].seconds, None
            if seconds <= known and seconds < math.inf:
                named, (of_count, stages) = _named(resources, count), ready[count]
                of_count = of_count._replace(clock=Clock(named.progress))  # its own plan counts none of this
                below = min(known, others)
                bound, plan = plan_of_wanted(of_count, stages, named, below=below, proven=False)
                seconds = max(seconds, bound)
                if plan is None and below < seconds <= known and seconds < math.inf:  # now another B is to be asked
                    least[count] = replace(least[count], seconds=seconds)
                    continue
                # Turns that do not fit with these choices, or in fewer stages, may with leaner ones.
                if plan is not None and (plan.interleaved or not plan.schedules):
                    seconds = max(seconds, (1 - ALIKE) * plan.predicted.iteration_seconds)
                    lines[count] = tried(plan)
                wanted = plan if plan is not None and plan.predicted.iteration_seconds < known else wanted
                if seconds == math.inf:  # what it lacks is known better now
                    least[count] = replace(least[count], over_bytes=least_over(stages))
            waiting.discard(count)
            least[count] = replace(least[count], seconds=seconds)
            if seconds > known:
                ready.pop(count, None)
            lines.setdefault(count, not_planned(count, global_batch // count, least[count]))
        for count in sorted(least, key=lambda b: (least[b].seconds, least[b].over_bytes)):
            if best is not None and least[count].seconds > best.predicted.iteration_seconds:
                break
            nearest = min((error.over_bytes for error in failed.values() if error.over_bytes), default=math.inf)
            try:
                if 0 < least[count].over_bytes < nearest and count not in ready:  # that is of a smaller microbatch
                    ready[count] = _with_stages(request, count, resources)
                    least |= dict.fromkeys((b for b in least if b <= count), least_time(ready[count][1]))
                if nearest <= least[count].over_bytes:
                    continue
                of_count = ready[count][0] if count in ready else _ready(request, count, resources)
                plan = plan_prepared(of_count, _named(resources, count), every_b=False)
            except InfeasiblePlanError as error:
                failed[count] = error
                lines[count] = no_plan(count, global_batch // count, error)
                continue
            lines[count] = tried(plan)
            key = plan.predicted.iteration_seconds, count
            if best is None or key < (best.predicted.iteration_seconds, best.options.num_microbatches):
                best = plan
    except CancelledError as error:
        plans = [plan for plan in (best, wanted, error.known) if isinstance(plan, Plan)]
        if plans:
            known_best = min(plans, key=lambda plan: plan.predicted.iteration_seconds)
            error.known = replace(known_best, warnings=tuple(dict.fromkeys((*known_best.warnings, NOT_PROVEN))))
        raise
    if best is None:
        raise nothing_fits_at_any(failed, lacking_more=set(counts) - set(failed))
    return replace(best, microbatches=tuple(lines[count] for count in counts))


def _bounded(
    request: PlanRequest, counts: Sequence[int], resources: Resources
) -> tuple[dict[int, tuple[Prepared, StagePricing]], dict[int, LeastTime], dict[int, InfeasiblePlanError]]:
    """What is searched for at each B, its stages, and its bound without a search; why there is no plan at those whose
    microbatches cannot be sharded as is asked for. A larger microbatch holds no less: where one needs more than there
    is, no larger one is captured."""
    ready, least = dict[int, tuple[Prepared, StagePricing]](), dict[int, LeastTime]()
    failed: dict[int, InfeasiblePlanError] = {}
    too_large: LeastTime | None = None
    for count in reversed(counts):
        if resources.cancel is not None and resources.cancel.is_set():
            raise CancelledError(
                "The search was cancelled",
                found=f"{len(least)} of {len(counts)} numbers of microbatches had a bound, and none a plan",
                remedy="Start it again: what was captured is kept in the cache.",
            )
        if too_large is not None:
            least[count] = too_large
            continue
        try:
            ready[count] = _with_stages(request, count, resources)
        except InfeasiblePlanError as error:
            failed[count] = error
        else:
            least[count] = least_time(ready[count][1])
            too_large = least[count] if 0 < least[count].over_bytes < math.inf else None
    return ready, least, failed


def _with_stages(request: PlanRequest, count: int, resources: Resources) -> tuple[Prepared, StagePricing]:
    of_count = _ready(request, count, resources)
    return of_count, stages_of(of_count, _named(resources, count), whole_meshes=True)


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


def _plan_at(request: PlanRequest, count: int, resources: Resources, *, every_b: bool | None = None) -> Plan:
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
