"""The error to expect of a prediction: that of measured runs of its kind, which no figure was fitted to.

The kind is widened until there are `tuning.LEAST_RUNS` runs, and the band says how far:

    1. the same device and software, and as the cluster on one node or on several
    2. the same device and software
    3. the same software on other devices
    4. none: not measured on runs of this kind
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Literal, TypeAlias

from alpa_explore.accuracy import tuning
from alpa_explore.accuracy.measured_run import MeasuredRun
from alpa_explore.accuracy.record import Record, stored_record
from alpa_explore.accuracy.scores import errors
from alpa_explore.cluster import Cluster

Quantity: TypeAlias = Literal["seconds", "bytes"]
NOT_MEASURED = "not measured on runs of this kind"
"""What stands in the place of a band."""
_NOTICEABLE_BIAS = 0.01
_REACHING = f", MFU {tuning.ENOUGH_MFU:.0%} or more".replace("%", " %")


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
    """'312 runs of Megatron on A100-80GB'."""

    @property
    def short(self) -> str:
        """'± 9 %'."""
        percent = 100.0 * self.fraction
        return "± <1 %" if percent < 0.5 else f"± {percent:.0f} %"

    @property
    def words(self) -> str:
        """'± 9 % (312 runs of Megatron on A100-80GB)'."""
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


def error_band(
    cluster: Cluster, quantity: Quantity, record: Record | None = None, *, mfu: float | None = None
) -> Band | None:
    """The band of predictions for a cluster and its software; None where no run of the software was measured, and for
    unlike nodes, on which none was.

    With `mfu`, the share of the peak that a plan reaches, of at least `tuning.ENOUGH_MFU`, only times of runs that
    reach as much count, where the share is known.
    """
    if cluster.others:
        return None
    software = cluster.software
    kind = _Kind(
        software=software.name,
        label=software.label,
        device=cluster.device.name,
        one_node=cluster.nodes == 1,
        enough=quantity == "seconds" and mfu is not None and mfu >= tuning.ENOUGH_MFU,
    )
    return stored_band(kind, quantity) if record is None else _band(kind, quantity, record)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Kind:
    """The runs that count for a prediction."""

    software: str
    label: str
    """Of the software."""
    device: str
    one_node: bool
    enough: bool
    """Only runs that reach a usual share of the peak."""


@cache
def stored_band(kind: _Kind, quantity: Quantity) -> Band | None:
    """Of the record that is part of the package; computed once, as every plan that is shown needs it."""
    return _band(kind, quantity, stored_record())


def _band(kind: _Kind, quantity: Quantity, record: Record) -> Band | None:
    known = [run for run in record.runs if run.held_out and _error(run, quantity) is not None]
    of_software = [run for run in known if run.software == kind.software]
    runs = [run for run in of_software if not kind.enough or run.mfu is None or run.mfu >= tuning.ENOUGH_MFU]
    same = [run for run in runs if run.device == kind.device]
    scale = [run for run in same if (run.nodes == 1) == kind.one_node]
    label, shown = kind.label, kind.device.upper()
    where, other = ("one node", "several nodes") if kind.one_node else ("several nodes", "one node")
    scopes: list[tuple[Sequence[MeasuredRun], str]] = [
        (scale, f"{label} on {where} of {shown}"),
        (same, f"{label} on {shown}, most of them on {other}"),
        (runs, f"{label} on {_listed(run.device.upper() for run in runs)}; too few on {shown}"),
    ]
    for chosen, words in scopes:
        found = errors(_error(run, quantity) for run in chosen)
        if found is not None and found.runs >= tuning.LEAST_RUNS:
            return Band(
                quantity=quantity,
                fraction=found.mean,
                bias=found.bias,
                runs=found.runs,
                kind=f"{found.runs:,} runs of {words}{_REACHING if len(runs) < len(of_software) else ''}",
            )
    return None


def _error(run: MeasuredRun, quantity: Quantity) -> float | None:
    return run.seconds_error if quantity == "seconds" else run.bytes_error


def _listed(names: Iterable[str]) -> str:
    """'A100-80GB, H100'; '3 other devices'."""
    different = list(dict.fromkeys(names))
    return ", ".join(different) if len(different) < 3 else f"{len(different)} other devices"
