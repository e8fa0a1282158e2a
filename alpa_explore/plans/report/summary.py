"""The summary of a plan that the command line prints.

Floors of physics are what no plan can be faster or smaller than, whatever priced it. For each stage, in seconds of a
microbatch and bytes of a device:

- it takes no less than its products at the peak of its devices;
- it takes no less than the collectives along any one axis of its mesh, hidden ones included: they share its links;
- in the forward and in the backward pass no more is hidden along one axis than is computed there;
- an iteration takes no less than reading and writing the optimizer states at the bandwidth of the memory;
- a device holds no less than the gradients and optimizer states of its weights.

A plan below one is a fault of the prices, so the report says it.
"""

from collections.abc import Iterator

from alpa_explore import units
from alpa_explore.inter_op.options import phrases
from alpa_explore.plans.iteration_time import iteration_time
from alpa_explore.plans.phrases import precision_phrase
from alpa_explore.plans.records import PlanOperator, PlanStage
from alpa_explore.plans.report.error_bands import measured_sentence, plan_bands_sentence
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
from alpa_explore.units import printable

_ROUNDING = 1e-6
"""Relative: sums of many prices differ in their last digits."""


def broken_floors(plan: PlanValue) -> tuple[str, ...]:
    """A sentence for each floor that a stage of the plan lies below, or one that its submesh runs in turn; none for a
    plan whose prices can be true, or whose operators are not known."""
    return tuple(sentence for stage in plan.interleaved or plan.stages for sentence in _broken(plan, stage))


def _broken(plan: PlanValue, stage: PlanStage) -> Iterator[str]:
    operators, device = tuple(stage.operators), plan.device_of(stage)
    peak = max(device.peak_flops.values()) if device.software.low_precision else device.peak(plan.model.precision)
    flops = sum(o.flops * (2 if o.recomputed else 1) for o in operators if o.phase != "update")
    once = 2 * sum(o.optimizer_bytes for o in operators) / device.memory_bandwidth
    state = sum(o.gradient_bytes + o.optimizer_bytes for o in operators)
    floors = [
        ("a microbatch", "its FLOPs at the peak", stage.microbatch_seconds, flops / (len(stage.devices) * peak)),
        ("an update", "its optimizer states through memory", stage.iteration_seconds, once),
        *(
            ("a microbatch", f"collectives over axis {axis}", stage.microbatch_seconds, seconds)
            for axis, seconds in enumerate(_link_seconds(operators))
        ),
        *(
            (f"computing of the {name} pass", what, computed, hidden)
            for name, what, computed, hidden in _hidden(operators)
        ),
    ]
    for what, floor, found, least in floors:
        if found < least * (1 - _ROUNDING):
            yield f"Stage {stage.index}: {what} takes {units.seconds(found)}, less than {floor}: {units.seconds(least)}"
    if stage.weight_bytes < state * (1 - _ROUNDING):
        held = units.bytes_(stage.weight_bytes)
        yield f"Stage {stage.index}: weights take {held}, less than gradients and states: {units.bytes_(state)}"


def _link_seconds(operators: tuple[PlanOperator, ...]) -> list[float]:
    """Seconds of a microbatch that each mesh axis carries collectives."""
    shares = [seconds for o in operators for seconds in (o.axis_seconds, o.hidden_seconds) if seconds]
    return [sum(along) for along in zip(*shares, strict=True)]


def _hidden(operators: tuple[PlanOperator, ...]) -> list[tuple[str, str, float, float]]:
    """(pass, what it hides, seconds that it computes in a microbatch, seconds hidden). Collectives along two axes use
    links of their own, so both may hide behind one product. Once an iteration sums of gradients hide behind the last
    backward pass, and what gathers updated weights behind the first forward pass."""
    computed, both = {"forward": 0.0, "backward": 0.0}, "forward and backward"
    hidden: dict[tuple[str, str], float] = {}
    for o in operators:
        runs = {"backward" if o.phase == "update" else o.phase} | ({"backward"} if o.recomputed else set())
        for name in runs:
            computed[name] += o.compute_seconds * (o.phase != "update")
            for axis, seconds in enumerate(o.hidden_seconds):
                key = name, f"what it hides along axis {axis}"
                hidden[key] = hidden.get(key, 0.0) + seconds / len(runs)
        if o.hidden_once_seconds:
            key = both, "the sums of gradients and gathered weights that it hides"
            hidden[key] = hidden.get(key, 0.0) + o.hidden_once_seconds
    computed[both] = sum(computed.values())
    return [(name, what, computed[name], seconds) for (name, what), seconds in hidden.items()]


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
        *([measured] if (measured := measured_sentence(plan)) else []),
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
