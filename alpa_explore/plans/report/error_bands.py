"""How far to trust the predicted figures of a plan: the error bands of its time and its memory, in words.

Wherever people read a predicted time or size, the band stands beside it: '26.2 s ± 9 %' where there is little room,
'± 9 % (312 runs of Megatron on A100-80GB)' where there is more, '± ?' and 'no run like this was measured' where no
run like the plan was measured. What the bands are: `alpa_explore.accuracy.error_band`.
"""

import re
from dataclasses import asdict
from typing import Any

from alpa_explore import units
from alpa_explore.accuracy.error_band import NOT_MEASURED, Band, Quantity, band_with_timed, error_band, is_tight
from alpa_explore.accuracy.likeness import Case, case, overhead_share
from alpa_explore.accuracy.tuning import MUCH_OVERHEAD
from alpa_explore.cluster import Cluster
from alpa_explore.plans.report.parallelism import axis_uses
from alpa_explore.plans.value import PlanValue
from alpa_explore.units import printable

UNKNOWN = "± ?"
"""Where there is little room, for an error that is not known."""
_NUMBER = re.compile(r"_\d+$")
_ATTENTION, _EXPERTS = {"attention", "_softmax", "softmax"}, {"experts", "topk"}
_OTHER_BLOCKS = {"convolution", "scan"}
"""Kinds of operators, as their names begin: of decoders, of experts, and of what no measured run has."""


def band_of(plan: PlanValue, quantity: Quantity) -> Band | None:
    """The band of the plan's times ('seconds') or sizes ('bytes'); None where it is not known."""
    return plan.remembered(f"error band of {quantity}", lambda: _band(plan, quantity))


def _band(plan: PlanValue, quantity: Quantity) -> Band | None:
    band, store, share = error_band(_case(plan), quantity), plan.cluster.device.measured, measured_share(plan)
    if quantity == "bytes" or store is None or share is None or plan.cluster.others or not store.of_this_host:
        return band
    return band_with_timed(band, share, store.device)


def _case(plan: PlanValue) -> Case | None:
    """What the error of a plan depends on; None for unlike nodes."""
    cluster, model, seconds = plan.cluster, plan.model, plan.predicted.iteration_seconds
    if cluster.others:
        return None
    kinds = {_NUMBER.sub("", name) for layer in plan.layers for name in layer.operators}
    return case(
        cluster,
        precision=model.precision,
        decoder="embedding" in kinds and bool(kinds & _ATTENTION) and not kinds & _OTHER_BLOCKS,
        experts=bool(kinds & _EXPERTS),
        context=model.zigzag > 1 or _shares_sequences(plan),
        token_flops=model.model_flops / model.tokens,
        overhead=overhead_share(cluster, plan.options.num_microbatches, seconds),
        mfu=plan.flops_utilization,
    )


def _shares_sequences(plan: PlanValue) -> bool:
    """Whether some attention of the plan does; where it may at all, which asks for the strategies of its stages."""
    positions = plan.cluster.software.context_positions
    if not positions or plan.model.tokens < positions * plan.model.samples:
        return False
    return any(use.kind == "context" for stage in plan.representatives() for use in axis_uses(stage))


def measured_share(plan: PlanValue) -> float | None:
    """Of the seconds that devices compute in a microbatch, the share of kernels that were timed on the device; None
    where the cluster has no timed kernels."""
    if plan.cluster.device.measured is None:
        return None
    of_microbatch = [o for stage in plan.stages for o in stage.operators if o.phase != "update"]
    return sum(o.measured_seconds for o in of_microbatch) / (sum(o.compute_seconds for o in of_microbatch) or 1.0)


def measured_sentence(plan: PlanValue) -> str:
    """'Kernels with 93 % of the computing time were timed on this device, NVIDIA H100 (date, torch …); the rest is
    modelled.', or 'on this kind of device' where another machine has it; '' where none were."""
    share, store = measured_share(plan), plan.cluster.device.measured
    if share is None or store is None:
        return ""
    which = "this device" if store.of_this_host else "this kind of device"
    host = f"host {store.host}, " if store.host and not store.of_this_host else ""
    where = printable(f"{store.device} ({host}{store.date}, {store.software})")
    text = f"Kernels with {units.percent(share)} of the computing time were timed on {which}, {where}"
    text += "; the rest is modelled." if share < 1 else "."
    for name, why in tuple(store.failed.items())[:1]:
        of = f"{len(store.failed):,} did not run there, as" if len(store.failed) > 1 else "One did not run there,"
        text += f" {of} {printable(name)} ({printable(why)}): strategies that need such a kernel have no price."
    return text


