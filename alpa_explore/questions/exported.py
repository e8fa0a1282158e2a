"""A plan in the form of another tool, and its layout read back from there and priced again.

Most exports express one layout for all stages. What they drop of a plan costs time or memory, so the layout is priced
by the rules that priced the plan, as a baseline: where seconds or bytes differ by more than `TOLERANCE`, or the layout
does not fit, that is a limit of the export.
"""

from __future__ import annotations

from typing import Any

from alpa_explore.arguments import checked, plain_name
from alpa_explore.baselines.baseline import baseline
from alpa_explore.baselines.kinds import ONE_STAGE
from alpa_explore.errors import AlpaExploreError, InfeasiblePlanError, OptionError
from alpa_explore.graph import TrainingGraph
from alpa_explore.intra_op.stage.recomputation import NONE
from alpa_explore.plans.export.degrees import PlanDegrees, PricedAgain, plan_degrees
from alpa_explore.plans.export.export import export as exported_text
from alpa_explore.plans.export.exported import Exported
from alpa_explore.plans.plan import Plan
from alpa_explore.plans.rebuild import graph_of
from alpa_explore.plans.report.compare import reason_of
from alpa_explore.schedules.catalog import INTERLEAVED


@checked("plan", "target", "graph")
def export(plan: Plan, target: str, *, graph: TrainingGraph | None = None) -> Exported:
    """`plan` for `target` (megatron, nemo, torchtitan, fsdp2): the text of a file and, as values, what it does not
    express, which also stands at its top.

    The layout is priced again from the captured `graph`: that of the plan, or captured from its recipe. OptionError for
    another target, and for a plan without strategies.
    """
    target = str(plain_name(target))
    exported_text(plan, target)  # what cannot be exported is refused before anything is captured
    return exported_text(plan, target, priced_again(plan, graph))


def priced_again(plan: Plan, graph: TrainingGraph | None = None) -> PricedAgain:
    """Seconds and bytes of the layout in the degrees of `plan`, or the reason why they are not known."""
    degrees = plan_degrees(plan)
    try:
        kind, arguments = _as_baseline(degrees)
        if graph is None:
            graph = graph_of(plan)
        # Where layers neither divide stages nor recompute, there may be none so many: those of a layout are its blocks.
        whole = degrees.pipeline == 1 and not degrees.recomputed_blocks
        again = baseline(
            graph,
            plan.cluster,
            kind,
            num_microbatches=degrees.microbatches,
            num_layers=None if whole or arguments.get("blocks") else plan.options.num_layers,
            delta=plan.options.delta,
            paper=bool(plan.options.pipeline.paper),
            rematerialization=False if degrees.recomputation == NONE else degrees.recomputation,
            **arguments,
        )
    except AlpaExploreError as error:
        fits = not isinstance(error, InfeasiblePlanError)
        return PricedAgain(reason=reason_of(error, plan.cluster.device.memory_bytes), fits=fits)
    return PricedAgain(seconds=again.predicted.iteration_seconds, bytes=again.predicted.peak_bytes_per_device)


def _as_baseline(degrees: PlanDegrees) -> tuple[str, dict[str, Any]]:
    """The baseline that is this layout, and its degrees. OptionError where none is."""
    alone = degrees.tensor == degrees.pipeline == degrees.context == degrees.expert == 1
    sharded = degrees.zero_stage == 3
    unlike = {
        f"the schedule {degrees.schedule}": degrees.schedule not in ("1f1b", INTERLEAVED),
        "another tensor parallelism of experts": degrees.expert > 1 and degrees.expert_tensor != degrees.tensor,
        "interleaved stages whose weights are sharded": sharded and degrees.chunks > 1,
    }
    if reasons := [reason for reason, holds in unlike.items() if holds]:
        raise OptionError("No baseline is this layout", found=reasons[0], remedy="Compare it by a measured run.")
    if alone and sharded and degrees.replicas > 1:
        return "hsdp", {"replicas": degrees.replicas}
    if alone:
        return ONE_STAGE[degrees.zero_stage], {}
    arguments: dict[str, Any] = {
        "tp": degrees.tensor,
        "dp": degrees.data,
        "pp": degrees.pipeline,
        "cp": degrees.context,
        "ep": degrees.expert,
    }
    if degrees.exchange:
        arguments["exchange"] = degrees.exchange.lower() + "-zigzag" * (degrees.exchange == "ring" and degrees.zigzag)
    if sharded:
        return "fsdp+tp+pp", arguments | {"replicas": degrees.replicas}
    chunks = {"chunks": degrees.chunks} if degrees.chunks > 1 else {}
    blocks = {"blocks": [len(run) for run in degrees.blocks]} if degrees.blocks and degrees.pipeline > 1 else {}
    return "megatron", arguments | chunks | blocks | {"zero": degrees.zero_stage}
