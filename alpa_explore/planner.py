"""The Alpa planner on one screen: model → graph → layers → stage costs → pipeline → plan."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from alpa_explore.cluster import Cluster
from alpa_explore.errors import LayeringError, OptionError
from alpa_explore.graph import TrainingGraph
from alpa_explore.inter_op.options import PipelineOptions, check_options
from alpa_explore.inter_op.stage_table import best_pipeline
from alpa_explore.intra_op.layered_graph import assign_layers
from alpa_explore.intra_op.solve import check_solver
from alpa_explore.layering import Layering, cluster_operators, manual_layers
from alpa_explore.models.catalog import entry, microbatch_size, names
from alpa_explore.plans.assemble import assemble, choose_stages
from alpa_explore.plans.nearest import nothing_fits
from alpa_explore.plans.plan import Plan, PlanOptions
from alpa_explore.profiling.cache import SolveCache
from alpa_explore.profiling.executors import Executor
from alpa_explore.profiling.profile_stages import code_version
from alpa_explore.profiling.progress import ProgressCallback
from alpa_explore.profiling.stage_costs import RangeKey, StageCosts
from alpa_explore.profiling.versions import profile_versions, versions_of

if TYPE_CHECKING:
    from collections.abc import Iterator


def plan(
    model: TrainingGraph | str, cluster: Cluster | str, *, num_microbatches: int, delta: float = 0.5,
    num_layers: int | None = None, solver: str = "auto", boundaries: Sequence[str] = (),
    rematerialization: bool | str | None = None, precision: str | None = None, scheduler: Any = None,
    cache: bool = True, progress: ProgressCallback | None = None, cancel: threading.Event | None = None,
    pipeline: PipelineOptions | None = None,
) -> Plan:  # fmt: skip
    """Run the whole planner.

    `model` is a captured graph (one microbatch) or a catalogue name (its microbatch is global batch /
    `num_microbatches`). `scheduler`: None decides by the size of the work; 'serial', 'tcp://…' or a dask Client say
    where solves run. `rematerialization` holds less and computes again: True or False for all layers, 'auto' where a
    stage needs it, None as the model says. `pipeline`: constraints, schedule and more, the paper's unless given. Raises
    InfeasiblePlanError when nothing fits in memory; OptionError, UnknownNameError, ClusterError, LayeringError and
    CaptureError for input at fault; CancelledError when `cancel` is set.
    """
    cluster = Cluster.parse(cluster) if isinstance(cluster, str) else cluster
    _check(num_microbatches=num_microbatches, delta=delta)
    check_solver(solver)
    pipeline = pipeline or PipelineOptions()
    check_options(pipeline, cluster, num_microbatches=num_microbatches)
    terms = pipeline.terms(num_microbatches)
    versions_of(rematerialization, 1)
    clock = _Clock()
    with clock("capture"):
        whole = rematerialization if isinstance(rematerialization, bool) else None
        graph = resolve(model, num_microbatches, rematerialization=whole, precision=precision)
    with clock("layering"):
        if boundaries:
            layering = manual_layers(graph, tuple(boundaries))
        elif num_layers is not None:
            layering = cluster_operators(graph, num_layers, delta=delta)
        else:
            layering = default_layering(graph, delta)
        layered = [
            assign_layers(graph, layering.layer_of_forward, layers)
            for layers in versions_of(rematerialization, len(layering.layers))
        ]
        check_options(pipeline, cluster, len(layering.layers))

    def chosen(costs: StageCosts) -> list[tuple[RangeKey, int]]:
        stages = best_pipeline(costs, cluster, pipeline, num_microbatches, bound=True).stages
        places = range(len(stages), 0, -1)
        return [
            ((first, end - 1, piece), terms.held(place, len(stages)))
            for place, (first, end, piece) in zip(places, stages, strict=True)
        ]

    with clock("sharding"), ExitStack() as stack:
        executor = stack.enter_context(Executor(scheduler))
        profile = profile_versions(
            layered, cluster, num_microbatches=num_microbatches, solver=solver, executor=executor,
            store=stack.enter_context(SolveCache(code_version=code_version())) if cache else None,
            chosen=chosen, progress=progress, cancel=cancel, submesh_space=pipeline.submesh_space,
            held_at=terms.held,
            layer_flops=tuple(layer.flops for layer in layering.layers),
        )  # fmt: skip
    with clock("pipeline"):
        best = best_pipeline(profile.costs, cluster, pipeline, num_microbatches)
    if not best.feasible:
        raise nothing_fits(profile.costs, cluster, num_microbatches, options=pipeline)
    options = PlanOptions(
        num_microbatches=num_microbatches, delta=delta, num_layers=len(layering.layers), solver=solver,
        boundaries=tuple(boundaries), pipeline=pipeline,
        rematerialization=rematerialization if isinstance(rematerialization, str) else "",
    )  # fmt: skip
    return assemble(graph, cluster, options, layering, profile, best, clock.seconds)


def replan(plan: Plan, *, num_microbatches: int | None = None, pipeline: PipelineOptions | None = None) -> Plan:
    """The best plan for another number of microbatches of the same size, or for other pipeline options, from the stage
    costs that `plan` keeps.

    Takes milliseconds: an evaluation of the costs and a run of the pipeline DP. Choices leaner than those that `plan`
    looked for are not sought: a schedule that holds more microbatches may need a plan of its own. Raises as `plan`
    does.
    """
    options = replace(
        plan.options,
        num_microbatches=plan.options.num_microbatches if num_microbatches is None else num_microbatches,
        pipeline=pipeline or plan.options.pipeline,
    )
    _check(num_microbatches=options.num_microbatches, delta=options.delta)
    best = best_pipeline(plan.costs, plan.cluster, options.pipeline, options.num_microbatches)
    if not best.feasible:
        raise nothing_fits(
            plan.costs, plan.cluster, options.num_microbatches, options=options.pipeline
        )  # fmt: skip
    return choose_stages(replace(plan, options=options), best)


def resolve(
    model: TrainingGraph | str,
    num_microbatches: int,
    *,
    rematerialization: bool | None = None,
    precision: str | None = None,
) -> TrainingGraph:
    """The graph of one microbatch: `model` itself, or a catalogue model captured with global batch / B samples."""
    if isinstance(model, TrainingGraph):
        if precision is not None and precision != model.precision:
            raise OptionError(
                "The precision of a captured graph is fixed",
                found=f"precision={precision!r} for a graph in {model.precision}",
                remedy="Give precision= to capture() instead.",
            )
        return model if rematerialization is None else replace(model, rematerialization=rematerialization)
    known = entry(model)
    samples = microbatch_size(known, num_microbatches)
    from alpa_explore.models.catalog import build
    from alpa_explore.tracing.capture import capture

    module, inputs = build(model, samples)
    return capture(
        module, inputs, name=model, recipe=model,
        precision=known.precision if precision is None else precision,
        rematerialization=known.rematerialization if rematerialization is None else rematerialization,
    )  # fmt: skip


def default_layering(graph: TrainingGraph, delta: float) -> Layering:
    """The catalogue's number of layers for a catalogue model, else 8; fewer where so many cannot be balanced."""
    most = entry(graph.recipe).num_layers if graph.recipe in names() else 8
    for layers in range(min(most, sum(1 for o in graph.forward_operators if o.flops > 0)), 1, -1):
        with suppress(LayeringError):
            return cluster_operators(graph, layers, delta=delta)
    return cluster_operators(graph, 1, delta=delta)


def _check(*, num_microbatches: int, delta: float) -> None:
    if num_microbatches < 1:
        raise OptionError(
            "The number of microbatches must be at least 1", found=f"B = {num_microbatches}", remedy="Give 1 or more."
        )
    if not 0 <= delta < float("inf"):
        raise OptionError(
            "delta is the share by which a layer may exceed the mean FLOPs", found=f"delta = {delta}",
            remedy="Give 0 or more; 0.5 is common.",
        )  # fmt: skip


class _Clock:
    """Seconds of each pass, in order."""

    def __init__(self) -> None:
        self.seconds: list[tuple[str, float]] = []

    @contextmanager
    def __call__(self, name: str) -> Iterator[None]:
        start = time.perf_counter()
        yield
        self.seconds.append((name, time.perf_counter() - start))
