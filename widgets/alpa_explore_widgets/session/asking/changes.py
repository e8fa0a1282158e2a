"""The settings of the plan that a mark of a figure stands for (`alpa_explore.figures.keys.change_key`)."""

import re
from dataclasses import replace
from typing import Any

from alpa_explore.inter_op.options import PipelineOptions
from alpa_explore.inter_op.stage_table import best_pipeline
from alpa_explore.plans.plan import Plan


def settings_of_change(plan: Plan, change: str) -> dict[str, Any] | None:
    """Fields of `Settings` and their values: of 'microbatches=16x2' B and the samples of each, of 't_max=0.2' and
    'stage=2-3@1x4' the stages. None where there is no such plan, or the text is none of these."""
    name, _, value = change.partition("=")
    numbers = [int(number) for number in re.findall(r"\d+", value)]
    if name == "microbatches" and len(numbers) == 2:
        return {"num_microbatches": numbers[0], "microbatch": numbers[1]}
    if name == "t_max":
        options = other_stages(plan, t_max=float(value))
    elif name == "stage" and len(numbers) == 4:
        options = other_stages(plan, stage=(numbers[0], numbers[1], numbers[2], numbers[3]))
    else:
        return None
    if options is None:
        return None
    return {name: getattr(options, name) for name in ("cuts", "num_stages", "stage_submeshes")}


def other_stages(
    plan: Plan, *, t_max: float | None = None, stage: tuple[int, int, int, int] | None = None
) -> PipelineOptions | None:
    """The options of the plan with exactly these stages: for `t_max` in seconds those that the sweep evaluated for this
    candidate (of all pipelines whose stages take at most as long, the one with the least Σt); for `stage`, as (first
    layer, last layer, nodes, devices of each), the best pipeline that has it. None where the stage costs hold no such
    pipeline.
    """
    costs, options, b = plan.costs, plan.options.pipeline, plan.options.num_microbatches
    if stage is not None:
        first, last, *shape = stage
        known = {
            (begin, end, mesh): candidates
            for (begin, end, mesh), candidates in costs.candidates.items()
            if end < first
            or begin > last
            or (begin, end, costs.submeshes[mesh].nodes, costs.submeshes[mesh].devices_per_node)
            == (first, last, *shape)
        }
        costs = replace(costs, candidates=known)
    found = best_pipeline(costs, plan.cluster, options, b, under=t_max)
    if not found.feasible:
        return None
    meshes = [costs.submeshes[mesh] for *_, mesh in found.stages]
    return replace(
        options,
        cuts=tuple(begin for begin, *_ in found.stages[1:]),
        num_stages=len(found.stages),
        stage_submeshes=tuple((i, mesh.nodes, mesh.devices_per_node) for i, mesh in enumerate(meshes)),
    )
