"""Plan again for fewer devices: the same model, microbatches and global batch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from alpa_explore.cluster import Cluster
from alpa_explore.errors import OptionError
from alpa_explore.graph import TrainingGraph
from alpa_explore.inter_op.options import PipelineOptions
from alpa_explore.planner.plan import plan_request
from alpa_explore.planner.request import PlanRequest
from alpa_explore.planner.resources import open_resources
from alpa_explore.plans.plan import Plan
from alpa_explore.plans.rebuild import capture_again

Replan = Callable[[Plan, Cluster], Plan]
"""(plan that no longer fits, cluster that is left) -> a plan for it."""


def plan_again(plan: Plan, cluster: Cluster, graph: TrainingGraph | None, *, allow_import: bool) -> Plan:
    """The planner's plan for `cluster`, with the settings of `plan`, apart from demands on stages and their submeshes,
    which were made for another cluster. `graph` is needed for a model without a recipe. Raises as `ax.plan` does."""
    if plan.details is not None:
        graph = plan.details.graph
    graph = capture_again(plan.model, allow_import=allow_import) if graph is None else graph
    before = plan.options.pipeline
    pipeline = PipelineOptions(
        paper=before.paper,
        communication=before.communication,
        schedule=before.schedule,
        stages_per_submesh=before.stages_per_submesh,
        tied_weights=before.tied_weights,
    )
    # In natural order, unless the graph is in another: the devices that are left may be no multiple of those.
    request = PlanRequest.again(replace(plan.options, pipeline=pipeline), graph, cluster, None)
    with open_resources(scheduler="serial", cache=True, progress=None, cancel=None) as resources:
        return plan_request(request, resources)


def cluster_left(plan: Plan, nodes: int, devices_per_node: int) -> Cluster:
    """The cluster of a plan with fewer devices. OptionError for one of unlike nodes: which are left is not known."""
    if plan.cluster.others:
        raise OptionError(
            "Hosts of a cluster of unlike nodes were lost, and which kinds are left is not known",
            found=f"{nodes} × {devices_per_node} devices of {plan.cluster}",
            remedy="Plan for the hosts that are left, as in '1x8:h100', and launch that plan with resume=.",
        )
    return plan.cluster.resized(nodes, devices_per_node)


def check_replanned(new: Plan, old: Plan, cluster: Cluster) -> None:
    """OptionError where a plan is of another model than the one before, or needs more devices than are left."""
    if new.model.name != old.model.name or new.model.parameters != old.model.parameters:
        raise OptionError(
            "The new plan is of another model",
            found=f"{new.model.name} in place of {old.model.name}",
            remedy="Let replan= plan the same model.",
        )
    if new.cluster.devices > cluster.devices:
        raise OptionError(
            "The new plan needs more devices than are left",
            found=f"{new.cluster}, {cluster.devices} are left",
            remedy="Let replan= plan for the cluster that it is given.",
        )


def words(plan: Plan) -> str:
    """A plan in a few words: '2 stages on 1x2:cpu: 1x1, 1x1'."""
    count = len(plan.stages)
    shapes = ", ".join(f"{'x'.join(map(str, s.submesh))} {s.device}".rstrip() for s in plan.stages)
    return f"{count} stage{'s' * (count > 1)} on {plan.cluster}: {shapes}"
