"""`ax.plan`: the public verb of the planner.

Where devices share the sequence of a causal model, balanced attention needs zig-zag order. The search over a graph in
natural order can only change the order inside each attention operator, or go without. A model whose inputs are in
zig-zag order (`sharding.zigzag`) pays nothing for it, but that is another graph, with a search of its own.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from alpa_explore.cluster import Cluster
from alpa_explore.errors import CancelledError, InfeasiblePlanError, OptionError
from alpa_explore.execution.progress import ProgressCallback
from alpa_explore.graph import TrainingGraph
from alpa_explore.inter_op.options import PipelineOptions, check_options
from alpa_explore.numerics.memory import freed_memory_kept
from alpa_explore.planner.microbatches import best_count_plan
from alpa_explore.planner.plan import captured, plan_request
from alpa_explore.planner.request import Count, PlanRequest, pipeline_options
from alpa_explore.planner.resources import Resources, Running
from alpa_explore.plans.plan import Plan
from alpa_explore.plans.planned_stage import PlannedOperators
from alpa_explore.plans.records import PlanStage
from alpa_explore.plans.report.specs import axis_sizes
from alpa_explore.sharding.rules.attention import CONTEXT, HEAVY, QUERIES
from alpa_explore.sharding.spec_constraint import constraints_of
from alpa_explore.sharding.zigzag import in_zigzag_order

if TYPE_CHECKING:
    from alpa_explore.tracing.batches import Batches


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


def plan(
    model: TrainingGraph | Batches | str,
    cluster: Cluster | str,
    *,
    num_microbatches: Count,
    global_batch: int | None = None,
    delta: float = 0.5,
    num_layers: int | None = None,
    solver: str = "auto",
    boundaries: Sequence[str] = (),
    rematerialization: bool | str | None = None,
    precision: str | None = None,
    sequence: int | None = None,
    zigzag: int | None = None,
    scheduler: Any = None,
    cache: bool = True,
    progress: ProgressCallback | None = None,
    cancel: threading.Event | None = None,
    pipeline: PipelineOptions | None = None,
    pin: Mapping[str, str] | None = None,
    forbid: Mapping[str, str | Sequence[str]] | None = None,
) -> Plan:
    """Run the whole planner.

    `model` is a captured graph (one microbatch), a model at any batch size (`ax.capture_batches`), or a name: of the
    catalogue, or the path of a Hugging Face config.json (its microbatch is global batch / B; the global batch is the
    catalogue's unless given; `sequence` is the number of tokens of a sample, and may also follow the name, as in
    "llama-3-8b@131072"). `precision` is the dtype of a model that is given by name, or of products alone ("fp8",
    "mxfp8", "nvfp4": linear layers and experts are priced in it, `cluster/precisions.py`). `num_microbatches` "auto"
    takes the B with the highest throughput: among the divisors of the global batch if there is one, where this is the
    least T; otherwise with microbatches of the size that `model` has. `scheduler` says where solves run: 'serial',
    'tcp://…' or a dask Client; None decides by the amount of work. `rematerialization` recomputes activations in place
    of holding them: 'norms', 'attention', 'mlp' or parts joined as in 'norms+attention', 'half' or 'full' (every second
    block, every block; True is 'full'), 'layers' (every layer, as Alpa does), False for nothing, 'auto' for what each
    stage needs (up to four versions of the stage costs in place of one), None as the model says. `zigzag` brings
    sequences into zig-zag order for so many devices from the inputs on (`sharding.zigzag`); None does where devices
    share a sequence and it is faster, which takes a second search, and 1 leaves the natural order. `pipeline` has
    constraints, the schedule and more; by default the schedules that the software runs are compared
    (`inter_op.options.compared`), and all else is the paper's. `pin` maps operators to the spec that the output of
    each must have ({"addmm": "S0R"}), or parameters to the spec in which each is stored ({"fc.weight": "S0R"});
    `forbid` maps them to specs that they must not have (`sharding/spec_constraint.py`).

    Raises InfeasiblePlanError when nothing fits in memory or satisfies all spec constraints; OptionError,
    UnknownNameError, ClusterError, LayeringError and CaptureError for invalid input; CancelledError when `cancel` is
    set, with the best plan so far, where there is one, as its `known`.
    """
    request = PlanRequest(
        model=model,
        cluster=cluster if isinstance(cluster, Cluster) else Cluster.parse(cluster),
        num_microbatches=num_microbatches,
        global_batch=global_batch,
        delta=delta,
        num_layers=num_layers,
        solver=solver,
        boundaries=boundaries,
        rematerialization=rematerialization,
        precision=precision,
        sequence=sequence,
        zigzag=zigzag,
        pipeline=pipeline_options(pipeline),
        spec_constraints=constraints_of(pin, forbid),
    )
    return planned(request, Running(scheduler=scheduler, cache=cache, progress=progress, cancel=cancel))


def planned(request: PlanRequest, running: Running) -> Plan:
    """The plan of a request; errors as those of `plan`."""
    if not request.auto:
        check_options(request.pipeline, request.cluster, num_microbatches=request.count)
    with freed_memory_kept(), running.resources() as resources:
        found = best_count_plan(request, resources) if request.auto else plan_request(request, resources)
        found = faster_order(found, request, resources)
        return replace(found, warnings=(*found.warnings, *resources.warnings))
