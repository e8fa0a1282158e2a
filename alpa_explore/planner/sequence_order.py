"""Whether sequences in zig-zag order from the inputs on make a plan faster.

Where devices share the sequence of a causal model, balanced attention needs zig-zag order. The search over a graph in
natural order can only change the order inside each attention operator, or go without. A model whose inputs are in
zig-zag order (`sharding.zigzag`) pays nothing for it, but that is another graph, with a search of its own.
"""

from __future__ import annotations

import math
from dataclasses import replace

from alpa_explore.errors import CancelledError, InfeasiblePlanError, OptionError
from alpa_explore.planner.plan import captured, plan_request
from alpa_explore.planner.request import PlanRequest
from alpa_explore.planner.resources import Resources
from alpa_explore.plans.plan import Plan
from alpa_explore.plans.planned_stage import PlannedOperators
from alpa_explore.plans.records import PlanStage
from alpa_explore.plans.report.specs import axis_sizes
from alpa_explore.sharding.rules.attention import CONTEXT, HEAVY, QUERIES
from alpa_explore.sharding.zigzag import in_zigzag_order


def faster_order(planned: Plan, request: PlanRequest, resources: Resources) -> Plan:
    """`planned`, or the plan with sequences in zig-zag order for the devices that share one, if that is faster.

    Does nothing where the request says the order, where no device shares a sequence with another, and where the model
    depends on the natural order.
    """
    if request.zigzag is not None or planned.model.zigzag > 1:
        return planned
    different = {id(stage): stage for stage in planned.representatives()}
    parts = max(map(_sharing, different.values()))
    if parts == 1:
        return planned
    at_b = request.at(planned.options.num_microbatches)
    try:
        graph = in_zigzag_order(captured(at_b, resources), parts)
        other = plan_request(replace(at_b, model=graph, sequence=None, global_batch=None, zigzag=parts), resources)
    except (OptionError, InfeasiblePlanError):
        return planned
    except CancelledError as error:
        error.known = planned
        raise
    faster = other.predicted.iteration_seconds < planned.predicted.iteration_seconds
    return replace(other, microbatches=planned.microbatches) if faster else planned


def _sharing(stage: PlanStage) -> int:
    """The most devices among which an attention operator of the stage divides its queries."""
    sizes = axis_sizes(stage.logical_mesh)
    most = 1
    if math.prod(sizes) == 1:
        return most
    operators = stage.operators
    for operator in operators.of(HEAVY) if isinstance(operators, PlannedOperators) else operators:
        if operator.op in HEAVY:
            factors = operator.strategy.split("·")
            pairs = zip(factors, sizes, strict=False)
            most = max(most, math.prod(size for factor, size in pairs if factor in (*CONTEXT, QUERIES)))
    return most
