"""Plans and tables as plain text. Names in a plan may come from a stranger, so they are made printable first."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from alpa_explore import units
from alpa_explore.cluster import Device
from alpa_explore.cluster.precisions import RECIPES
from alpa_explore.intra_op.stage.recomputation import Recomputation
from alpa_explore.plans.phrases import layout_phrase, ranges, run_of_layers
from alpa_explore.plans.records import PlanStage
from alpa_explore.plans.report.error_bands import band_of, iteration_with_band, tight
from alpa_explore.plans.report.parallelism import MOST, StageDegrees, axis_uses
from alpa_explore.plans.value import PlanValue
from alpa_explore.schedules.catalog import INTERLEAVED
from alpa_explore.units import printable

_HEADINGS = {
    "num_microbatches": "B",
    "microbatch_samples": "microbatch",
    "weight_bytes": "weights",
    "activation_bytes": "activations",
    "held_bytes": "activations held",
    "over_bytes": "over by",
    "from_seconds": "t_max from",
    "to_seconds": "to",
    "iteration_seconds": "T",
    "least_seconds": "T at least",
    "objective_seconds": "objective",
    "sum_latency_seconds": "Σt",
    "waiting_seconds": "(B−1)·t_max",
    "once_seconds": "overhead",
    "memory_fraction": "of memory",
    "with_enough_mfu": "MFU ≥ 15 %",
    "place": "cluster",
    "mfu_fraction": "MFU",
    "their_error_fraction": "error of these",
}
_UNITS = {"_seconds": units.seconds, "_bytes": units.bytes_, "_fraction": units.percent, "flops": units.flops}

_NAMED_STAGES = 2
"""Groups of unlike stages up to which each is named in the words of a plan."""
PROVENANCE_PHRASES = {
    "unknown": "",
    "near": "a choice within 0.25 % of the fastest",
    "convex": "the fastest at some price of memory",
    "fitting": "the fastest that fits with the microbatches it holds",
    "fastest": "the fastest, proven",
    "exact": "exact, no other choice is faster with as little memory",
}
"""The values of `Provenance` in words, for the screen."""


def heading(key: str) -> str:
    """The heading of a table's column: `latency_seconds` -> 'latency' (the values below it show their unit)."""
    if key in _HEADINGS:
        return _HEADINGS[key]
    unit = next((suffix for suffix in _UNITS if suffix.startswith("_") and key.endswith(suffix)), "")
    return key.removesuffix(unit).replace("_", " ")


def cell(key: str, value: Any) -> str:
    """One value of a table as text, formatted by the unit that its key names."""
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, str):
        return printable(value)
    if key == "plan_number":
        return str(value + 1)
    if isinstance(value, int | float):
        for suffix, formatted in _UNITS.items():
            if key.endswith(suffix):
                return formatted(value)
        return f"{value:,}" if isinstance(value, int) else units.number(value, 4)
    if key == "layers":
        return run_of_layers(value)
    if key == "devices":
        return ranges(value)
    if key in ("submesh", "logical_mesh", "output_shape"):
        return units.shape(value)
    return printable(", ".join(map(str, value)))


def number_of(value: object) -> float | None:
    """A value of a table as the number by which it is sorted, also one in words ('1,024'); None for other words."""
    if isinstance(value, int | float):
        return float(value)
    try:
        return float(str(value).replace(",", ""))
    except ValueError:
        return None


def render_table(rows: Sequence[Mapping[str, Any]], columns: Sequence[str] | str = ()) -> str:
    """Rows as aligned columns under headings, numbers to the right; by default all keys of the first row. `columns`: in
    a text they are apart by blanks."""
    if not rows:
        return "(nothing)"
    keys = columns.split() if isinstance(columns, str) else list(columns or rows[0])
    lines = [[heading(k) for k in keys], *([cell(k, row[k]) for k in keys] for row in rows)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(keys))]
    right = [all(isinstance(row[k], int | float | None) for row in rows) for k in keys]
    shown = (
        "  ".join(c.rjust(w) if r else c.ljust(w) for c, w, r in zip(line, widths, right, strict=True)).rstrip()
        for line in lines
    )
    return "\n".join(shown)


