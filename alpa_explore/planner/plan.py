"""The Alpa planner on one screen: model → graph → layers → stage costs → pipeline → plan."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from functools import partial
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any, Literal

from alpa_explore.cluster import Cluster, logical_meshes, submeshes
from alpa_explore.errors import LayeringError, OptionError
from alpa_explore.execution.executors import Executor
from alpa_explore.execution.progress import ProgressCallback
from alpa_explore.graph import TrainingGraph
from alpa_explore.inter_op.options import PipelineOptions, check_options
from alpa_explore.inter_op.stage_table import best_pipeline
from alpa_explore.intra_op.solve import check_solver
from alpa_explore.intra_op.stage.layered_graph import assign_layers
from alpa_explore.layering import Layering, cluster_operators, manual_layers
from alpa_explore.models.catalog import divided_batch, entry, microbatch_size, names
from alpa_explore.numerics.collection import no_collection
from alpa_explore.planner.choose_microbatches import best_count, best_of_one_batch, best_of_one_size, known_microbatches
from alpa_explore.planner.nearest_fit import nothing_fits, too_small
from alpa_explore.plans.assemble import assemble, choose_stages
from alpa_explore.plans.plan import Plan
from alpa_explore.plans.rebuild import layered_graphs, rebuild
from alpa_explore.plans.records import PlanOptions
from alpa_explore.pricing.mesh_tasks import warm_up
from alpa_explore.pricing.stage_costs import RangeKey, StageCosts
from alpa_explore.search.lazy_pricing import profile_on_demand
from alpa_explore.search.profile_stages import SLOW, SOLVED_BY, SOLVED_WITH, Chosen
from alpa_explore.search.versions import profile_versions, versions_of
from alpa_explore.sharding.spec_constraint import SpecConstraint, check_constraints, constraints_of, mappings
from alpa_explore.store.cache import SolveCache
from alpa_explore.store.code_version import code_version
from alpa_explore.tracing.cancelling import cancelled_by
from alpa_explore.tracing.catalogue import catalogue_batches, catalogue_graph

if TYPE_CHECKING:
    from collections.abc import Iterator

    from alpa_explore.tracing.batches import Batches


def plan(
    model: TrainingGraph | Batches | str,
    cluster: Cluster | str,
    *,
    num_microbatches: int | Literal["auto"],
    global_batch: int | None = None,
    delta: float = 0.5,
    num_layers: int | None = None,
    solver: str = "auto",
    boundaries: Sequence[str] = (),
    rematerialization: bool | str | None = None,
    precision: str | None = None,
    scheduler: Any = None,
    cache: bool = True,
    progress: ProgressCallback | None = None,
    cancel: threading.Event | None = None,
    pipeline: PipelineOptions | None = None,
    pin: Mapping[str, str] | None = None,
    forbid: Mapping[str, str | Sequence[str]] | None = None,
) -> Plan:
    """Run the whole planner.

    `model` is a captured graph (one microbatch), a model at any batch size (`ax.capture_batches`), or a catalogue name
    (its microbatch is global batch / B; the global batch is the paper's unless given). `num_microbatches` "auto" takes
    the B of the most samples a second: with a global batch of all its divisors, which is the least T; else of
    microbatches of the size that `model` has. `scheduler`: None decides by the size of the work; 'serial', 'tcp://…' or
    a dask Client say where solves run. `rematerialization` holds less and computes again: True or False for all layers,
    'auto' where a stage needs it (three versions of the stage costs in place of one), None as the model says.
    `pipeline`: constraints, schedule and more, the paper's unless given. `pin` names operators and the spec that the
    output of each must have ({"addmm": "S0R"}), or parameters and the spec in which each is stored ({"fc.weight":
    "S0R"}); `forbid` specs that it must not have (`sharding/constraint.py`).

    Raises InfeasiblePlanError when nothing fits in memory, or satisfies all spec constraints; OptionError,
    UnknownNameError, ClusterError, LayeringError and CaptureError for input at fault; CancelledError when `cancel` is
    set.
    """
    cluster = cluster if isinstance(cluster, Cluster) else Cluster.parse(cluster)
    num_microbatches, delta, num_layers = _count(num_microbatches), _share(delta), _layers(num_layers)
    check_solver(solver)
    pipeline = _pipeline(pipeline)
    if isinstance(boundaries, str) or not isinstance(boundaries, Sequence):
        raise OptionError(
            "Layer boundaries are a list of names",
            found=repr(boundaries),
            remedy='Give boundaries=["blocks.1", "blocks.2"], say: operators or modules with which a layer begins.',
        )
    check_options(pipeline, cluster, num_microbatches=None if num_microbatches == "auto" else num_microbatches)
    spec_constraints = constraints_of(pin, forbid)
    versions_of(rematerialization, 1)
    whole = rematerialization if isinstance(rematerialization, bool) else None
    if num_microbatches == "auto" and isinstance(model, str) and global_batch is None:
        global_batch = entry(model).global_batch

    if num_microbatches == "auto" and global_batch is not None and isinstance(model, TrainingGraph):
        raise OptionError(
            "The microbatch of a captured graph is fixed",
            found=f"global_batch={global_batch} with a graph and B auto",
            remedy="Give `ax.capture_batches(module, inputs)` instead of the graph, or leave out global_batch.",
        )

    with ExitStack() as stack:
        executor = stack.enter_context(Executor(scheduler, warm_up=warm_up))
        store = stack.enter_context(SolveCache(code_version=code_version(SOLVED_BY, SOLVED_WITH))) if cache else None
        family = model
        if num_microbatches == "auto" and isinstance(model, str):
            family = catalogue_batches(model, rematerialization=whole, precision=precision, store=store)

        def captured(count: int) -> TrainingGraph:
            return resolve(
                family, count, rematerialization=whole, precision=precision, global_batch=global_batch, store=store
            )

        def hopeless(count: int) -> str:
            with executor.soon(), cancelled_by(cancel):
                return too_small(captured(count), cluster)

        def at(count: int, progress: ProgressCallback | None) -> Plan:
            return _planned(
                partial(captured, count),
                cluster,
                num_microbatches=count,
                delta=delta,
                num_layers=num_layers,
                solver=solver,
                boundaries=tuple(boundaries),
                executor=executor,
                store=store,
                progress=progress,
                cancel=cancel,
                pipeline=pipeline,
                rematerialization=rematerialization,
                spec_constraints=spec_constraints,
            )

        if num_microbatches != "auto":
            found = at(num_microbatches, progress)
        elif global_batch is None:
            found = best_of_one_size(pipeline, lambda count: at(count, _named(progress, count)), hopeless)
        else:
            found = best_of_one_batch(
                global_batch, pipeline, lambda count: at(count, _named(progress, count)), hopeless
            )
        said = (*(store.warnings if store is not None else ()), *executor.warnings)
        return replace(found, warnings=(*found.warnings, *said))


def _planned(
    captured: Callable[[], TrainingGraph],
    cluster: Cluster,
    *,
    num_microbatches: int,
    delta: float,
    num_layers: int | None,
    solver: str,
    boundaries: tuple[str, ...],
    executor: Executor,
    store: SolveCache | None,
    progress: ProgressCallback | None,
    cancel: threading.Event | None,
    pipeline: PipelineOptions,
    rematerialization: bool | str | None,
    spec_constraints: tuple[SpecConstraint, ...],
) -> Plan:
    """The passes in order, for one B."""
    clock = _Clock()
    with clock("capture"), executor.soon(), cancelled_by(cancel):
        graph = captured()
    with clock("layering"):
        if boundaries:
            layering = manual_layers(graph, boundaries)
        elif num_layers is not None:
            layering = cluster_operators(graph, num_layers, delta=delta)
        else:
            layering = default_layering(graph, delta)
        layered = [
            assign_layers(graph, layering.layer_of_forward, layers, spec_constraints)
            for layers in versions_of(rematerialization, len(layering.layers))
        ]
        check_options(pipeline, cluster, len(layering.layers))
        pieces = submeshes(cluster, pipeline.submesh_space)
        check_constraints(
            spec_constraints, graph, [m.squeezed().shape for piece in pieces for m in logical_meshes(cluster, piece)]
        )

    with clock("sharding"):
        profile = profile_versions(
            layered,
            cluster,
            num_microbatches=num_microbatches,
            solver=solver,
            executor=executor,
            store=store,
            chosen=_chosen(cluster, pipeline, num_microbatches),
            progress=progress,
            cancel=cancel,
            submesh_space=pipeline.submesh_space,
            held_at=pipeline.terms(num_microbatches).held,
            layer_flops=tuple(layer.flops for layer in layering.layers),
        )
    with clock("pipeline"):
        best = best_pipeline(profile.costs, cluster, pipeline, num_microbatches)
    if not best.feasible:
        raise nothing_fits(
            profile.costs,
            cluster,
            num_microbatches,
            options=pipeline,
            spec_constraints=spec_constraints,
            samples=graph.samples,
        )
    options = PlanOptions(
        num_microbatches=num_microbatches,
        delta=delta,
        num_layers=len(layering.layers),
        solver=solver,
        boundaries=boundaries,
        pipeline=pipeline,
        rematerialization=rematerialization if isinstance(rematerialization, str) else "",
        spec_constraints=spec_constraints,
    )
    return assemble(graph, cluster, options, layering, profile, best, clock.seconds)


def replan(
    plan: Plan,
    *,
    num_microbatches: int | Literal["auto"] | None = None,
    pipeline: PipelineOptions | None = None,
    delta: float | None = None,
    scheduler: Any = None,
    cache: bool = True,
    progress: ProgressCallback | None = None,
    cancel: threading.Event | None = None,
    known_alone: bool = False,
) -> Plan:
    """The best plan for another number of microbatches of the same size, for other pipeline options, or for another
    delta, from the stage costs that `plan` keeps; B "auto" takes that of the most samples a second (the fewest of those
    within 1 %).

    Takes milliseconds: an evaluation of the costs and a run of the pipeline DP. Choices leaner than those that `plan`
    looked for are not sought: a schedule that holds more microbatches may need a plan of its own. Another B with the
    same global batch has microbatches of another size, and so other problems: ask `ax.plan`.

    Another delta makes other layers. Only stages that the best pipeline wants are priced, within bounds from the stage
    costs of `plan`: less than a second, where stages can be composed, else as long as `ax.plan`. The costs of that plan
    are not complete (`StageCosts.complete`), and another B of it is the best of what was priced: where nothing of that
    fits others are priced, unless `known_alone`. A plan from a file is captured again. `cancel` stops that; where it
    takes as long as `ax.plan`, `scheduler`, `cache` and `progress` are those of `ax.plan`. Raises as `plan` does.
    """
    how: dict[str, Any] = {"scheduler": scheduler, "cache": cache, "progress": progress, "cancel": cancel}
    options = replace(plan.options, pipeline=plan.options.pipeline if pipeline is None else _pipeline(pipeline))
    asked = _count(options.num_microbatches if num_microbatches is None else num_microbatches)
    delta = options.delta if delta is None else _share(delta)
    if delta != options.delta:
        if asked == "auto":
            raise OptionError("B is a number where delta changes", found="'auto'", remedy="Replan for B afterwards.")
        return _other_layers(plan, replace(options, num_microbatches=asked, delta=delta), **how)
    plan = replace(plan, options=options, microbatches=())
    if asked == "auto":
        found = known_microbatches(plan)
        asked = best_count(found) or options.num_microbatches
        plan = replace(plan, microbatches=found)
    check_options(options.pipeline, plan.cluster, len(plan.layers), asked)
    best = best_pipeline(plan.costs, plan.cluster, options.pipeline, asked)
    if not best.feasible:
        if not plan.costs.complete and not known_alone:  # others than those priced may fit
            return _other_layers(plan, replace(options, num_microbatches=asked), **how)
        raise nothing_fits(
            plan.costs,
            plan.cluster,
            asked,
            options=options.pipeline,
            spec_constraints=options.spec_constraints,
            samples=plan.model.samples,
        )
    return choose_stages(replace(plan, options=replace(options, num_microbatches=asked)), best)


def _other_layers(before: Plan, options: PlanOptions, *, cancel: threading.Event | None, **how: Any) -> Plan:
    """The best plan with the delta of `options`, where `before` has another; `how` is what `plan` takes besides."""
    if options.boundaries or options.baseline:
        raise OptionError(
            "delta says nothing of these layers",
            remedy="Plan without boundaries, and no baseline, to move delta.",
            found=options.baseline or f"{len(options.boundaries)} boundaries set by hand",
        )
    with cancelled_by(cancel):
        details = rebuild(before).details
    assert details is not None, "a rebuilt plan has its problems"
    basis = before.basis or before
    clock, cluster, b = _Clock(), basis.cluster, options.num_microbatches
    with clock("layering"):
        layering = cluster_operators(details.graph, options.num_layers, delta=options.delta)
        own = assign_layers(details.graph, layering.layer_of_forward, spec_constraints=options.spec_constraints)
        known = layered_graphs(basis, details.graph)
    if own.layer_of == known[0].layer_of and basis.costs.complete:
        return replan(replace(basis, options=options, microbatches=()))
    profile = None
    known_well = basis.costs.complete and SLOW not in basis.warnings
    same_space = options.pipeline.submesh_space == basis.options.pipeline.submesh_space
    if known_well and same_space and len(known) == 1 and options.solver == "auto":
        check_options(options.pipeline, cluster, options.num_layers, b)
        with clock("sharding"), no_collection():
            profile = profile_on_demand(
                own,
                cluster,
                other=known[0],
                known=basis.costs,
                num_microbatches=b,
                cancel=cancel,
                chosen=_chosen(cluster, options.pipeline, b),
                held_at=options.pipeline.terms(b).held,
                layer_flops=tuple(layer.flops for layer in layering.layers),
            )
    if profile is not None:
        with clock("pipeline"):
            best = best_pipeline(profile.costs, cluster, options.pipeline, b)
        if best.feasible:
            return assemble(details.graph, cluster, options, layering, profile, best, clock.seconds, basis)
    return plan(
        details.graph,
        cluster,
        num_microbatches=b,
        delta=options.delta,
        num_layers=options.num_layers,
        solver=options.solver,
        rematerialization=options.rematerialization or None,
        pipeline=options.pipeline,
        cancel=cancel,
        **how,
        **mappings(options.spec_constraints),
    )


def _chosen(cluster: Cluster, pipeline: PipelineOptions, num_microbatches: int) -> Chosen:
    """The stages of the best pipeline by the proven bounds, and the microbatches that each holds."""
    terms = pipeline.terms(num_microbatches)

    def chosen(costs: StageCosts) -> list[tuple[RangeKey, int]]:
        stages = best_pipeline(costs, cluster, pipeline, num_microbatches, bound=True).stages
        places = range(len(stages), 0, -1)
        return [
            ((first, end - 1, piece), terms.held(place, len(stages)))
            for place, (first, end, piece) in zip(places, stages, strict=True)
        ]

    return chosen


def resolve(
    model: TrainingGraph | Batches | str,
    num_microbatches: int,
    *,
    rematerialization: bool | None = None,
    precision: str | None = None,
    global_batch: int | None = None,
    store: SolveCache | None = None,
) -> TrainingGraph:
    """The graph of one microbatch: `model` itself, or the model captured with global batch / B samples.

    Graphs of catalogue models are kept in `store`.
    """
    if isinstance(model, str):
        known = entry(model)
        samples = microbatch_size(known, num_microbatches, global_batch)
        return catalogue_graph(known, samples, rematerialization=rematerialization, precision=precision, store=store)
    if isinstance(model, TrainingGraph):
        graph = model
        if global_batch is not None and graph.samples * num_microbatches != global_batch:
            raise OptionError(
                "The microbatch of a captured graph is fixed",
                found=f"{graph.samples} samples × B = {num_microbatches} for a global batch of {global_batch}",
                remedy="Give `ax.capture_batches(module, inputs)` instead of the graph, or another B.",
            )
    elif not hasattr(model, "at_batch"):
        raise OptionError(
            "A model is planned once it is captured",
            found=type(model).__name__,
            remedy="Give `ax.capture(module, inputs)`, `ax.capture_batches(module, inputs)`, or a name that "
            "`alpa-explore models` lists.",
        )
    else:
        samples = model.samples
        if global_batch is not None:
            samples = divided_batch(global_batch, num_microbatches, "the model")
        graph = model.at_batch(samples)
    if precision is not None and precision != graph.precision:
        raise OptionError(
            "The precision of a captured graph is fixed",
            found=f"precision={precision!r} for a graph in {graph.precision}",
            remedy="Give precision= to capture() instead.",
        )
    return graph if rematerialization is None else replace(graph, rematerialization=rematerialization)


def default_layering(graph: TrainingGraph, delta: float) -> Layering:
    """The catalogue's number of layers for a catalogue model, else 8; fewer where so many cannot be balanced."""
    most = entry(graph.recipe).num_layers if graph.recipe in names() else 8
    for layers in range(min(most, sum(1 for o in graph.forward_operators if o.flops > 0)), 1, -1):
        with suppress(LayeringError):
            return cluster_operators(graph, layers, delta=delta)
    return cluster_operators(graph, 1, delta=delta)


def _named(progress: ProgressCallback | None, count: int) -> ProgressCallback | None:
    """`progress` with B in the name of every pass."""
    if progress is None:
        return None
    return lambda seen: progress(replace(seen, pass_name=f"B = {count}: {seen.pass_name}"))


def _count(given: int | Literal["auto"]) -> int | Literal["auto"]:
    """B, where it can be one; numpy's integers become Python's, which files and keys are made of."""
    if given == "auto":
        return given
    if isinstance(given, bool) or not isinstance(given, Integral):
        raise OptionError("B is a whole number or 'auto'", found=repr(given), remedy="Give 1 or more, or 'auto'.")
    if given < 1:
        raise OptionError(
            "The number of microbatches must be at least 1", found=f"B = {given}", remedy="Give 1 or more."
        )
    return int(given)


def _pipeline(given: PipelineOptions | None) -> PipelineOptions:
    """Pipeline options, the paper's where none are given."""
    if given is not None and not isinstance(given, PipelineOptions):
        raise OptionError(
            "Pipeline options are a PipelineOptions",
            found=repr(given),
            remedy="Give pipeline=ax.PipelineOptions(schedule='gpipe', cuts=(4, 8)), say.",
        )
    return given or PipelineOptions()


def _share(delta: float) -> float:
    """delta, where it can be one."""
    if isinstance(delta, bool) or not isinstance(delta, Real) or not 0 <= delta < float("inf"):
        raise OptionError(
            "delta is the share by which a layer may exceed the mean FLOPs",
            found=f"delta = {delta!r}",
            remedy="Give 0 or more; 0.5 is common.",
        )
    return float(delta)


def _layers(given: int | None) -> int | None:
    """The number of layers, where it can be one."""
    if given is None:
        return None
    if isinstance(given, bool) or not isinstance(given, Integral):
        raise OptionError(
            "The number of layers is a whole number",
            found=repr(given),
            remedy="Give 1 or more, or leave it out for as many as can be balanced.",
        )
    return int(given)


class _Clock:
    """Seconds of each pass, in order."""

    def __init__(self) -> None:
        self.seconds: list[tuple[str, float]] = []

    @contextmanager
    def __call__(self, name: str) -> Iterator[None]:
        start = time.perf_counter()
        yield
        self.seconds.append((name, time.perf_counter() - start))
