"""Plans that were tried, beside each other: the settings in which they differ, and what each of them gives;
and what was tried and has no plan, with the reason in a few words."""

from collections.abc import Sequence
from typing import NamedTuple

from alpa_explore import units
from alpa_explore.errors import AlpaExploreError, InfeasiblePlanError
from alpa_explore.plans.report.compare import settings_in_words
from alpa_explore.plans.report.tables import Row, row_of
from alpa_explore.plans.report.text import fullest
from alpa_explore.plans.value import PlanValue
from alpa_explore.units import SMALL, printable


class NoPlan(NamedTuple):
    """A baseline, or a change of the settings, for which there is no plan."""

    name: str
    """'data-parallel', or 'layers 6 → 12'."""
    reason: str
    """'needs 24.5 GiB of 16 GiB'."""
    model: str
    """The name of the model."""

    def __str__(self) -> str:
        return f"{self.name}: {self.reason}"


def reason_of(error: Exception, memory_bytes: int) -> str:
    """Why there is no plan on devices with this much memory, without the remedy."""
    if isinstance(error, InfeasiblePlanError) and error.over_bytes is not None:
        return f"needs {units.bytes_(memory_bytes + error.over_bytes)} of {units.bytes_(memory_bytes)}"
    if isinstance(error, AlpaExploreError):
        return f"{error.what[0].lower()}{error.what[1:]}: {error.found}"
    return f"{type(error).__name__}: {error}"


def tried_table(plan: PlanValue, tried: Sequence[PlanValue]) -> list[Row]:
    """A row for each of `tried`: its number, the settings that are not the same in all of them, as text, and its
    figures. `time_fraction` is the time of a sample over that of `plan`, less 1."""
    worded = [settings_in_words(other) for other in tried]
    names = list(dict.fromkeys(name for words in worded for name in words))
    differing = [name for name in names if len({words.get(name) for words in worded}) > 1]
    return [
        {
            "plan_number": number,
            **{name: printable(words.get(name, "–")) for name in differing},
            **_figures(plan, other),
        }
        for number, (other, words) in enumerate(zip(tried, worded, strict=True))
    ]


def change_text(fraction: float) -> str:
    """−0.31 -> '−31 %'; '±0' for less than 0.05 %."""
    if abs(fraction) < SMALL:
        return "±0"
    return f"{'+' if fraction > 0 else '−'}{units.percent(abs(fraction))}"


def _figures(plan: PlanValue, other: PlanValue) -> Row:
    full = fullest(other)
    return {
        "iteration_seconds": other.predicted.iteration_seconds,
        "time_fraction": plan.samples_per_second / other.samples_per_second - 1,
        **row_of(
            other,
            "samples_a_second=samples_per_second mfu_fraction=flops_utilization "
            "peak_bytes=predicted.peak_bytes_per_device",
        ),
        "memory_fraction": full.peak_bytes / other.device_of(full).memory_bytes,
        "bubble_fraction": other.predicted.bubble_fraction,
        "stages": len(other.stages),
    }
