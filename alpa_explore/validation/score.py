"""Errors of predictions for each source and its groups of runs: those of `accuracy.scores`, of which the record of this
version has the same, and the noise of repetitions, to which no model can be closer on single rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations

from alpa_explore.accuracy import scores
from alpa_explore.accuracy.choices import Choice, choices
from alpa_explore.accuracy.tuning import ENOUGH_MFU
from alpa_explore.validation.predict import Prediction
from alpa_explore.validation.runs.rows import Configuration, configuration


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupScore:
    """Errors of one group of runs."""

    source: str
    """Name of the file."""
    group: str
    """'all', or the part of the source."""
    score: scores.Score
    choices: tuple[Choice, ...]
    """The layouts of one model, sequence and number of devices that were measured, where there are at least two."""
    repeats: tuple[float, ...]
    """Larger / smaller measured time of every pair of runs of the same configuration."""


def score(predictions: Sequence[Prediction]) -> tuple[GroupScore, ...]:
    """The scores of every source: of all its runs, then of its groups, where there is more than one."""
    found: list[GroupScore] = []
    for source in dict.fromkeys(p.row.file for p in predictions):
        mine = [p for p in predictions if p.row.file == source]
        found += [score_group(source, name, part) for name, part in _groups(mine)]
    return tuple(found)


def score_group(source: str, group: str, predictions: Sequence[Prediction]) -> GroupScore:
    """The score of any set of predictions."""
    runs = [p.run for p in predictions]
    return GroupScore(
        source=source,
        group=group,
        score=scores.score(runs),
        choices=tuple(sorted(choices(runs), key=lambda choice: (choice.best.model, choice.best.gpus))),
        repeats=tuple(_repeats(predictions)),
    )


def _groups(predictions: Sequence[Prediction]) -> list[tuple[str, list[Prediction]]]:
    """Of one source: all; device and precision; one node or several; runs with enough MFU, where it has others too."""
    groups: list[tuple[str, list[Prediction]]] = [("all", list(predictions))]
    nodes = ["one node" if p.run.nodes == 1 else "several nodes" for p in predictions]
    for names in ([f"{p.run.device} {p.row.precision}" for p in predictions], nodes):
        parts: dict[str, list[Prediction]] = {}
        for p, name in zip(predictions, names, strict=True):
            parts.setdefault(name, []).append(p)
        if len(parts) > 1:
            groups += sorted(parts.items())
    enough = [p for p in predictions if (p.run.mfu or 0) >= ENOUGH_MFU]
    if 0 < len([p for p in enough if p.row.scored]) < len([p for p in predictions if p.row.scored]):
        groups.append((f"MFU ≥ {ENOUGH_MFU:.0%}".replace("%", " %"), enough))
    return groups


def _repeats(predictions: Iterable[Prediction]) -> list[float]:
    runs: dict[Configuration, list[float]] = {}
    for p in predictions:
        if p.row.scored and p.row.measured_seconds is not None:
            runs.setdefault(configuration(p.row), []).append(p.row.measured_seconds)
    return [max(a, b) / min(a, b) for times in runs.values() for a, b in combinations(times, 2)]
