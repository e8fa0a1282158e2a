"""Errors of predictions: of time, order, choice, memory, and of what fits, for each source and group of runs.

With e = predicted / measured − 1 over the runs that count (`MeasuredRow.scored`):

    mean and median absolute percentage error   mean |e|, median |e|
    bias                                        mean e
    Kendall's tau                               of the order of the layouts of one model, sequence and number of
                                                devices, by seconds a token; mean over such sets, weighted by pairs
    regret                                      of the layout predicted fastest, among those that ran and are said to
                                                fit: its measured seconds a token over the least measured ones, − 1
    memory error                                mean |predicted / measured − 1| of bytes, where the source says what is
                                                recomputed
    confusion                                   said to fit or not × ran or failed
    repeat noise                                median of larger / smaller − 1 of the same configuration run twice: no
                                                model can be closer on single rows
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations
from statistics import fmean, median

from alpa_explore.accuracy.scores import kendall_tau
from alpa_explore.validation.predict import Prediction
from alpa_explore.validation.split import Configuration, configuration

ENOUGH_MFU = 0.15
"""Runs below are limited by something else than their devices' arithmetic; sources that have both are also scored
without them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Confusion:
    """Runs by what is said of them and what they did."""

    fits_ran: int = 0
    fits_failed: int = 0
    over_ran: int = 0
    """Said not to fit, but ran."""
    over_failed: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class LayoutSet:
    """The layouts of one model, sequence and number of devices that were measured."""

    model: str
    devices: int
    device: str
    rows: int
    layouts: int
    """Different configurations."""
    kendall_tau: float | None
    """None where all layouts are as fast, measured or predicted."""
    regret: float
    """0: it picks the fastest."""
    picked_line: int
    """Of the layout that it picks."""
    best_line: int
    picks_failed: bool
    """Whether among all runs, those that failed included, it would pick one that failed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupScore:
    """Errors of one group of runs; None where there is nothing to score."""

    source: str
    """Name of the file."""
    group: str
    """'all', or the part of the source."""
    rows: int
    """With a prediction."""
    scored: int
    """Whose time counts."""
    left_out: int
    """That ran, but whose time a known fault of the software makes."""
    mean_error: float | None
    median_error: float | None
    bias: float | None
    kendall_tau: float | None
    regret: float | None
    """Mean over the sets of layouts."""
    worst_regret: float | None
    memory_error: float | None
    memory_rows: int
    confusion: Confusion
    repeat_noise: float | None
    repeats: int
    """Pairs of the same configuration."""
    sets: tuple[LayoutSet, ...]


def score(predictions: Sequence[Prediction]) -> tuple[GroupScore, ...]:
    """The scores of every source: of all its runs, then of its groups, where there is more than one."""
    scores: list[GroupScore] = []
    for source in dict.fromkeys(p.row.file for p in predictions):
        mine = [p for p in predictions if p.row.file == source]
        scores += [score_group(source, name, part) for name, part in _groups(mine)]
    return tuple(scores)


def score_group(source: str, group: str, predictions: Sequence[Prediction]) -> GroupScore:
    """The score of any set of predictions."""
    errors = [p.error for p in predictions if p.error is not None]
    memory = [
        abs(p.bytes / p.row.measured_bytes - 1)
        for p in predictions
        if p.row.measured_bytes and p.row.ran is not False and not p.ends
    ]
    sets = layout_sets(predictions)
    pairs = [(s.kendall_tau, s.rows * (s.rows - 1) // 2) for s in sets]
    weighted = [(tau, count) for tau, count in pairs if tau is not None]
    noise = repeat_ratios(predictions)
    return GroupScore(
        source=source,
        group=group,
        rows=len(predictions),
        scored=len(errors),
        left_out=sum(p.row.faulty and p.row.ran is True for p in predictions),
        mean_error=_over(fmean, [abs(e) for e in errors]),
        median_error=_over(median, [abs(e) for e in errors]),
        bias=_over(fmean, errors),
        kendall_tau=sum(t * n for t, n in weighted) / sum(n for _, n in weighted) if weighted else None,
        regret=_over(fmean, [s.regret for s in sets]),
        worst_regret=_over(max, [s.regret for s in sets]),
        memory_error=_over(fmean, memory),
        memory_rows=len(memory),
        confusion=confusion(predictions),
        repeat_noise=_over(median, [ratio - 1 for ratio in noise]),
        repeats=len(noise),
        sets=sets,
    )


def _groups(predictions: Sequence[Prediction]) -> list[tuple[str, list[Prediction]]]:
    """Of one source: all; device and precision; one node or several; runs with enough MFU."""
    groups: list[tuple[str, list[Prediction]]] = [("all", list(predictions))]
    for name in (_device_and_precision, _nodes):
        parts: dict[str, list[Prediction]] = {}
        for p in predictions:
            parts.setdefault(name(p), []).append(p)
        if len(parts) > 1:
            groups += sorted(parts.items())
    enough = [p for p in predictions if (p.measured_mfu or 0) >= ENOUGH_MFU]
    if 0 < len([p for p in enough if p.row.scored]) < len([p for p in predictions if p.row.scored]):
        groups.append((f"MFU ≥ {ENOUGH_MFU:.0%}".replace("%", " %"), enough))
    return groups


def _device_and_precision(p: Prediction) -> str:
    return f"{p.device} {p.row.precision}"


def _nodes(p: Prediction) -> str:
    return "one node" if p.row.devices <= p.row.devices_per_node else "several nodes"


def confusion(predictions: Iterable[Prediction]) -> Confusion:
    """Fits and failures; runs of which the source does not say are left out."""
    counts = [(p.fits, p.row.ran) for p in predictions if p.row.ran is not None]
    return Confusion(
        fits_ran=counts.count((True, True)),
        fits_failed=counts.count((True, False)),
        over_ran=counts.count((False, True)),
        over_failed=counts.count((False, False)),
    )


def layout_sets(predictions: Sequence[Prediction]) -> tuple[LayoutSet, ...]:
    """The sets of at least two layouts that were measured, by model and number of devices."""
    members: dict[tuple[object, ...], list[Prediction]] = {}
    for p in predictions:
        row = p.row
        key = (row.architecture, row.sequence, row.precision, row.devices, p.device, row.framework)
        members.setdefault(key, []).append(p)
    sets = (_layout_set(mine) for mine in members.values())
    return tuple(sorted((s for s in sets if s is not None), key=lambda s: (s.model, s.devices)))


def _layout_set(predictions: Sequence[Prediction]) -> LayoutSet | None:
    scored = [p for p in predictions if p.row.scored]
    layouts: dict[Configuration, list[Prediction]] = {}
    for p in scored:
        layouts.setdefault(configuration(p.row), []).append(p)
    if len(layouts) < 2:
        return None
    candidates = {c: runs for c, runs in layouts.items() if runs[0].fits} or layouts
    measured = {c: fmean(_measured_rate(p) for p in runs) for c, runs in layouts.items()}
    picked = min(candidates, key=lambda c: _predicted_rate(layouts[c][0]))
    best = min(measured, key=lambda c: measured[c])
    fitting = [p for p in predictions if p.fits and (p.row.scored or p.row.ran is False)]
    first = min(fitting, key=_predicted_rate, default=None)
    return LayoutSet(
        model=scored[0].row.model,
        devices=scored[0].row.devices,
        device=scored[0].device,
        rows=len(scored),
        layouts=len(layouts),
        kendall_tau=kendall_tau([_predicted_rate(p) for p in scored], [_measured_rate(p) for p in scored]),
        regret=measured[picked] / measured[best] - 1,
        picked_line=layouts[picked][0].row.line,
        best_line=layouts[best][0].row.line,
        picks_failed=first is not None and first.row.ran is False,
    )


def _predicted_rate(p: Prediction) -> float:
    """Predicted seconds a token: runs of one set may have different global batches."""
    return p.seconds / p.row.tokens


def _measured_rate(p: Prediction) -> float:
    assert p.row.measured_seconds is not None
    return p.row.measured_seconds / p.row.tokens


def repeat_ratios(predictions: Iterable[Prediction]) -> list[float]:
    """Larger / smaller measured time of every pair of scored runs with the same configuration."""
    runs: dict[Configuration, list[float]] = {}
    for p in predictions:
        if p.row.scored and p.row.measured_seconds is not None:
            runs.setdefault(configuration(p.row), []).append(p.row.measured_seconds)
    return [max(a, b) / min(a, b) for times in runs.values() for a, b in combinations(times, 2)]


def _over(figure: Callable[[Sequence[float]], float], values: Sequence[float]) -> float | None:
    return figure(values) if values else None
