"""The figures at the top of every report: value, origin, and change against another plan."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from alpa_explore import units
from alpa_explore.accuracy.error_band import Quantity
from alpa_explore.cluster.precisions import RECIPES
from alpa_explore.plans.iteration_time import iteration_time
from alpa_explore.plans.phrases import stage_phrase
from alpa_explore.plans.report.error_bands import UNKNOWN, band_meaning, band_of, band_short
from alpa_explore.plans.report.iteration import iteration_sum, sends_meaning, sends_share
from alpa_explore.plans.report.text import fullest, peak_words
from alpa_explore.plans.value import PlanValue
from alpa_explore.units import SMALL, printable

_PREDICTED: Mapping[str, Quantity] = {
    "iteration": "seconds",
    "samples/s": "seconds",
    "tokens/s": "seconds",
    "FLOP/s of a device": "seconds",
    "device-hours": "seconds",
    "peak memory": "bytes",
}
"""Figures that are predicted -> whose error they have: rates and hours have the relative error of the time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadlineFigure:
    """One figure."""

    name: str
    value: float
    """In SI units, or a share, or a count; changes are computed from it."""
    text: str
    why: str
    """How it is computed, with its numbers."""
    beside: str = ""
    """A value for comparison, as the peak or the memory of the device, or the unit in words."""
    good: int = 0
    """1 where more is better, −1 where less is better, 0 where neither is."""
    share: float | None = None
    """The value as a share of a whole, between 0 and 1; None for other figures."""
    band: str = ""
    """The error to expect: '± 9 %', '± ?' where it is not known; empty for figures that are no prediction of time or
    memory."""
    error: str = ""
    """The same in full, for a hover or a second line."""

    @property
    def with_band(self) -> str:
        """'26.2 s ± 9 %'; '26.2 s' where the error is not known."""
        return self.text if self.band in ("", UNKNOWN) else f"{self.text} {self.band}"


def headline(plan: PlanValue) -> tuple[HeadlineFigure, ...]:
    """Step time, samples/s, tokens/s, FLOP/s and their share of the peak, device-hours, bubble, memory, stages."""
    p, b, model = plan.predicted, plan.options.num_microbatches, plan.model
    full, second, byte = fullest(plan), units.seconds, units.bytes_
    peak, precision = units.flops_per_second(plan.peak_flops_per_second), printable(model.precision)
    mean = ", the mean of its unlike devices" if plan.cluster.others else ""
    memory = plan.device_of(full).memory_bytes
    step, utilization = second(p.iteration_seconds), plan.flops_utilization
    figures = [
        _iteration(plan),
        HeadlineFigure(
            name="samples/s",
            value=plan.samples_per_second,
            text=_rate(plan.samples_per_second),
            good=1,
            why=f"{model.samples:,} samples × {b:,} microbatches / {step}",
        ),
        HeadlineFigure(
            name="tokens/s",
            value=plan.tokens_per_second,
            text=_rate(plan.tokens_per_second),
            good=1,
            why=f"{model.tokens:,} tokens × {b:,} microbatches / {step}",
        ),
        HeadlineFigure(
            name="FLOP/s of a device",
            value=plan.flops_per_second_per_device,
            good=1,
            share=utilization,
            text=units.flops_per_second(plan.flops_per_second_per_device),
            beside=f"{units.percent(utilization)} of {peak_words(plan)}",
            why=f"{units.percent(utilization)} of {peak} in {precision}{mean} (MFU){_lower_peak(plan)}; model FLOPs "
            f"{units.flops(model.model_flops)} per microbatch, without recomputation, and without masked parts of "
            "attention, which Megatron's formula counts (its MFU is higher)",
        ),
        _device_hours(plan),
        HeadlineFigure(
            name="bubble",
            value=p.bubble_fraction,
            text=units.percent(p.bubble_fraction),
            good=-1,
            share=p.bubble_fraction,
            why="share of device time spent waiting: 1 − Σ B·t / (S·T)"
            if plan.options.pipeline.mode
            else "share of the simulated iteration in which the average submesh runs no task",
        ),
        HeadlineFigure(
            name="peak memory",
            value=full.peak_bytes,
            text=byte(full.peak_bytes),
            good=-1,
            beside=f"of {byte(memory)}",
            share=full.peak_bytes / memory,
            why=f"of {byte(memory)}, in stage {full.index}: weights {byte(full.weight_bytes)} + "
            f"{units.number(full.microbatches_held)} × {byte(full.activation_bytes)} held + "
            f"workspace {byte(full.workspace_bytes)}",
        ),
        HeadlineFigure(
            name="stages",
            value=float(len(plan.stages)),
            text=str(len(plan.stages)),
            beside=f"on {plan.cluster.devices:,} devices",
            why="; ".join(map(stage_phrase, plan.stages)),
        ),
    ]
    shown = [f for f in figures if f.name != "tokens/s" or model.tokens > model.samples]
    return tuple(_with_error(plan, figure) for figure in shown)


