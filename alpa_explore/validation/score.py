"""Errors of predictions for each source and its groups of runs: those of `accuracy.scores`, of which the record of this
version has the same, and the noise of repetitions, to which no model can be closer on single rows; and which
configurations figures are fitted to, and which are held out.

A configuration is everything that decides on a run but its measured values. The digest of its columns decides on the
side, so that repetitions of a run, and the same run in another file, are on the same side whatever the order of rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from hashlib import sha256
from itertools import combinations

from alpa_explore.accuracy import scores
from alpa_explore.accuracy.choices import Choice, choices
from alpa_explore.accuracy.measured_run import MeasuredRun
from alpa_explore.accuracy.tuning import ENOUGH_MFU
from alpa_explore.plans.report.tables import row_of
from alpa_explore.validation.predict import Prediction
from alpa_explore.validation.runs.nearest import is_silent
from alpa_explore.validation.runs.rows import MeasuredRow

SIDES = ("fit", "held-out")
Configuration = tuple[object, ...]
_FAULTY = "a fault of the software made its time"
_SILENT = "its source does not say in which precision it ran"


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
    runs = [measured_run(p) for p in predictions]
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
    nodes = ["one node" if p.row.devices <= p.row.devices_per_node else "several nodes" for p in predictions]
    for names in ([f"{p.device} {p.row.precision}" for p in predictions], nodes):
        parts: dict[str, list[Prediction]] = {}
        for p, name in zip(predictions, names, strict=True):
            parts.setdefault(name, []).append(p)
        if len(parts) > 1:
            groups += sorted(parts.items())
    enough = [p for p in predictions if (p.measured_mfu or 0) >= ENOUGH_MFU]
    if 0 < len([p for p in enough if p.row.scored]) < len([p for p in predictions if p.row.scored]):
        groups.append((f"MFU ≥ {ENOUGH_MFU:.0%}".replace("%", " %"), enough))
    return groups


def _repeats(predictions: Iterable[Prediction]) -> list[float]:
    runs: dict[Configuration, list[float]] = {}
    for p in predictions:
        if p.row.scored and p.row.measured_seconds is not None:
            runs.setdefault(configuration(p.row), []).append(p.row.measured_seconds)
    return [max(a, b) / min(a, b) for times in runs.values() for a, b in combinations(times, 2)]


def measured_run(prediction: Prediction) -> MeasuredRun:
    """A prediction as a run of the record."""
    row, layout = prediction.row, prediction.row.layout
    return MeasuredRun(
        **row_of(
            row,
            "source=file line model gpus=devices gpus_per_node=devices_per_node sequence global_batch zero_stage "
            "recompute precision measured_seconds measured_bytes status",
        ),
        **row_of(layout, "micro_batch=microbatch microbatches virtual=chunks tensor pipeline data context expert"),
        **row_of(prediction, "device software overhead predicted_seconds=seconds mfu=measured_mfu fits"),
        sizes=row.architecture.sizes,
        experts=row.architecture.experts > 1,
        token_flops=row.architecture.flops(1, row.sequence),
        # Where the source leaves open what is recomputed, the sizes of both ends say nothing of the model's error.
        predicted_bytes=None if prediction.ends else prediction.bytes,
        left_out=_FAULTY if row.faulty else _SILENT if is_silent(row.precision) else "",
        held_out=side(row) == "held-out",
    )


def configuration(row: MeasuredRow) -> Configuration:
    """All that decides on a run: model, batch, machine, layout, precision, software."""
    a, at = row.architecture, row.layout
    return (
        *(a.kind, a.layers, a.hidden, a.heads, a.kv_heads, a.ffn, a.vocabulary, a.tied, row.sequence),
        *(row.global_batch, at.microbatch, row.devices, row.gpu_type, row.devices_per_node),
        *(at.tensor, at.pipeline, at.data, at.chunks, row.zero_stage),
        *(row.recompute, row.precision, row.schedule, row.framework),
        # Absent where they say nothing, so that other configurations stay on their side.
        *((a.experts, a.chosen_experts, at.expert, at.expert_tensor) if a.experts > 1 else ()),
        *((at.context,) if at.context > 1 else ()),
    )


def side(row: MeasuredRow) -> str:
    """'fit' or 'held-out', half of all configurations each."""
    return SIDES[sha256(repr(configuration(row)).encode()).digest()[0] % 2]
