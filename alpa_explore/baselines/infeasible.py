"""Errors of baselines that do not fit in memory: the pipeline that is closest to fitting, and how much it lacks."""

from __future__ import annotations

import math
from collections.abc import Sequence

from alpa_explore import units
from alpa_explore.baselines.role_pipelines import RolePipeline
from alpa_explore.cluster import Cluster
from alpa_explore.errors import InfeasiblePlanError
from alpa_explore.inter_op.schedule_terms import ScheduleTerms
from alpa_explore.inter_op.stage_table import held_at
from alpa_explore.pricing.stage_costs import StageCosts


def no_role_pipeline_fits(
    kind: str, cluster: Cluster, terms: ScheduleTerms, priced: Sequence[tuple[RolePipeline, StageCosts]]
) -> InfeasiblePlanError:
    """Names the pipeline with the lowest peak, and the stage where that peak is, with the microbatches that it holds
    under the schedule of `terms`. OptionError where the schedule exists for none of these pipelines."""
    needs = []
    possible = [(p, costs) for p, costs in priced if len(p.ranges) in terms.depths(len(p.ranges))]
    if priced and not possible:
        terms.check_depth(len(priced[0][0].ranges))
    for pipeline, costs in possible:
        stages, depth = [], len(pipeline.ranges)
        for place, (first, last) in zip(range(depth, 0, -1), pipeline.ranges, strict=True):
            held = held_at(costs, terms, place, depth)
            if candidates := costs.candidates[first, last, 0]:
                stages.append((min(c.peak_bytes(held) for c in candidates), first, last))
        if stages:
            needs.append((*max(stages), pipeline))
    if not needs:
        return InfeasiblePlanError(
            f"The baseline {kind} has no plan",
            found=f"no legal choice of strategies on {cluster}",
            remedy="Try another baseline, or `ax.plan`.",
        )
    peak, first, last, closest = min(needs, key=lambda need: need[0])
    return _too_large(kind, f"layers {first}–{last} ({closest.text}) need", peak, cluster.device.memory_bytes)


def no_planned_pipeline_fits(
    kind: str, cluster: Cluster, errors: Sequence[tuple[str, InfeasiblePlanError]]
) -> InfeasiblePlanError:
    """Names the pipeline that lacks the fewest bytes; `errors` are (its description, the planner's error)."""
    text, error = min(errors, key=lambda pair: math.inf if pair[1].over_bytes is None else pair[1].over_bytes)
    if error.over_bytes is None:
        return error
    memory = cluster.device.memory_bytes
    return _too_large(kind, f"{text} needs", memory + error.over_bytes, memory)


def _too_large(kind: str, needs: str, peak_bytes: float, memory_bytes: float) -> InfeasiblePlanError:
    return InfeasiblePlanError(
        f"The baseline {kind} does not fit in memory",
        found=f"{needs} {units.bytes_(peak_bytes)} of {units.bytes_(memory_bytes)} on a device",
        remedy="Give more microbatches of a smaller size, more devices, or a baseline that shards weights (zero-3, "
        "megatron with a larger tp or pp).",
        over_bytes=peak_bytes - memory_bytes,
    )
