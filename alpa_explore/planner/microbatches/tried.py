"""T, throughput and the memory of the fullest device at other numbers of microbatches B.

There are two cases. With microbatches of the same size, a larger B is more work in an iteration. The throughput rises,
because the pipeline fills once for all microbatches, and a stage holds more of them, up to the depth of the pipeline.
The stage costs of a plan give these figures (`microbatches_from_costs`). With the same global batch, a larger B has
smaller microbatches: the planner runs for each B (`choose`), and the plan keeps the results. In both cases
the best B is the one with the highest throughput; with the same global batch that is the least T.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from alpa_explore.errors import InfeasiblePlanError
from alpa_explore.inter_op.options import PipelineOptions
from alpa_explore.planner.nearest_fit import nothing_fits
from alpa_explore.plans.assemble import choose_stages
from alpa_explore.plans.plan import Plan
from alpa_explore.plans.records import TriedMicrobatches
from alpa_explore.search.pipeline_query import PipelineQuery

COUNTS = tuple(2**i for i in range(11))
"""The values of B that are tried where the size of a microbatch is fixed: 1 to 1024."""
ENOUGH = 0.01
"""With microbatches of a fixed size, throughput always rises with B: the least B within this relative distance of the
highest throughput is taken."""


def tried(plan: Plan) -> TriedMicrobatches:
    """The row of `plan`; its bytes are those of the fullest device."""
    full = max(plan.stages, key=lambda s: s.peak_bytes)
    return TriedMicrobatches(
        num_microbatches=plan.options.num_microbatches,
        samples=plan.model.samples,
        iteration_seconds=plan.predicted.iteration_seconds,
        stages=len(plan.stages),
        fullest_stage=full.index,
        weight_bytes=full.weight_bytes,
        held_bytes=full.microbatches_held * full.activation_bytes,
        workspace_bytes=full.workspace_bytes,
    )


def no_plan(num_microbatches: int, samples: int, error: InfeasiblePlanError) -> TriedMicrobatches:
    """The row of a B at which nothing fits."""
    return TriedMicrobatches(
        num_microbatches=num_microbatches, samples=samples, iteration_seconds=None, over_bytes=error.over_bytes
    )


def possible_counts(counts: Sequence[int], pipeline: PipelineOptions) -> tuple[int, ...]:
    """The `counts` at which the schedule exists for the requested number of stages, or for any; all of them if there is
    none, so that planning reports the reason."""
    stages = pipeline.num_stages
    if stages is None:
        possible = tuple(b for b in counts if pipeline.terms(b).depths(2))
    else:
        possible = tuple(b for b in counts if stages in pipeline.terms(b).depths(stages))
    return possible or tuple(counts)


def microbatches_from_costs(plan: Plan) -> tuple[TriedMicrobatches, ...]:
    """The best plan at each B, with microbatches of the plan's size, by the stage costs of the plan; nothing is
    solved."""
    lines = []
    planned = plan.options.num_microbatches
    for b in sorted({*possible_counts(COUNTS, plan.options.pipeline), planned}):
        query = PipelineQuery(cluster=plan.cluster, options=plan.options.pipeline, num_microbatches=b)
        pipeline = query.best(plan.costs)
        if pipeline.feasible:
            at_b = replace(plan, options=replace(plan.options, num_microbatches=b))
            lines.append(tried(plan if b == planned else choose_stages(at_b, pipeline)))
        else:
            lines.append(no_plan(b, plan.model.samples, nothing_fits(plan.costs, query, samples=plan.model.samples)))
    return tuple(lines)


def microbatches_of(plan: Plan) -> tuple[TriedMicrobatches, ...]:
    """The rows that the plan keeps (same global batch), else those from its stage costs (same microbatch size)."""
    return plan.microbatches or microbatches_from_costs(plan)


def same_global_batch(lines: Sequence[TriedMicrobatches]) -> bool:
    """Whether the rows share the global batch rather than the size of a microbatch."""
    return len({line.samples for line in lines}) > 1


def best_count(lines: Sequence[TriedMicrobatches]) -> int | None:
    """The least B, with microbatches of one size, whose throughput is within `ENOUGH` of the highest; None where
    nothing fits at any B."""
    most = max((line.samples_per_second for line in lines), default=0.0)
    near = [line.num_microbatches for line in lines if line.samples_per_second >= most * (1 - ENOUGH)]
    return min(near) if most > 0.0 else None
