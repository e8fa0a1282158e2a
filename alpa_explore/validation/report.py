"""Predictions and scores as records (JSON) and as rows of tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from alpa_explore import units
from alpa_explore.validation.predict import Prediction, Predictions
from alpa_explore.validation.score import GroupScore
from alpa_explore.validation.split import SIDES, side

WORST = 8
"""Rows of the table of the worst predictions."""
_LINES = 12
"""Line numbers that are listed of the rows that are refused for one reason."""


def row_records(predictions: Predictions) -> list[dict[str, Any]]:
    """A record for each row, predicted or refused, file by file in the order of lines. Where there are several files a
    record also names its file."""
    records: list[tuple[str, int, dict[str, Any]]] = []
    for p in predictions.predicted:
        record = {
            "line": p.row.line,
            "predicted_seconds": p.seconds,
            "measured_seconds": p.row.measured_seconds,
            "predicted_bytes": round(p.bytes),
            "measured_bytes": p.row.measured_bytes and round(p.row.measured_bytes),
            "fits": p.fits,
            "status": p.row.status,
            "device": p.device,
            "software": p.software,
            "recompute": p.recompute,
            "range": [
                {
                    "recompute": end.recompute,
                    "predicted_seconds": end.seconds,
                    "predicted_bytes": round(end.bytes),
                    "fits": end.fits,
                }
                for end in p.ends
            ]
            or None,
            "notes": list(p.notes),
            "refused": None,
        }
        records.append((p.row.file, p.row.line, record))
    for r in predictions.refused:
        record = {
            "line": r.line,
            "predicted_seconds": None,
            "measured_seconds": r.measured_seconds,
            "predicted_bytes": None,
            "measured_bytes": r.measured_bytes and round(r.measured_bytes),
            "fits": None,
            "status": r.status,
            "device": None,
            "software": None,
            "recompute": None,
            "range": None,
            "notes": [],
            "refused": r.reason,
        }
        records.append((r.file, r.line, record))
    several = len({file for file, _, _ in records}) > 1
    records.sort(key=lambda entry: entry[:2])
    return [{"file": file, **record} if several else record for file, _, record in records]


def group_records(scores: Sequence[GroupScore]) -> list[dict[str, Any]]:
    """A record for each group; errors are shares (0.05 is 5 %)."""
    return [
        {
            "source": s.source,
            "group": s.group,
            "rows": s.rows,
            "scored": s.scored,
            "left_out": s.left_out,
            "mean_absolute_percentage_error": s.mean_error,
            "median_absolute_percentage_error": s.median_error,
            "bias": s.bias,
            "kendall_tau": s.kendall_tau,
            "regret": s.regret,
            "worst_regret": s.worst_regret,
            "memory_error": s.memory_error,
            "memory_rows": s.memory_rows,
            "confusion": asdict(s.confusion),
            "repeat_noise": s.repeat_noise,
            "repeats": s.repeats,
            "layout_sets": [asdict(each) for each in s.sets],
        }
        for s in scores
    ]


def groups_table(scores: Sequence[GroupScore]) -> list[dict[str, Any]]:
    """One line a group; '–' where there is nothing to score."""
    return [
        {
            "group": s.group,
            "rows": s.rows,
            "scored": s.scored,
            "mean error": _percent(s.mean_error),
            "median": _percent(s.median_error),
            "bias": _signed(s.bias),
            "tau": "–" if s.kendall_tau is None else f"{s.kendall_tau:.2f}",
            "regret": _percent(s.regret),
            "memory": _percent(s.memory_error),
            "ran, said to fit": _of(s.confusion.fits_ran, s.confusion.fits_ran + s.confusion.over_ran),
            "failed, said not to": _of(s.confusion.over_failed, s.confusion.over_failed + s.confusion.fits_failed),
        }
        for s in scores
    ]


def worst_table(predicted: Sequence[Prediction], count: int = WORST) -> list[dict[str, Any]]:
    """The runs whose time is farthest off."""
    scored = [(abs(p.error), p) for p in predicted if p.error is not None]
    worst = sorted(scored, key=lambda pair: -pair[0])[:count]
    return [
        {
            "line": p.row.line,
            "model": p.row.model,
            "devices": p.row.devices,
            "tp×pp×dp": f"{p.row.tensor}×{p.row.pipeline}×{p.row.data}",
            "microbatch": p.row.micro_batch,
            "predicted_seconds": p.seconds,
            "measured_seconds": p.row.measured_seconds,
            "error": _signed(p.error),
        }
        for _, p in worst
    ]


def refusals_table(predictions: Predictions) -> list[dict[str, Any]]:
    """Refused rows by reason, with their lines."""
    lines: dict[tuple[str, str, str], list[int]] = {}
    for r in predictions.refused:
        lines.setdefault((r.file, r.kind.value, r.reason), []).append(r.line)
    return [
        {
            "file": file,
            "rows": len(numbers),
            "refused": kind,
            "reason": reason,
            "lines": ", ".join(map(str, numbers[:_LINES])) + (", …" if len(numbers) > _LINES else ""),
        }
        for (file, kind, reason), numbers in sorted(lines.items())
    ]


def notes_table(predicted: Sequence[Prediction]) -> list[dict[str, Any]]:
    """What rows are priced by the nearest that is known, or by two ends, with their lines, and, where these are ends,
    the farthest apart of their seconds and bytes."""
    of_note: dict[str, list[Prediction]] = {}
    for p in predicted:
        for note in p.notes:
            of_note.setdefault(note, []).append(p)
    return [
        {
            "rows": len(rows),
            "note": note,
            "lines": ", ".join(str(p.row.line) for p in rows[:_LINES]) + (", …" if len(rows) > _LINES else ""),
        }
        for note, rows in of_note.items()
    ]


def range_table(predicted: Sequence[Prediction], count: int = WORST) -> list[dict[str, Any]]:
    """Runs that do not say what is recomputed: seconds and bytes of both ends, those first that are farthest apart."""
    ranged = sorted((p for p in predicted if p.ends), key=lambda p: p.ends[0].seconds / p.ends[-1].seconds)
    return [
        {
            "line": p.row.line,
            "model": p.row.model,
            **{
                f"{which}: recompute, seconds, bytes": f"{end.recompute}, {units.seconds(end.seconds)}, "
                f"{units.bytes_(end.bytes)}" + ("" if end.fits else " (does not fit)")
                for which, end in (("from", p.ends[0]), ("to", p.ends[-1]))
            },
            "measured_seconds": p.row.measured_seconds,
        }
        for p in ranged[:count]
    ]


def notes(scores: Sequence[GroupScore], predicted: Sequence[Prediction]) -> list[str]:
    """What must be known of the scores of one source: runs left out, noise of repetitions, both sides of the split."""
    whole = next(s for s in scores if s.group == "all")
    sides = [side(p.row) for p in predicted if p.row.scored]
    said = [f"Of the scored runs {sides.count(SIDES[0])} are to fit figures, {sides.count(SIDES[1])} are held out."]
    if whole.left_out:
        said.append(
            f"{whole.left_out} runs are left out: a fault of the software made their time (column note of the file)."
        )
    if whole.repeat_noise is not None:
        said.append(
            f"{whole.repeats} pairs of runs of the same configuration differ by {units.percent(whole.repeat_noise)} "
            "in the median: no model is closer than that on single runs."
        )
    picks = [s for s in whole.sets if s.picks_failed]
    if picks:
        said.append(f"In {len(picks)} of {len(whole.sets)} sets of layouts it would pick one that failed.")
    return said


def _percent(value: float | None) -> str:
    return "–" if value is None else units.percent(value)


def _signed(value: float | None) -> str:
    return "–" if value is None else f"{100 * value:+.1f} %"


def _of(part: int, whole: int) -> str:
    return f"{part} of {whole}" if whole else "–"