def band_short(band: Band | None) -> str:
    """'± 9 %'; '± ?' where it is not known."""
    return UNKNOWN if band is None else band.short


def band_meaning(band: Band | None) -> str:
    """For a hover or a second line: '± 9 %: mean error of 312 runs of Megatron on A100-80GB; on average 3 % too
    short'."""
    return f"expected error unknown: {NOT_MEASURED}" if band is None else printable(band.meaning)


def with_band(text: str, band: Band | None) -> str:
    """'26.2 s ± 9 %'; the text alone where the band is not known."""
    return text if band is None else f"{text} {band.short}"


def time_with_band(plan: PlanValue, seconds: float) -> str:
    """Predicted seconds of the plan's cluster: '26.2 s ± 9 %', or '26.2 s' where the band is not known."""
    return with_band(units.seconds(seconds), band_of(plan, "seconds"))


def iteration_with_band(plan: PlanValue) -> str:
    """T: '26.2 s ± 9 %', in the paper's mode '26.2 s (ideal, as in the paper)'."""
    time, mode = time_with_band(plan, plan.predicted.iteration_seconds), plan.options.pipeline.mode
    return f"{time} ({mode})" if mode else time


def bytes_with_band(plan: PlanValue, size: float) -> str:
    """Predicted bytes of a device: '15 GiB ± 5 %', or '15 GiB' where the band is not known."""
    return with_band(units.bytes_(size), band_of(plan, "bytes"))


def bands_sentence(cluster: Cluster, seconds: Band | None, bytes_: Band | None) -> str:
    """'Expected error: times ± 9 % (312 runs of Megatron in 16 bits on A100-80GB), memory unknown: no run like this was
    measured.'"""
    if seconds is None and bytes_ is None:
        kind = f"{printable(cluster.software.label)} on {printable(cluster.device_name)}"
        return f"Expected error: unknown, {NOT_MEASURED} ({kind})."
    unknown = f"unknown: {NOT_MEASURED}"
    times, sizes = (unknown if band is None else printable(band.words) for band in (seconds, bytes_))
    return f"Expected error: times {times}, memory {sizes}."


def plan_bands_sentence(plan: PlanValue) -> str:
    """`bands_sentence` of a plan, and how much of its time is the software's where that is much."""
    return bands_sentence(plan.cluster, band_of(plan, "seconds"), band_of(plan, "bytes")) + _overhead_sentence(plan)


def _overhead_sentence(plan: PlanValue) -> str:
    """' 73 % of the time is what Megatron-Core adds …', with a space before it; '' where it is less than
    `MUCH_OVERHEAD`."""
    share = overhead_share(plan.cluster, plan.options.num_microbatches, plan.predicted.iteration_seconds)
    if share < MUCH_OVERHEAD:
        return ""
    return (
        f" {units.percent(share)} of the time is what {printable(plan.cluster.software.label)} adds to each iteration "
        "and microbatch, whatever the model; the software 'compiled' is a program of plain PyTorch."
    )


def tight(plan: PlanValue, peak_bytes: float, memory_bytes: float) -> bool:
    """Whether so many predicted bytes of a device may be more than it really offers (`accuracy.headroom`)."""
    return is_tight(peak_bytes, memory_bytes, band_of(plan, "bytes"))


def bands_summary(plan: PlanValue) -> dict[str, Any]:
    """The bands for --json, by the figure that they belong to; None where they are not known. Figures that follow from
    the iteration time (samples, tokens and FLOPs per second, device-hours) have its relative error."""
    figures: tuple[tuple[str, Quantity], ...] = (("iteration_seconds", "seconds"), ("peak_bytes_per_device", "bytes"))
    return {name: _record(band_of(plan, quantity)) for name, quantity in figures}


def _record(band: Band | None) -> dict[str, Any] | None:
    if band is None:
        return None
    values = asdict(band)
    return {
        "mean_error_fraction": values["fraction"],
        "bias_fraction": values["bias"],
        "runs": values["runs"],
        "measured_on": values["kind"],
    }