def pace_setter(plan: PlanValue) -> PlanStage:
    """The slowest stage: every microbatch waits for it."""
    return max(plan.stages, key=lambda s: s.latency_seconds)


def fullest(plan: PlanValue) -> PlanStage:
    """The stage whose devices have the largest share of their memory in use."""
    return max(plan.stages, key=lambda s: (s.peak_bytes / plan.device_of(s).memory_bytes, s.peak_bytes))


def schedules_sentence(plan: PlanValue) -> str:
    """'Schedules compared: interleaved-1f1b × 4 takes 6.76 s (chosen), 1f1b 7.29 s.', the fastest first."""
    own = plan.options.pipeline
    words = []
    for tried in sorted(plan.schedules, key=lambda t: math.inf if t.iteration_seconds is None else t.iteration_seconds):
        several = f" × {tried.stages_per_submesh}" if tried.schedule == INTERLEAVED else ""
        chosen = (tried.schedule, tried.stages_per_submesh) == (own.schedule, own.terms(1).turns)
        seconds = "does not fit" if tried.iteration_seconds is None else units.seconds(tried.iteration_seconds)
        words.append(f"{tried.schedule}{several} {seconds}" + " (chosen)" * chosen)
    label = plan.cluster.software.label
    return printable(f"Schedules compared, those that {label} runs: {', '.join(words)}.")


def sentence(plan: PlanValue) -> str:
    """The plan in two sentences: stages, time, throughput, memory."""
    slow, full = pace_setter(plan), fullest(plan)
    rate = (
        f"{iteration_with_band(plan)} per iteration of {plan.global_batch:,} samples, "
        f"{units.flops_per_second(plan.flops_per_second_per_device)} per device "
        f"({units.percent(plan.flops_utilization)} of {peak_words(plan)})"
    )
    room = plan.device_of(full).memory_bytes
    memory = f"memory is {units.percent(full.peak_bytes / room)} full"
    if tight(plan, full.peak_bytes, room):
        free, band = max(room - full.peak_bytes, 0.0), band_of(plan, "bytes")
        error = "" if band is None else f" and for the error of the prediction, {band.short}"
        memory += (
            f", which is tight: {units.bytes_(free)} are left for the allocator, the driver and communicators{error}"
        )
    if len(plan.stages) == 1:
        count = plan.cluster.devices
        return f"One stage on {count:,} {'device' if count == 1 else 'devices'}: {rate}; its {memory}."
    whose = "its" if full is slow else f"stage {full.index}'s"
    return (
        f"{_stages_on_devices(plan)}: {rate}. "
        f"Stage {slow.index} is slowest: {units.seconds(slow.latency_seconds)} per microbatch; {whose} "
        f"{memory}."
    )


def peak_words(plan: PlanValue) -> str:
    """Of which peak the MFU is a share, where the device has two for the plan."""
    return f"its {printable(plan.model.precision)} peak" if plan.cluster.software.low_precision else "peak"


def run_sentence(plan: PlanValue) -> str:
    """In which precision linear layers are priced, and in which a program runs them."""
    label, dtype = RECIPES[plan.cluster.software.low_precision].label, printable(plan.model.precision)
    return (
        f"Linear layers and experts are priced in {label}, with the casts of their operands; "
        f"`launch` and `verify` run them in {dtype}."
    )


def _stages_on_devices(plan: PlanValue) -> str:
    """'2 stages on 4 devices each'; '9 stages (7 on 8 devices, 2 on 4 devices)'; '2 stages (1 on 8 × h100, 1 on
    8 × a100)'."""
    stages_of = Counter((len(stage.devices), printable(stage.device)) for stage in plan.stages)
    counted = [
        (stages, f"{size:,} × {device}" if device else f"{size:,} device{'' if size == 1 else 's'}")
        for (size, device), stages in stages_of.items()
    ]
    if len(counted) == 1:
        return f"{len(plan.stages)} stages on {counted[0][1]} each"
    return f"{len(plan.stages)} stages ({', '.join(f'{stages} on {devices}' for stages, devices in counted)})"


