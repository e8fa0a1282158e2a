"""What another number of microbatches would do: T, samples a second and the memory of the fullest device for each B.

Two questions have this answer. With microbatches of the same size, more of them are more work in an iteration: samples
a second rise (the pipeline fills once for all of them), and so does what a stage holds, up to the depth of the
pipeline; a plan's stage costs tell (`known_microbatches`). With the same global batch, more microbatches are smaller
ones: the planner is asked for each (`ax.plan(…, num_microbatches="auto")`), and the plan keeps what was found. What is
best is in both cases the most samples a second; with the same global batch that is the least T.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NoReturn

from alpa_explore import units
from alpa_explore.errors import InfeasiblePlanError
from alpa_explore.inter_op.options import PipelineOptions
from alpa_explore.inter_op.stage_table import best_pipeline
from alpa_explore.models.catalog import divisors_of
from alpa_explore.planner.nearest_fit import nothing_fits, nothing_fits_at_any
from alpa_explore.plans.assemble import choose_stages
from alpa_explore.plans.plan import Plan
from alpa_explore.plans.records import TriedMicrobatches
from alpa_explore.plans.report.tables import Row
from alpa_explore.plans.report.text import render_table

COUNTS = tuple(2**i for i in range(11))
"""The B that are looked at where the microbatch is fixed: 1 to 1024."""
ENOUGH = 0.01
"""Where the microbatch is fixed more are always a little faster: the least B that is so near to the fastest is best."""


def tried(plan: Plan) -> TriedMicrobatches:
    """`plan` as one line: its fullest device is what counts."""
    full = max(plan.stages, key=lambda s: s.peak_bytes)
    return TriedMicrobatches(
        num_microbatches=plan.options.num_microbatches,
        samples=plan.model.samples,
        iteration_seconds=plan.predicted.iteration_seconds,
        stages=len(plan.stages),
        fullest_stage=full.index,
        weight_bytes=full.weight_bytes,
        held_bytes=full.activations_held_bytes,
        workspace_bytes=full.workspace_bytes,
    )


def no_plan(num_microbatches: int, samples: int, error: InfeasiblePlanError) -> TriedMicrobatches:
    """The line of a B at which nothing fits."""
    return TriedMicrobatches(
        num_microbatches=num_microbatches, samples=samples, iteration_seconds=None, over_bytes=error.over_bytes
    )


def possible_counts(counts: Sequence[int], pipeline: PipelineOptions) -> tuple[int, ...]:
    """Those B at which the schedule exists for the number of stages that is asked for; all where it does at none, so
    that planning says why."""
    stages = pipeline.num_stages
    possible = tuple(b for b in counts if stages is None or stages in pipeline.terms(b).depths(stages))
    return possible or tuple(counts)


def known_microbatches(plan: Plan) -> tuple[TriedMicrobatches, ...]:
    """For each B of microbatches of the plan's size the best plan by the plan's stage costs; no solve is made."""
    found = []
    own = plan.options.num_microbatches
    for b in sorted({*possible_counts(COUNTS, plan.options.pipeline), own}):
        pipeline = best_pipeline(plan.costs, plan.cluster, plan.options.pipeline, b)
        if pipeline.feasible:
            here = replace(plan, options=replace(plan.options, num_microbatches=b))
            found.append(tried(plan if b == own else choose_stages(here, pipeline)))
        else:
            error = nothing_fits(plan.costs, plan.cluster, b, options=plan.options.pipeline, samples=plan.model.samples)
            found.append(no_plan(b, plan.model.samples, error))
    return tuple(found)


def microbatches_of(plan: Plan) -> tuple[TriedMicrobatches, ...]:
    """What the plan says of other B: those that were tried with its global batch, else microbatches of its size."""
    return plan.microbatches or known_microbatches(plan)


def same_global_batch(found: Sequence[TriedMicrobatches]) -> bool:
    """Whether it is the global batch that all of them share, and not the microbatch."""
    return len({t.samples for t in found}) > 1


def best_count(found: Sequence[TriedMicrobatches]) -> int | None:
    """The least B, of microbatches of one size, whose samples a second are within `ENOUGH` of the most; None where
    nothing fits at any."""
    most = max((t.samples_per_second for t in found), default=0.0)
    near = [t.num_microbatches for t in found if t.samples_per_second >= most * (1 - ENOUGH)]
    return min(near) if most > 0.0 else None


def best_of_one_batch(
    global_batch: int, pipeline: PipelineOptions, at: Callable[[int], Plan], too_small: Callable[[int], str]
) -> Plan:
    """The plan of the least T over all B that divide the global batch; `at` plans for a B.

    InfeasiblePlanError, with the B and the stage that are closest, where none fits. `too_small` says from the graph of
    a B whether (and why) that is so of all B: then the smallest microbatches are tried alone.
    """
    counts = possible_counts(divisors_of(global_batch), pipeline)
    if why := too_small(counts[0]):
        _try_alone(at, counts[-1], why)
    found: list[TriedMicrobatches] = []
    failed: dict[int, InfeasiblePlanError] = {}
    best: Plan | None = None
    for count in counts:
        try:
            plan = at(count)
        except InfeasiblePlanError as error:
            failed[count] = error
            found.append(no_plan(count, global_batch // count, error))
            continue
        found.append(tried(plan))
        if best is None or plan.predicted.iteration_seconds < best.predicted.iteration_seconds:
            best = plan
    if best is None:
        raise nothing_fits_at_any(failed)
    return replace(best, microbatches=tuple(found))


def _try_alone(at: Callable[[int], Plan], count: int, why: str) -> NoReturn:
    try:
        at(count)
    except InfeasiblePlanError as error:
        raise nothing_fits_at_any({count: error}, why) from error
    raise AssertionError(f"a plan for {count} microbatches, but {why}")


def best_of_one_size(pipeline: PipelineOptions, at: Callable[[int], Plan], too_small: Callable[[int], str]) -> Plan:
    """The plan of `best_count` over `COUNTS` of microbatches of one size; `at` plans for a B.

    All are read from the stage costs of the largest B that fits (more microbatches never hold less, so bisection finds
    it); the best is then planned by itself. InfeasiblePlanError where none fits; `too_small` as of `best_of_one_batch`,
    and it is the fewest that are tried.
    """
    failed: dict[int, InfeasiblePlanError] = {}
    most: Plan | None = None
    counts = possible_counts(COUNTS, pipeline)
    if why := too_small(counts[0]):
        _try_alone(at, counts[0], why)
    low, index, high = 0, len(counts) - 1, len(counts) - 1  # the largest first: it mostly fits
    while low <= high:
        try:
            most, low = at(counts[index]), index + 1
        except InfeasiblePlanError as error:
            failed[counts[index]], high = error, index - 1
        index = (low + high) // 2
    if most is None:
        raise nothing_fits_at_any(failed)
    found = known_microbatches(most)
    best = best_count(found)
    assert best is not None, "the plan itself is among them"
    chosen = most if best == most.options.num_microbatches else at(best)
    return replace(chosen, microbatches=tuple(tried(chosen) if t.num_microbatches == best else t for t in found))


def microbatches_table(plan: Plan) -> list[Row]:
    """One row a B: a microbatch, T, samples a second, and what fills the fullest device. `over_bytes`: nothing fits,
    and by how much the nearest thing would not."""
    return [
        {
            "num_microbatches": t.num_microbatches,
            "microbatch_samples": t.samples,
            "iteration_seconds": t.iteration_seconds,
            "samples_per_second": t.samples_per_second if t.iteration_seconds is not None else None,
            "stages": t.stages,
            "fullest_stage": t.fullest_stage,
            "weight_bytes": t.weight_bytes,
            "held_bytes": t.held_bytes,
            "workspace_bytes": t.workspace_bytes,
            "peak_bytes": t.peak_bytes,
            "over_bytes": t.over_bytes,
            "chosen": t.num_microbatches == plan.options.num_microbatches,
        }
        for t in microbatches_of(plan)
    ]


def microbatches_sentence(plan: Plan, found: Sequence[TriedMicrobatches] | None = None) -> str:
    """What the rows say of the plan's own B, as one would read it aloud; `found` is `microbatches_of(plan)`."""
    found, own = found or microbatches_of(plan), plan.options.num_microbatches
    here = next(t for t in found if t.num_microbatches == own)
    fitting = [t for t in found if t.iteration_seconds is not None]
    words = f"B = {own:,} microbatches of {here.samples:,} samples: {here.samples_per_second:,.4g} samples/s"
    if same_global_batch(found):
        words += f", the most of the {len(found)} B that divide a global batch of {plan.global_batch:,}"
    else:
        best = max(fitting, key=lambda t: t.samples_per_second)
        share = here.samples_per_second / best.samples_per_second
        words += f", {units.percent(share)} of what B = {best.num_microbatches:,} of them would reach"
    if short := len(found) - len(fitting):
        words += f"; {short} B {'does' if short == 1 else 'do'} not fit in memory"
    return words + "."


def microbatches_report(plan: Plan) -> str:
    """The sentence and the table."""
    return f"{microbatches_sentence(plan)}\n\n{render_table(microbatches_table(plan))}"
