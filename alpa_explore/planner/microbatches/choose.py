"""B "auto": the planner runs for the candidate numbers of microbatches, and the plan with the best B is kept."""

from __future__ import annotations

from dataclasses import replace

from alpa_explore.cluster.precisions import tensors_of
from alpa_explore.errors import CancelledError, InfeasiblePlanError
from alpa_explore.models.catalog import divisors_of
from alpa_explore.planner.microbatches.tried import (
    COUNTS,
    best_count,
    microbatches_from_costs,
    no_plan,
    possible_counts,
    tried,
)
from alpa_explore.planner.nearest_fit import nothing_fits_at_any, weights_too_large
from alpa_explore.planner.plan import captured, plan_request
from alpa_explore.planner.request import PlanRequest
from alpa_explore.planner.resources import Resources
from alpa_explore.plans.plan import Plan
from alpa_explore.plans.records import TriedMicrobatches
from alpa_explore.tracing.catalogue import catalogue_batches


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
    """The best plan over all B that divide the global batch."""
    counts = possible_counts(divisors_of(global_batch), request.pipeline)
    _stop_if_weights_overflow(request, resources, first=counts[0], leanest=counts[-1])
    lines: list[TriedMicrobatches] = []
    failed: dict[int, InfeasiblePlanError] = {}
    best: Plan | None = None
    for count in counts:
        try:
            plan = _plan_at(request, count, resources)
        except InfeasiblePlanError as error:
            failed[count] = error
            lines.append(no_plan(count, global_batch // count, error))
            continue
        except CancelledError as error:
            error.known = best if best is not None else error.known
            raise
        lines.append(tried(plan))
        if best is None or plan.predicted.iteration_seconds < best.predicted.iteration_seconds:
            best = plan
    if best is None:
        raise nothing_fits_at_any(failed)
    return replace(best, microbatches=tuple(lines))


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
    return plan_request(request.at(count), resources.named(f"B = {count}"), every_b=every_b)


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
