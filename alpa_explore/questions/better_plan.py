"""Is there a better plan, now that a cluster's figures were measured: the present plan and the best one, both priced.

The present plan is repriced for the measured cluster (`reprice`), and the planner runs for it, with the same layers, B
and constraints; for a baseline, without what makes it one. In the paper's mode T leaves out the sends between stages:
the planner runs without it, too. All are compared by their simulated iteration, sends included.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, replace
from typing import Any

from alpa_explore.arguments import checked
from alpa_explore.cluster import Cluster
from alpa_explore.errors import InfeasiblePlanError
from alpa_explore.execution.progress import ProgressCallback
from alpa_explore.graph import TrainingGraph
from alpa_explore.inter_op.options import AUTO, PipelineOptions
from alpa_explore.planner.interface import planned
from alpa_explore.planner.request import PlanRequest
from alpa_explore.planner.resources import Running
from alpa_explore.plans.iteration_time import iteration_time
from alpa_explore.plans.plan import Plan
from alpa_explore.plans.rebuild import graph_of
from alpa_explore.questions.reprice import reprice

BETTER = 0.01
"""A plan that saves less than this share of an iteration is not better: predictions are not as exact."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BetterPlan:
    """The present plan and the best one, both for the same cluster."""

    present: Plan
    """Repriced."""
    present_seconds: float
    """Simulated seconds of an iteration."""
    best: Plan
    best_seconds: float
    """Of an iteration; the present plan's where none is faster."""

    @property
    def faster(self) -> float:
        """The share of an iteration's time that the best plan saves; 0 where there is no better one."""
        return 1.0 - self.best_seconds / self.present_seconds

    def __str__(self) -> str:
        """'Plan B, 1 stage on 2 devices, would be 18 % faster'."""
        if self.best is self.present:
            return "the present plan stays the best"
        return f"plan B, {_in_words(self.best)}, would be {100 * self.faster:.0f} % faster"


@checked("plan", "cluster", "graph")
def better_plan(
    plan: Plan,
    cluster: Cluster,
    graph: TrainingGraph | None = None,
    *,
    allow_import: bool = False,
    scheduler: Any = None,
    cache: bool = True,
    progress: ProgressCallback | None = None,
    cancel: threading.Event | None = None,
) -> BetterPlan:
    """The best plan for `cluster`, which has the shape of the plan's, beside `plan` itself.

    `graph` is the captured model, needed where the plan is from a file and has no recipe. The arguments beside are as
    in `ax.plan`. Raises what `reprice` and `ax.plan` raise, apart from InfeasiblePlanError: then nothing is better.
    """
    if graph is None:
        graph = graph_of(plan, allow_import=allow_import)
    present = reprice(plan, cluster, graph, allow_import=allow_import)
    best, seconds = present, present_seconds = present, simulated_seconds(present)
    # In the order of sequences that the plan has; of a plan in natural order the other one is tried, too.
    request = PlanRequest.again(plan.options, graph, cluster, plan.model.zigzag if plan.model.zigzag > 1 else None)
    if plan.options.baseline:
        own = PipelineOptions(schedule=request.pipeline.schedule, paper=request.pipeline.paper)
        request = replace(request, pipeline=own, spec_constraints=())
    running = Running(scheduler=scheduler, cache=cache, progress=progress, cancel=cancel)
    pipeline = request.pipeline
    if plan.schedules:  # with other figures another schedule may be the fastest
        pipeline = replace(pipeline, schedule=AUTO, stages_per_submesh=PipelineOptions().stages_per_submesh)
    whole = replace(pipeline, paper=False, communication=None, tied_weights=None)
    for asked in dict.fromkeys((pipeline, whole)) if pipeline.mode else (pipeline,):
        again = replace(request, pipeline=asked)
        try:
            other = planned(again, running)
        except InfeasiblePlanError:
            continue
        if (takes := simulated_seconds(other)) < (1.0 - BETTER) * seconds:
            best, seconds = other, takes
    return BetterPlan(present=present, present_seconds=present_seconds, best=best, best_seconds=seconds)


def simulated_seconds(plan: Plan) -> float:
    """Simulated seconds of an iteration with its sends; T for a plan that cannot be simulated."""
    time = iteration_time(plan)
    return plan.predicted.iteration_seconds if time is None else time.simulated_seconds


def _in_words(plan: Plan) -> str:
    counts = [len(stage.devices) for stage in plan.stages]
    stages = "1 stage" if len(counts) == 1 else f"{len(counts)} stages"
    if len(set(counts)) == 1:
        devices = "1 device" if counts[0] == 1 else f"{counts[0]} devices"
        return f"{stages} on {devices}" + (" each" if len(counts) > 1 else "")
    return f"{stages} on {', '.join(map(str, counts[:-1]))} and {counts[-1]} devices"
