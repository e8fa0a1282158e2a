"""The same plan on devices with other figures: the choices stay as they are, and their costs are predicted anew.

So a plan made before a calibration can be compared with a measured run. The stage costs of the result hold only the
candidates that the plan uses. Under other figures another plan may be better: plan again (`ax.plan`) to find it.
"""

from __future__ import annotations

from dataclasses import fields, replace

from alpa_explore.arguments import checked
from alpa_explore.cluster import Cluster, logical_mesh
from alpa_explore.errors import OptionError
from alpa_explore.graph import TrainingGraph
from alpa_explore.inter_op.stage_table import once_seconds
from alpa_explore.plans.assemble import NOTHING_PREDICTED, held_in_turns, with_predicted
from alpa_explore.plans.plan import Plan
from alpa_explore.plans.planned_stage import planned_stage
from alpa_explore.plans.rebuild import details_of, rebuild
from alpa_explore.plans.records import PlanStage
from alpa_explore.plans.schedule_stages import planned_schedule
from alpa_explore.pricing.stage_costs import RangeKey, StageCandidate
from alpa_explore.schedules.catalog import INTERLEAVED


@checked("plan", "cluster", "graph")
def reprice(plan: Plan, cluster: Cluster, graph: TrainingGraph | None = None, *, allow_import: bool = False) -> Plan:
    """`plan` with the figures of `cluster`, which must have as many nodes and devices.

    `graph` is the captured model, needed where the plan is from a file and has no recipe. OptionError for a cluster of
    another shape; raises as `rebuild` does.
    """
    if plan.cluster.others and not cluster.others:  # as where one machine stands for nodes of every kind
        same = (replace(kind, device=cluster.device, inside_node=cluster.inside_node) for kind in plan.cluster.others)
        cluster = replace(cluster, others=tuple(same))
    planned_shape, shape = ((c.nodes, c.devices_per_node) for c in (plan.cluster, cluster))
    if planned_shape != shape:
        raise OptionError(
            "The cluster has another shape than that of the plan",
            found=f"{shape[0]}x{shape[1]} for a plan on {planned_shape[0]}x{planned_shape[1]}",
            remedy=f"Give {planned_shape[0]}x{planned_shape[1]}:DEVICE, or plan for the other cluster.",
        )
    if [kind.nodes for kind in plan.cluster.kinds] != [kind.nodes for kind in cluster.kinds]:
        raise OptionError(
            "The kinds of nodes of the cluster are others than those of the plan",
            found=f"{cluster} for a plan on {plan.cluster}",
            remedy="Give as many nodes of each kind, in the same order, or plan for the other cluster.",
        )
    if graph is None and plan.details is not None:
        graph = plan.details.graph
    costs = replace(plan.costs, candidates=_used_candidates(plan, cluster), bounds={}, screened={})
    bare = replace(
        plan, cluster=cluster, costs=costs, details=None, basis=None, t_max_sweep=(), microbatches=(), schedules=()
    )
    rebuilt = rebuild(bare, graph, allow_import=allow_import)
    priced = {key: tuple(_priced(rebuilt, key, c) for c in used) for key, used in costs.candidates.items()}
    rebuilt = replace(rebuilt, costs=replace(costs, candidates=priced))
    tied = once_seconds(costs, cluster, plan.options.pipeline)

    def priced_stage(stage: PlanStage, turns: int) -> PlanStage:
        key = plan.key_of(stage)
        (candidate,) = [c for c in priced[key] if c.solution_key == stage.solution_key]
        return planned_stage(
            rebuilt,
            {},
            stage.index,
            key,
            stage.devices,
            candidate,
            held=stage.microbatches_held,
            tied_seconds=float(tied[key[0], key[1] + 1]),
            turns=turns,
        )

    turns = len(plan.interleaved) // len(plan.stages)
    interleaved = tuple(priced_stage(stage, turns) for stage in plan.interleaved)
    stages = tuple(priced_stage(stage, 1) for stage in plan.stages)
    if planned_schedule(plan) == INTERLEAVED:
        stages = tuple(held_in_turns(stage, interleaved) for stage in stages)
    return with_predicted(replace(rebuilt, stages=stages, interleaved=interleaved, predicted=NOTHING_PREDICTED))


def _used_candidates(plan: Plan, cluster: Cluster) -> dict[RangeKey, tuple[StageCandidate, ...]]:
    """The candidates of the plan's own stages, on logical meshes with the links of `cluster`."""
    used: dict[RangeKey, dict[str, StageCandidate]] = {}
    for stage in (*plan.stages, *plan.interleaved):
        mesh = logical_mesh(cluster, plan.submesh_of(stage), stage.logical_mesh)
        candidate = replace(plan.candidate_of(stage), logical_mesh=mesh)
        used.setdefault(plan.key_of(stage), {})[stage.solution_key] = candidate
    return {key: tuple(candidates.values()) for key, candidates in used.items()}


def _priced(plan: Plan, key: RangeKey, candidate: StageCandidate) -> StageCandidate:
    """`candidate` with the seconds that its choices take on the plan's cluster."""
    problem, choices = details_of(plan).solved(key[:2], candidate)
    totals = problem.totals(choices)
    return replace(candidate, **{part.name: getattr(totals, part.name) for part in fields(totals)})
