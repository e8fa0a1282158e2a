"""The same plan on devices with other figures: every choice as it is, what it takes priced anew.

A plan that was made before a calibration can so be compared with what it measured. Its stage costs hold only what the
plan itself uses: with other figures another plan may be better, which `ax.plan` says.
"""

from __future__ import annotations

from dataclasses import replace

from alpa_explore.cluster import Cluster, Submesh, logical_mesh
from alpa_explore.errors import OptionError
from alpa_explore.graph import TrainingGraph
from alpa_explore.inter_op.stage_table import once_seconds
from alpa_explore.plans.plan import Plan
from alpa_explore.plans.planned_stage import planned_stage
from alpa_explore.plans.rebuild import rebuild
from alpa_explore.plans.records import PlanStage
from alpa_explore.pricing.stage_costs import RangeKey, StageCandidate


def reprice(plan: Plan, cluster: Cluster, graph: TrainingGraph | None = None, *, allow_import: bool = False) -> Plan:
    """`plan` with the figures of `cluster`, which must have as many nodes and devices.

    `graph` is the captured model where the plan is from a file and has no recipe. OptionError for a cluster of another
    shape; raises as `rebuild` does.
    """
    shape, asked = ((c.nodes, c.devices_per_node) for c in (plan.cluster, cluster))
    if shape != asked:
        raise OptionError(
            "A plan is priced on a cluster of its own shape",
            found=f"{asked[0]}x{asked[1]} for a plan on {shape[0]}x{shape[1]}",
            remedy=f"Give {shape[0]}x{shape[1]}:DEVICE, or plan for the other cluster.",
        )
    if graph is None and plan.details is not None:
        candidate = plan.candidate_of(plan.stages[0])
        problem = plan.details.problem(plan.stages[0].layers, candidate.logical_mesh, candidate.version)
        graph = problem.stage.layered.graph
    used: dict[RangeKey, dict[str, StageCandidate]] = {}
    for stage in (*plan.stages, *plan.interleaved):
        candidate = plan.candidate_of(stage)
        mesh = logical_mesh(cluster, Submesh(*stage.submesh), stage.logical_mesh)
        used.setdefault(_key(plan, stage), {})[stage.solution_key] = replace(candidate, logical_mesh=mesh)
    costs = replace(plan.costs, candidates={key: tuple(own.values()) for key, own in used.items()}, bounds={})
    made = rebuild(
        replace(plan, cluster=cluster, costs=costs, details=None, basis=None, t_max_sweep=(), microbatches=()),
        graph,
        allow_import=allow_import,
    )
    priced = {key: tuple(_priced(made, key, c) for c in own) for key, own in costs.candidates.items()}
    made = replace(made, costs=replace(costs, candidates=priced))
    tied = once_seconds(costs, cluster, plan.options.pipeline)

    def again(stage: PlanStage, turns: int) -> PlanStage:
        key = _key(plan, stage)
        (candidate,) = [c for c in priced[key] if c.solution_key == stage.solution_key]
        once = float(tied[key[0], key[1] + 1])
        return planned_stage(
            made,
            {},
            stage.index,
            key,
            stage.devices,
            candidate,
            held=stage.microbatches_held,
            tied_seconds=once,
            turns=turns,
        )

    stages = tuple(again(stage, 1) for stage in plan.stages)
    latencies, b = [s.latency_seconds for s in stages], plan.options.num_microbatches
    total = plan.terms.iteration_seconds(latencies) + sum(s.tied_seconds for s in stages)
    return replace(
        made,
        stages=stages,
        interleaved=tuple(again(stage, len(plan.interleaved) // len(stages)) for stage in plan.interleaved),
        predicted=replace(
            plan.predicted,
            iteration_seconds=total,
            t_max_seconds=max(latencies),
            sum_latency_seconds=sum(latencies),
            bubble_fraction=max(0.0, 1.0 - b * sum(latencies) / (len(stages) * total)),
        ),
    )


def _key(plan: Plan, stage: PlanStage) -> RangeKey:
    return (*stage.layers, plan.costs.submeshes.index(Submesh(*stage.submesh)))


def _priced(plan: Plan, key: RangeKey, candidate: StageCandidate) -> StageCandidate:
    assert plan.details is not None, "it was rebuilt"
    problem = plan.details.problem(key[:2], candidate.logical_mesh, candidate.version)
    found = problem.totals(plan.details.choices[candidate.solution_key])
    return replace(candidate, microbatch_seconds=found.microbatch_seconds, iteration_seconds=found.iteration_seconds)
