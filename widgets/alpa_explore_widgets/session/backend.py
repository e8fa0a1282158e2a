"""The functions of alpa_explore that an explorer works with; their imports (torch) never hold up a cell."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from alpa_explore.errors import OptionError

if TYPE_CHECKING:
    from alpa_explore.execution.progress import ProgressCallback
    from alpa_explore.graph import TrainingGraph
    from alpa_explore.intra_op.formulations.comparison import Comparison
    from alpa_explore.plans.plan import Plan
    from alpa_explore.questions.what_if import Regret
    from alpa_explore.runtime.launch import Run

COMPARE_SECONDS = 20.0
"""For each formulation."""


def _capture(name: str, microbatch: int, precision: str | None = None) -> TrainingGraph:
    from alpa_explore.models.catalog import entry
    from alpa_explore.planner.plan import resolve

    return resolve(name, entry(name).global_batch // microbatch, precision=precision)


def _plan(*arguments: Any, pipeline: dict[str, Any] | None = None, **options: Any) -> Plan:
    """`pipeline`: the fields of PipelineOptions that are not the paper's."""
    from alpa_explore.inter_op.options import PipelineOptions
    from alpa_explore.planner.plan import plan

    return plan(*arguments, pipeline=PipelineOptions(**(pipeline or {})), **options)


def _replan(
    plan: Plan,
    *,
    graph: Callable[[], TrainingGraph],
    num_microbatches: int,
    delta: float,
    cancel: threading.Event,
    progress: ProgressCallback,
    **pipeline: Any,
) -> Plan:
    """`pipeline`: fields of the plan's PipelineOptions to change. `graph` is asked for where another delta wants the
    model of a plan that was read from a file."""
    from alpa_explore.planner.plan import replan
    from alpa_explore.plans.rebuild import rebuild
    from alpa_explore.tracing.cancelling import cancelled_by

    if plan.details is None and (delta != plan.options.delta or not plan.costs.complete):
        with cancelled_by(cancel):
            plan = rebuild(plan, graph())
    options = replace(plan.options.pipeline, **pipeline)
    return replan(
        plan, num_microbatches=num_microbatches, pipeline=options, delta=delta, cancel=cancel, progress=progress
    )


def _baseline(*arguments: Any, **options: Any) -> Plan:
    from alpa_explore.baselines.baseline import baseline

    return baseline(*arguments, **options)


def _compare(plan: Plan, stage: int) -> Comparison:
    """The formulations on the first layer of a stage."""
    from alpa_explore.cluster import Submesh, logical_mesh
    from alpa_explore.intra_op.formulations.compare import compare_solvers
    from alpa_explore.intra_op.formulations.comparison import StageInstance

    chosen = plan.stages[stage]
    if plan.details is None:
        raise OptionError(
            "The model of this plan is not here", found="a plan from a file", remedy="Press Plan: it is kept then."
        )
    first = chosen.layers[0]
    mesh = logical_mesh(plan.cluster, Submesh(*chosen.submesh), chosen.logical_mesh)
    problem = plan.details.problem((first, first), mesh)
    instance = StageInstance(
        stage=problem.stage,
        device=plan.cluster.device,
        mesh=mesh.squeezed(),
        inverse_b=1 / plan.options.num_microbatches,
    )
    return compare_solvers(instance, time_limit_seconds=COMPARE_SECONDS)


def _regrets(plan: Plan, stage: int, operator: str) -> tuple[Regret, ...]:
    from alpa_explore.questions.what_if import regrets

    return regrets(plan, stage, operator)


def _check_run(plan: Plan, **asked: Any) -> None:
    from alpa_explore.runtime.launch import request_of

    request_of(plan, **asked)


def _dry_run(plan: Plan, **asked: Any) -> dict[str, Any]:
    from alpa_explore.runtime.launch import describe_run, request_of

    return describe_run(request_of(plan, **asked))


def _launch(plan: Plan, **asked: Any) -> Run:
    from alpa_explore.runtime.launch import launch

    return launch(plan, **asked)


@dataclass(frozen=True, slots=True, kw_only=True)
class Planner:
    """What captures, plans and runs; tests bring their own."""

    capture: Callable[..., TrainingGraph] = _capture
    """(catalogue name, samples of a microbatch, precision=… where it is not the model's) -> the graph."""
    plan: Callable[..., Plan] = _plan
    replan: Callable[..., Plan] = _replan
    baseline: Callable[..., Plan] = _baseline
    compare: Callable[[Plan, int], Comparison] = _compare
    """(plan, stage) -> its first layer by each formulation."""
    regrets: Callable[[Plan, int, str], tuple[Regret, ...]] = _regrets
    """(plan, stage, operator) -> what each of its strategies would cost."""
    check_run: Callable[..., None] = _check_run
    """(plan, what `ax.launch` takes) -> nothing where it can run, else the reason is raised."""
    dry_run: Callable[..., dict[str, Any]] = _dry_run
    """The same, lowered and checked: what would run."""
    launch: Callable[..., Run] = _launch