def _with_error(plan: PlanValue, figure: HeadlineFigure) -> HeadlineFigure:
    """The figure with its error band, if it is a prediction of time or memory."""
    if figure.name not in _PREDICTED:
        return figure
    band = band_of(plan, _PREDICTED[figure.name])
    return replace(figure, band=band_short(band), error=band_meaning(band))


def against(figure: HeadlineFigure, before: HeadlineFigure) -> tuple[str, int]:
    """(the change in words, 1 for better, −1 for worse, 0 for neither); '' where the change is too small to show."""
    if figure.name == "stages":
        words, apart = f"{figure.value - before.value:+g}", figure.value - before.value
    elif figure.name == "bubble":  # percentage points: a percentage of a percentage would mislead
        apart = figure.value - before.value
        words = f"{_short(100 * apart)} points"
    else:
        apart = figure.value / before.value - 1 if before.value else 0.0
        words = f"{_short(100 * apart)} %"
    if abs(apart) < SMALL:
        return "", 0
    return words.replace("-", "−"), figure.good * (1 if apart > 0 else -1)


def _iteration(plan: PlanValue) -> HeadlineFigure:
    """T, and beside it the sends, which in the paper's mode are no part of it."""
    time = iteration_time(plan)
    share, why = sends_share(time), iteration_sum(plan)
    if time is not None and "sends" in share:
        why += f"; {sends_meaning(time)}"
    seconds = plan.predicted.iteration_seconds
    return HeadlineFigure(name="iteration", value=seconds, text=units.seconds(seconds), beside=share, good=-1, why=why)


def _lower_peak(plan: PlanValue) -> str:
    """', not of …': the peak in the lower precision of linear layers, of which the MFU is no share."""
    recipe, device = plan.cluster.software.low_precision, plan.cluster.device
    if not recipe:
        return ""
    low = RECIPES[recipe]
    return f", not of the {units.flops_per_second(device.peak(low.dtype))} in {low.label}"


def _short(value: float) -> str:
    return f"{value:+,.0f}" if abs(value) >= 10 else f"{value:+.2g}"


def _device_hours(plan: PlanValue) -> HeadlineFigure:
    """Device-hours for a billion tokens, or for a million samples where samples are not sequences."""
    sequences = plan.model.tokens > plan.model.samples
    rate = plan.tokens_per_second if sequences else plan.samples_per_second
    many, words = (1e9, "a billion tokens") if sequences else (1e6, "a million samples")
    hours = plan.cluster.devices * many / rate / 3600.0
    return HeadlineFigure(
        name="device-hours",
        value=hours,
        text=f"{_rate(hours)} h",
        beside=words,
        good=-1,
        why=f"{plan.cluster.devices:,} devices × {words} / {_rate(rate)} per second",
    )


def _rate(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
