"""The summary of a plan that the command line prints."""

from __future__ import annotations

from alpa_explore import units
from alpa_explore.inter_op.options import phrases
from alpa_explore.plans.iteration_time import iteration_time
from alpa_explore.plans.phrases import precision_phrase
from alpa_explore.plans.printable import printable
from alpa_explore.plans.report.error_bands import plan_bands_sentence
from alpa_explore.plans.report.floors import broken_floors
from alpa_explore.plans.report.headline import headline
from alpa_explore.plans.report.iteration import iteration_phrase, objective_words, sends_meaning, sends_share
from alpa_explore.plans.report.parallelism import parallelism_lines
from alpa_explore.plans.report.tables import stages_table
from alpa_explore.plans.report.text import (
    overlaps,
    recomputed_sentence,
    render_table,
    run_sentence,
    schedules_sentence,
    sentence,
    tied_sentences,
)
from alpa_explore.plans.value import PlanValue


def plan_report(plan: PlanValue) -> str:
    """The summary that `alpa-explore plan` and `show` print."""
    model, options, statistics = plan.model, plan.options, plan.statistics
    rows = [
        {"figure": f.name, "value": f"{f.text} {f.beside}".strip(), "error": f.band, "from": f.why}
        for f in headline(plan)
    ]
    rows[1:1] = _sends_rows(plan)
    precision = printable(precision_phrase(model, plan.cluster))
    spent = ", ".join(f"{printable(name)} {units.seconds(value)}" for name, value in statistics.seconds)
    parts = [
        f"{printable(model.name)} ({units.count(model.parameters)} parameters, {precision}) on "
        f"{printable(str(plan.cluster))}, B = {options.num_microbatches:,} microbatches of "
        f"{units.samples(model.samples)}, "
        f"δ {options.delta:g}, {options.num_layers:,} layers"
        + "".join(f"; {words}" for words in phrases(options.pipeline).values())
        + "".join(f"; {words}" for words in overlaps(plan.cluster.device))
        + (f"; sequences in zig-zag order for {model.zigzag} devices" if model.zigzag > 1 else "")
        + "".join(f"; spec constraint: {printable(str(constraint))}" for constraint in options.spec_constraints)
        + (f", baseline {printable(options.baseline)}" if options.baseline else ""),
        f"{sentence(plan)} {plan_bands_sentence(plan)}" + _objective_sentence(plan),
        *([schedules_sentence(plan)] if plan.schedules else []),
        *([run_sentence(plan)] if plan.cluster.software.low_precision else []),
        *(["\n".join(lines)] if (lines := parallelism_lines(plan)) else []),
        *([recomputed_sentence(plan)] if options.rematerialization else []),
        *tied_sentences(plan),
        render_table(stages_table(plan)),
        "\n".join(render_table(rows).splitlines()[1:]),
        f"Solved {statistics.distinct_solves:,} distinct sharding problems ({statistics.cached_solves:,} from the "
        f"cache; "
        f"{statistics.variables:,} variables, {statistics.constraints:,} constraints).\n"
        f"Time by pass: {spent or 'not recorded'}.",
    ]
    below = (f"{line}. Physics does not allow that: it is a fault of alpa_explore." for line in broken_floors(plan))
    if warnings := (*plan.warnings, *below):
        parts.append("\n".join(f"Warning: {printable(w)}" for w in warnings))
    return "\n\n".join(parts)


def _objective_sentence(plan: PlanValue) -> str:
    """Where what the pipeline DP minimised is not near T."""
    if not (words := objective_words(plan)):
        return ""
    return f" What the search minimises is not quite T: {words}."


def _sends_rows(plan: PlanValue) -> list[dict[str, str]]:
    """The sends between stages as a figure; none where there are none, or hardly any."""
    time = iteration_time(plan)
    if time is None or "sends" not in sends_share(time):
        return []
    seconds = time.counted_seconds if time.mode and time.counted_seconds else time.sends_seconds
    value = f"{units.seconds(seconds)} {units.percent(seconds / max(time.planned_seconds, 1e-300))} of T"
    meaning = iteration_phrase(time) if time.mode and not time.counted_seconds else sends_meaning(time)
    return [{"figure": "sends", "value": value, "error": "", "from": meaning}]
