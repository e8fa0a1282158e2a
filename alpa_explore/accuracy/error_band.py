"""The error to expect of a prediction: that of measured runs like it (`likeness`), which no figure was fitted to.

Where fewer than `tuning.LEAST_RUNS` have it, less is asked of them, and the band says so:

    1. runs like it on the same device, and as the cluster on one node or on several
    2. on the same device
    3. on the same device, also those with context parallelism, whose errors are larger
    4. on other devices
    5. none: no run like this was measured
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Literal, TypeAlias

from alpa_explore.accuracy import tuning
from alpa_explore.accuracy.likeness import Case, is_like
from alpa_explore.accuracy.measured_run import MeasuredRun
from alpa_explore.accuracy.record import Record, stored_record
from alpa_explore.accuracy.scores import errors

Quantity: TypeAlias = Literal["seconds", "bytes"]
NOT_MEASURED = "no run like this was measured"
"""What stands in the place of a band."""
_NOTICEABLE_BIAS = 0.01


@dataclass(frozen=True, slots=True, kw_only=True)
class Band:
    """The mean error of predictions of one kind."""

    quantity: Quantity
    fraction: float
    """Mean of |predicted / measured − 1|."""
    bias: float
    """Mean of predicted / measured − 1: positive where predictions are too large."""
    runs: int
    """Number of runs."""
    kind: str
    """'312 runs of Megatron in 16 bits on A100-80GB'."""

    @property
    def short(self) -> str:
        """'± 9 %'."""
        percent = 100.0 * self.fraction
        return "± <1 %" if percent < 0.5 else f"± {percent:.0f} %"

    @property
    def words(self) -> str:
        """'± 9 % (312 runs of Megatron in 16 bits on A100-80GB)'."""
        return f"{self.short} ({self.kind})"

    @property
    def meaning(self) -> str:
        """What the band is, and to which side predictions err."""
        text = f"{self.short}: mean error of {self.kind}"
        if abs(self.bias) < _NOTICEABLE_BIAS:
            return text
        side = (
            ("long" if self.bias > 0 else "short")
            if self.quantity == "seconds"
            else ("large" if self.bias > 0 else "small")
        )
        return f"{text}; on average {abs(100.0 * self.bias):.0f} % too {side}"


def error_band(asked: Case | None, quantity: Quantity, record: Record | None = None) -> Band | None:
    """The band of a predicted case; None where fewer than `tuning.LEAST_RUNS` such runs were measured, and
    for no case: that of unlike nodes, on which no run was."""
    if asked is None:
        return None
    asked = asked if quantity == "seconds" else asked.of_memory
    return stored_band(asked, quantity) if record is None else _band(asked, quantity, record)


@cache
def stored_band(asked: Case, quantity: Quantity) -> Band | None:
    """Of the record that is part of the package; computed once, as every plan that is shown needs it."""
    return _band(asked, quantity, stored_record())


def _band(asked: Case, quantity: Quantity, record: Record) -> Band | None:
    told = [run for run in record.runs if run.held_out and _error(run, quantity) is not None]
    runs = [run for run in told if is_like(run, asked)]
    same = [run for run in runs if run.device == asked.device]
    sharing = replace(asked, context=True)
    also = [run for run in told if not asked.context and run.device == asked.device and is_like(run, sharing)]
    scale = [run for run in same if (run.nodes == 1) == asked.one_node]
    of, shown = f"{asked.label} {asked.words}", asked.device.upper()
    where, other = ("one node", "several nodes") if asked.one_node else ("several nodes", "one node")
    scopes: list[tuple[Sequence[MeasuredRun], str]] = [
        (scale, f"{of} on {where} of {shown}"),
        (same, f"{of} on {shown}, most of them on {other}"),
        (same + also, f"{of} on {shown}, most of them with context parallelism"),
        (runs, f"{of} on {_listed(run.device.upper() for run in runs)}; too few on {shown}"),
    ]
    for chosen, words in scopes:
        found = errors(_error(run, quantity) for run in chosen)
        if found is not None and found.runs >= tuning.LEAST_RUNS:
            return Band(
                quantity=quantity,
                fraction=found.mean,
                bias=found.bias,
                runs=found.runs,
                kind=f"{found.runs:,} runs of {words}",
            )
    return None


def band_with_timed(band: Band | None, share: float, device: str) -> Band | None:
    """The band of a plan's seconds where kernels with this share of its computing time were timed on `device`, and the
    others are by curves: of CPUs the mean of both errors by the share; else `band`, that of curves alone."""
    if not device.upper().endswith("CPU"):
        return band
    pairs = zip(tuning.ERROR_OF_TIMED, tuning.ERROR_OF_CURVES, strict=True)
    fraction, bias = (share * timed + (1 - share) * curves for timed, curves in pairs)
    kind = f"{tuning.RUNS_ON_CPU} runs on CPUs, with {100 * share:.0f} % of the computing time by timed kernels"
    return Band(quantity="seconds", fraction=fraction, bias=bias, runs=tuning.RUNS_ON_CPU, kind=kind)


def _error(run: MeasuredRun, quantity: Quantity) -> float | None:
    return run.seconds_error if quantity == "seconds" else run.bytes_error


def _listed(names: Iterable[str]) -> str:
    """'A100-80GB, H100'; '3 other devices'."""
    different = list(dict.fromkeys(names))
    return ", ".join(different) if len(different) < 3 else f"{len(different)} other devices"


def usable_bytes(memory_bytes: float) -> float:
    """What a framework may use of a device with so much memory: without what the driver and the context take."""
    return tuning.USABLE_SHARE * memory_bytes


def is_tight(peak_bytes: float, memory_bytes: float, band: Band | None) -> bool:
    """Whether a peak of so many predicted bytes exceeds what is usable if it is larger by its mean error; of a kind
    that nobody measured, by `tuning.UNKNOWN_ERROR`."""
    error = tuning.UNKNOWN_ERROR if band is None else band.fraction
    return peak_bytes * (1 + error) > usable_bytes(memory_bytes)
