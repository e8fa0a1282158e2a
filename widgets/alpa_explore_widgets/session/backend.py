"""The functions of alpa_explore that a session calls. They are imported on their first call, on a background thread:
importing torch takes seconds, and the cell that shows the explorer must return at once."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from importlib import import_module
from typing import TYPE_CHECKING, Any

from alpa_explore.cluster import Cluster
from alpa_explore.execution.progress import ProgressCallback
from alpa_explore.graph import TrainingGraph
from alpa_explore.planner.request import PlanRequest
from alpa_explore.plans.plan import Plan
from alpa_explore_widgets.session import tuning

if TYPE_CHECKING:
    from alpa_explore.attached.attach import Attached
    from alpa_explore.calibration.profiling.profile import Profile
    from alpa_explore.planner.fitting import FittingCluster
    from alpa_explore.questions.better_plan import BetterPlan
    from alpa_explore.questions.what_if import Regret
    from alpa_explore.runtime.drift import Drift
    from alpa_explore.runtime.run import Run
    from alpa_explore.uniform_layouts.measured import MeasuredLayout
    from alpa_explore.uniform_layouts.ranking import Layouts
    from alpa_explore.uniform_layouts.scaling import Scaling


def _late(module: str, name: str) -> Callable[..., Any]:
    """The function `name` of a module of alpa_explore, which is imported on the first call."""

    def call(*arguments: Any, **options: Any) -> Any:
        return getattr(import_module(f"alpa_explore.{module}"), name)(*arguments, **options)

    return call


def _capture(name: str, microbatch: int, precision: str | None = None) -> TrainingGraph:
    from alpa_explore.planner.microbatch_graph import microbatch_graph
    from alpa_explore.planner.resources import solve_cache

    return microbatch_graph(name, 1, global_batch=microbatch, precision=precision, store=solve_cache())


def _dry_run(plan: Plan, **launch_arguments: Any) -> dict[str, Any]:
    from alpa_explore.runtime.launch import describe_run, request_of

    return describe_run(request_of(plan, **launch_arguments))


def _better_plan(plan: Plan, drift: Drift, *, cancel: threading.Event) -> BetterPlan:
    from alpa_explore.questions.better_plan import better_plan

    return better_plan(plan, drift.cluster, cancel=cancel)


class KnownPlans:
    """Keeps the last few plans, by all that they depend on: a cell that is run again shows its plan at once.

    The cache on disk has the solves of a known plan, from which the planner needs most of a second to put it together.
    """

    def __init__(self, most: int) -> None:
        """`most` plans are kept, the ones that were used last."""
        self._most = most
        self._plans: dict[tuple[object, ...], Plan] = {}
        self._lock = threading.Lock()

    def plan(
        self,
        make: Callable[..., Plan],
        graph: TrainingGraph,
        cluster: Cluster,
        *,
        reports: Mapping[str, Any],
        **options: Any,
    ) -> Plan:
        """The plan that `make(graph, cluster, **options, **reports)` makes, or made before: `reports`, the arguments
        for progress and cancellation, change no plan. Raises what `make` raises."""
        key = (graph.content_key, graph.name, cluster, repr(sorted(options.items())))
        with self._lock:
            known = self._plans.pop(key, None)
        plan = make(graph, cluster, **options, **reports) if known is None else _known(known)
        with self._lock:
            self._plans[key] = plan
            for oldest in list(self._plans)[: -self._most]:
                del self._plans[oldest]
        return plan


def _known(plan: Plan) -> Plan:
    """The plan with statistics that say that nothing was solved for it."""
    return replace(plan, statistics=replace(plan.statistics, cached_solves=plan.statistics.distinct_solves))


_KNOWN_PLANS = KnownPlans(tuning.KEPT_PLANS)


def _plan(
    graph: TrainingGraph,
    cluster: Cluster,
    *,
    progress: ProgressCallback | None = None,
    cancel: threading.Event | None = None,
    pipeline: dict[str, Any] | None = None,
    **options: Any,
) -> Plan:
    """`pipeline`: the fields of PipelineOptions that differ from their defaults."""
    from alpa_explore.inter_op.options import PipelineOptions
    from alpa_explore.planner.interface import plan

    reports = {"progress": progress, "cancel": cancel}
    pipeline_options = PipelineOptions(**(pipeline or {}))
    return _KNOWN_PLANS.plan(plan, graph, cluster, reports=reports, pipeline=pipeline_options, **options)


def _replan(
    plan: Plan,
    *,
    graph: Callable[[], TrainingGraph],
    num_microbatches: int,
    delta: float,
    cancel: threading.Event,
    progress: ProgressCallback,
    cluster: Cluster | None = None,
    **pipeline: Any,
) -> Plan:
    """`pipeline`: fields of the plan's PipelineOptions to change. Another `cluster` of the same shape prices the
    choices of the plan again, which stay as they are. `graph` captures the model; it is called only when another δ
    needs the graph of a plan that was read from a file."""
    from alpa_explore.planner.replan import replan
    from alpa_explore.plans.rebuild import rebuild
    from alpa_explore.questions.reprice import reprice
    from alpa_explore.tracing.cancelling import cancelled_by

    if plan.basis is not None and plan.basis.cluster != plan.cluster:
        plan = plan.basis  # which has the costs of more stages than the repriced ones
    if plan.details is None and (delta != plan.options.delta or not plan.costs.complete):
        with cancelled_by(cancel):
            plan = rebuild(plan, graph())
    if "paper" in pipeline:  # what is counted follows from it
        pipeline = {"communication": None, "tied_weights": None, **pipeline}
    options = replace(plan.options.pipeline, **pipeline)
    now = plan.options
    if (num_microbatches, options, delta) != (now.num_microbatches, now.pipeline, now.delta):
        plan = replan(
            plan, num_microbatches=num_microbatches, pipeline=options, delta=delta, cancel=cancel, progress=progress
        )
    if cluster is None or cluster == plan.cluster:
        return plan
    if cluster == plan.cluster.with_changes(memory_bytes=cluster.device.memory_bytes):
        return replace(plan, cluster=cluster, basis=plan)  # no price depends on the size of memory
    with cancelled_by(cancel):
        known = plan if plan.details is not None else rebuild(plan, graph())
        return replace(reprice(known, cluster), basis=plan)


def _fit_request(graph: TrainingGraph, cluster: Cluster, options: dict[str, Any]) -> PlanRequest:
    """`options`: as for `_plan`."""
    from alpa_explore.inter_op.options import PipelineOptions
    from alpa_explore.planner.request import PlanRequest
    from alpa_explore.sharding.spec_constraint import constraints_of

    constraints = constraints_of(options.pop("pin", None), options.pop("forbid", None))
    pipeline = PipelineOptions(**(options.pop("pipeline", None) or {}))
    return PlanRequest(model=graph, cluster=cluster, pipeline=pipeline, spec_constraints=constraints, **options)


def _fitting_cluster(
    graph: TrainingGraph, cluster: Cluster, *, cancel: threading.Event, **options: Any
) -> FittingCluster | None:
    from alpa_explore.planner.fitting import fitting_cluster

    return fitting_cluster(graph, _fit_request(graph, cluster, options), cancel=cancel)


def _fits(graph: TrainingGraph, cluster: Cluster, *, cancel: threading.Event, **options: Any) -> bool | None:
    from alpa_explore.planner.fitting import fits

    return fits(graph, _fit_request(graph, cluster, options), stop=cancel)


def _layouts(*arguments: Any, **options: Any) -> tuple[Layouts, tuple[MeasuredLayout, ...]]:
    from alpa_explore.uniform_layouts.layouts import layouts
    from alpa_explore.uniform_layouts.measured import measured_beside

    found = layouts(*arguments, **options)
    return found, measured_beside(found)


_baseline = _late("baselines.baseline", "baseline")
_scaling = _late("uniform_layouts.scaling", "scaling")
_regrets = _late("questions.what_if", "regrets")
_check_run = _late("runtime.launch", "request_of")
_launch = _late("runtime.launch", "launch")
_attach = _late("attached.attach", "attach")
_profile = _late("attached.profile", "profile")


@dataclass(frozen=True, slots=True, kw_only=True)
class Backend:
    """Captures, plans and runs; tests replace single functions."""

    capture: Callable[..., TrainingGraph] = _capture
    """(catalogue name, samples of a microbatch, precision=… if not the model's default) -> the graph."""
    plan: Callable[..., Plan] = _plan
    replan: Callable[..., Plan] = _replan
    baseline: Callable[..., Plan] = _baseline
    fitting_cluster: Callable[..., FittingCluster | None] = _fitting_cluster
    """(graph, cluster, options of the plan) -> the larger cluster on which it fits."""
    fits: Callable[..., bool | None] = _fits
    """The same arguments -> whether a plan fits; None where that is not known."""
    layouts: Callable[..., tuple[Layouts, tuple[MeasuredLayout, ...]]] = _layouts
    """The arguments of `ax.layouts` -> all layouts, and measured runs of the same kind."""
    scaling: Callable[..., Scaling] = _scaling
    """Those of `ax.scaling`."""
    regrets: Callable[[Plan, int, str], tuple[Regret, ...]] = _regrets
    """(plan, stage, operator) -> the cost of each of its strategies."""
    check_run: Callable[..., object] = _check_run
    """(plan, arguments of `ax.launch`); raises the reason where the plan cannot run."""
    dry_run: Callable[..., dict[str, Any]] = _dry_run
    """The same arguments -> a description of the lowered and checked program."""
    launch: Callable[..., Run] = _launch
    better_plan: Callable[..., BetterPlan] = _better_plan
    """(plan, drift of its run, cancel) -> the best plan with the measured figures, beside the present one."""
    attach: Callable[..., Attached] = _attach
    """(address, found, progress and cancel of `ax.attach`) -> the hosts of a Dask scheduler and their links."""
    profile: Callable[..., Profile] = _profile
    """The arguments of `ax.profile` -> the kernels that were timed."""
