"""What would another number of microbatches do? The answer as rows, as a sentence, as text."""

from collections.abc import Sequence

from alpa_explore import units
from alpa_explore.planner.microbatches import microbatches_of, same_global_batch
from alpa_explore.plans.plan import Plan
from alpa_explore.plans.records import TriedMicrobatches
from alpa_explore.plans.report.error_bands import iteration_with_band
from alpa_explore.plans.report.tables import Row, row_of
from alpa_explore.plans.report.text import render_table


def microbatches_table(plan: Plan, rows: Sequence[TriedMicrobatches] | None = None) -> list[Row]:
    """One row a B (`rows`, by default `microbatches_of(plan)`): a microbatch, T, samples a second, and what fills the
    fullest device. `over_bytes`: nothing fits, and by how much the nearest thing would not. `least_seconds`, where some
    B was not planned: T is at least this."""
    tried = rows or microbatches_of(plan)
    bounded = any(t.least_seconds is not None for t in tried)
    return [
        {
            **row_of(t, "num_microbatches microbatch_samples=samples iteration_seconds"),
            **(row_of(t, "least_seconds") if bounded else {}),
            "samples_per_second": t.samples_per_second if t.iteration_seconds is not None else None,
            **row_of(t, "stages fullest_stage weight_bytes held_bytes workspace_bytes peak_bytes over_bytes"),
            "chosen": t.num_microbatches == plan.options.num_microbatches,
        }
        for t in tried
    ]


def microbatches_sentence(plan: Plan, lines: Sequence[TriedMicrobatches] | None = None) -> str:
    """What the rows say of the plan's own B; `lines` is `microbatches_of(plan)`."""
    lines, b = lines or microbatches_of(plan), plan.options.num_microbatches
    planned = next(t for t in lines if t.num_microbatches == b)
    fitting = [t for t in lines if t.iteration_seconds is not None]
    best = max(fitting, key=lambda t: t.samples_per_second, default=planned)
    samples = f"{planned.samples:,} sample{'' if planned.samples == 1 else 's'}"
    words = f"B = {b:,} microbatches of {samples}"
    if planned.iteration_seconds is not None:
        rate = units.number(planned.samples_per_second, 4)
        words += f": T {iteration_with_band(plan)}, {rate} samples/s"
    if same_global_batch(lines):
        words += f", the most of the {len(lines)} B that divide a global batch of {plan.global_batch:,}"
    elif best is planned:
        words += _beside_half(fitting, planned)
    else:
        share = planned.samples_per_second / best.samples_per_second
        words += (
            f", {units.percent(share)} of the most, which B = {best.num_microbatches:,} reaches with T "
            f"{units.seconds(best.iteration_seconds or 0.0)}"
        )
    if slower := sum(t.least_seconds is not None for t in lines):
        words += f"; {slower} B {'is' if slower == 1 else 'are'} slower by a lower bound on T, and not planned"
    if short := len(lines) - len(fitting) - slower:
        words += f"; {short} B {'does' if short == 1 else 'do'} not fit in memory"
    words += "."
    if not plan.microbatches and not plan.costs.screened.keys().isdisjoint(plan.costs.candidates):
        words += (
            f" Other B are upper bounds on T: on meshes that bounds exclude at B = {b:,}, choices that use less memory "
            "were not looked for."
        )
    return words


def _beside_half(fitting: Sequence[TriedMicrobatches], planned: TriedMicrobatches) -> str:
    """', the most of the 11 B here; B = 512 would reach 99.2 % of it in half the time'."""
    words = f", the most of the {len(fitting)} B here" if len(fitting) > 1 else ""
    fewer = [t for t in fitting if t.num_microbatches < planned.num_microbatches]
    if not fewer:
        return words
    next_fewer = max(fewer, key=lambda t: t.num_microbatches)
    share = next_fewer.samples_per_second / planned.samples_per_second
    seconds = units.seconds(next_fewer.iteration_seconds or 0.0)
    return f"{words}; B = {next_fewer.num_microbatches:,} would reach {units.percent(share)} of it with T {seconds}"


def microbatches_report(plan: Plan) -> str:
    """The sentence and the table."""
    return f"{microbatches_sentence(plan)}\n\n{render_table(microbatches_table(plan))}"
