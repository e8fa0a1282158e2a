"""Where the model is wrong: kinds of runs whose error is well above that of their source, with a reason where one is
known.

A kind is one value of one feature of the layout, the model or the machine. Of all kinds those are listed that add most
to the error of their source: runs × (error − error of the source).
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from alpa_explore.accuracy import tuning
from alpa_explore.accuracy.measured_run import MeasuredRun
from alpa_explore.accuracy.scores import Errors, errors


@dataclass(frozen=True, slots=True, kw_only=True)
class WeakSpot:
    """Runs of one source with one feature in common."""

    source: str
    feature: str
    value: str
    errors: Errors
    of_source: Errors
    why: str
    """A reason that people found; empty where none is known."""


def _degree(value: int | None) -> str:
    return "" if value is None else f"{value:,}"


def _spread(value: int | None) -> str:
    """A count as a range: 1, 2–4, 5–16, 17–64, more."""
    if value is None:
        return ""
    for low, high in ((1, 1), (2, 4), (5, 16), (17, 64)):
        if value <= high:
            return str(low) if low == high else f"{low}–{high}"
    return "more than 64"


_FEATURES: Mapping[str, Callable[[MeasuredRun], str]] = {
    "model": lambda run: run.model,
    "device": lambda run: run.device,
    "software": lambda run: run.software,
    "nodes": lambda run: "one" if run.nodes == 1 else "several",
    "GPUs": lambda run: _degree(run.gpus),
    "tensor parallelism": lambda run: _degree(run.tensor),
    "pipeline stages": lambda run: _degree(run.pipeline),
    "data parallelism": lambda run: _spread(run.data),
    "interleaving": lambda run: _degree(run.virtual),
    "context parallelism": lambda run: _degree(run.context),
    "ZeRO stage": lambda run: _degree(run.zero_stage),
    "samples of a microbatch": lambda run: _degree(run.micro_batch),
    "microbatches": lambda run: _spread(run.microbatches),
    "sequence": lambda run: _degree(run.sequence),
    "recomputation": lambda run: run.recompute,
    "precision": lambda run: run.precision,
}
"""Feature -> its value for a run; '' where the source does not say."""


def weak_spots(runs: Iterable[MeasuredRun], reasons: Sequence[Mapping[str, str]] = ()) -> list[WeakSpot]:
    """The kinds of runs that add most to the errors of their sources."""
    by_source: dict[str, list[MeasuredRun]] = {}
    for run in runs:
        if run.seconds_error is not None:
            by_source.setdefault(run.source, []).append(run)
    spots = [spot for source, own in by_source.items() for spot in _of_source(source, own, reasons)]
    spots.sort(key=_weight)
    return spots[: tuning.MOST_WEAK_SPOTS]


def _of_source(source: str, runs: Sequence[MeasuredRun], reasons: Sequence[Mapping[str, str]]) -> list[WeakSpot]:
    whole = errors(run.seconds_error for run in runs)
    spots = []
    for feature, value_of in _FEATURES.items():
        values: dict[str, list[MeasuredRun]] = {}
        for run in runs:
            values.setdefault(value_of(run), []).append(run)
        for value, own in values.items():
            part = errors(run.seconds_error for run in own)
            if whole is None or part is None or not value or len(values) == 1:
                continue
            if part.runs >= tuning.LEAST_WEAK_RUNS and part.mean >= tuning.WEAK_RATIO * whole.mean:
                why = _why(reasons, source, feature, value)
                spots.append(
                    WeakSpot(source=source, feature=feature, value=value, errors=part, of_source=whole, why=why)
                )
    spots.sort(key=_weight)
    return spots[: tuning.MOST_OF_A_SOURCE]


def _weight(spot: WeakSpot) -> float:
    """What the kind adds to the error of its source, the most first."""
    return -spot.errors.runs * (spot.errors.mean - spot.of_source.mean)


def _why(reasons: Sequence[Mapping[str, str]], source: str, feature: str, value: str) -> str:
    """The reasons given for this kind of run."""
    return " ".join(
        reason["why"]
        for reason in reasons
        if reason["source"] in ("", source) and (reason["feature"], reason["value"]) == (feature, value)
    )