def plan_words(plan: PlanValue) -> str:
    """'TP 2 · PP 4 · DP 8 · ZeRO-1 · microbatch 1 · no recomputation', as people write a layout: the microbatch is that
    of one replica. 'mostly …' where a degree is not that of all FLOPs and bytes; where stages differ, each is named."""
    stages_of: dict[StageDegrees, list[int]] = {}
    mostly = False
    for stage, described in zip(plan.stages, plan.representatives(), strict=True):
        uses = axis_uses(described)
        mostly = mostly or any(min(use.share, use.stored) < MOST for use in uses)
        stages_of.setdefault(StageDegrees.of(stage, uses), []).append(stage.index)
    count, turns, samples = len(plan.stages), plan.terms.turns, plan.model.samples
    replicas = {degrees.divisions for degrees in stages_of}
    whole = len(replicas) == 1 and samples % min(replicas) == 0
    recomputed = {
        recomputed_words(stage) if stage.recomputation else "layers" * bool(stage.rematerialized)
        for stage in plan.stages
    }
    if len(stages_of) == 1:
        degrees = next(iter(stages_of))
        named = {"TP": degrees.tensor, "PP": count, "DP": degrees.data, "CP": degrees.context, "EP": degrees.expert}
        words = layout_phrase(named, *degrees.rest(alone=count == 1))
    elif len(stages_of) <= _NAMED_STAGES:
        listed = (f"stage{'s' * (len(s) > 1)} {ranges(s)}: {degrees.words}" for degrees, s in stages_of.items())
        words = f"PP {count} ({'; '.join(listed)})"
    else:
        words = f"PP {count}, stages sharded in {len(stages_of)} ways"
    return layout_phrase(
        {},
        f"mostly {words}" if mostly else words,
        f"interleaved × {turns}" if count > 1 and turns > 1 else "",
        f"microbatch {samples // min(replicas)}" if whole else f"{samples:,} samples a microbatch",
        "recomputation by stage"
        if len(recomputed) > 1
        else f"recomputes {min(recomputed)}"
        if min(recomputed)
        else "no recomputation",
    )


def recomputed_sentence(plan: PlanValue) -> str:
    """What is recomputed in the backward pass, and in which stages."""
    stages_of: dict[str, list[int]] = {}
    for stage in plan.stages:
        if words := recomputed_words(stage):
            stages_of.setdefault(words, []).append(stage.index)
    if not stages_of:
        return "Nothing is recomputed."
    if len(stages_of) == 1 and len(next(iter(stages_of.values()))) == len(plan.stages):
        return f"To save memory, the backward pass recomputes {next(iter(stages_of))}."
    parts = [f"{words} in stage{'' if len(s) == 1 else 's'} {ranges(s)}" for words, s in stages_of.items()]
    return f"To save memory, the backward pass recomputes {'; '.join(parts)}."


def recomputed_words(stage: PlanStage) -> str:
    """What one stage recomputes: 'norms and activations'; '' for nothing."""
    if stage.recomputation:
        return Recomputation.parse(stage.recomputation).words
    layers = stage.rematerialized
    return f"layer{'' if len(layers) == 1 else 's'} {ranges(layers)}" if layers else ""


def tied_sentences(plan: PlanValue) -> Sequence[str]:
    """Which stages sum the gradients of a shared weight, where that is counted."""
    sentences = []
    for readers, size in plan.costs.tied_weights if plan.tied_seconds else ():
        stages = [s.index for s in plan.stages if any(s.layers[0] <= k <= s.layers[1] for k in readers)]
        if len(stages) > 1:
            among = ", ".join(map(str, stages))
            sentences.append(
                f"Stages {among} share a weight: they sum {units.bytes_(size)} of gradients once per iteration."
            )
    return sentences


def overlaps(device: Device) -> Sequence[str]:
    """What of the communication runs beside computation, in words (`intra_op.stage.overlap`); none in the paper."""
    sums = "the backward pass of the operator that reads the weight"
    hidden = (
        ("collectives", device.hidden_collectives, "the computation beside them"),
        ("gradient sums", device.hidden_gradient_sums, sums),
    )
    return [
        f"{what} run behind {beside} for up to {units.percent(share)} of the shorter of the two"
        for what, share, beside in hidden
        if share
    ]
