"""Predictions and scores as records (JSON) and as rows of tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from statistics import median
from typing import Any

from alpa_explore import units
from alpa_explore.accuracy.scores import Errors
from alpa_explore.plans.report.tables import Row, row_of
from alpa_explore.validation.predict import Prediction, Predictions
from alpa_explore.validation.run_price import RunPrice
from alpa_explore.validation.runs.rows import MeasuredRow, RefusedRow
from alpa_explore.validation.score import GroupScore

WORST = 8
"""Rows of the table of the worst predictions."""
_LINES = 12
"""Line numbers that are listed of the rows that are refused for one reason."""


def row_records(predictions: Predictions) -> list[dict[str, Any]]:
    """A record for each row, predicted or refused, file by file in the order of lines. Where there are several files a
    record also names its file."""
    rows: list[tuple[MeasuredRow | RefusedRow, dict[str, Any]]] = []
    rows += ((p.row, _of_prediction(p)) for p in predictions.predicted)
    rows += ((r, {"refused": r.reason}) for r in predictions.refused)
    several = len({row.file for row, _ in rows}) > 1
    return [
        {
            **({"file": row.file} if several else {}),
            "line": row.line,
            "predicted_seconds": None,
            "measured_seconds": row.measured_seconds,
            "predicted_bytes": None,
            "measured_bytes": row.measured_bytes and round(row.measured_bytes),
            **dict.fromkeys(("fits", "status", "device", "software", "recompute", "range")),
            "notes": [],
            "refused": None,
            "status": row.status,
            **found,
        }
        for row, found in sorted(rows, key=lambda entry: (entry[0].file, entry[0].line))
    ]


def _of_prediction(p: Prediction) -> dict[str, Any]:
    names = "recompute predicted_seconds=seconds predicted_bytes=bytes fits"
    ends = [_of_price(end, names) for end in p.price.ends]
    row = _of_price(p.price, names) | row_of(p.run, "device software")
    return {**row, "range": ends or None, "notes": list(p.notes)}


def _of_price(price: RunPrice, names: str) -> Row:
    return row_of(price, names) | {"predicted_bytes": round(price.bytes)}


def group_records(groups: Sequence[GroupScore]) -> list[dict[str, Any]]:
    """A record for each group; errors are shares (0.05 is 5 %)."""
    return [
        {
            **row_of(group, "source group rows=score.runs"),
            "scored": _runs(group.score.seconds),
            "left_out": group.score.left_out,
            "mean_absolute_percentage_error": _error(group.score.seconds, "mean"),
            "median_absolute_percentage_error": _error(group.score.seconds, "median"),
            "bias": _error(group.score.seconds, "bias"),
            "kendall_tau": group.score.tau,
            "regret": group.score.regret,
            "worst_regret": max((choice.regret for choice in group.choices), default=None),
            "memory_error": _error(group.score.bytes_, "mean"),
            "memory_rows": _runs(group.score.bytes_),
            "confusion": asdict(group.score.fitting),
            "repeat_noise": median(group.repeats) - 1 if group.repeats else None,
            "repeats": len(group.repeats),
            "layout_sets": [
                {
                    **row_of(choice, "model=best.model devices=best.gpus device=best.device"),
                    "rows": len(choice.runs),
                    **row_of(choice, "layouts regret picked_line=predicted_best.line best_line=best.line"),
                    "picks_failed": choice.failed_before > 0,
                }
                for choice in group.choices
            ],
        }
        for group in groups
    ]


def groups_table(groups: Sequence[GroupScore]) -> list[dict[str, Any]]:
    """One line a group; '–' where there is nothing to score."""
    return [
        {
            "group": group.group,
            "rows": (score := group.score).runs,
            "scored": _runs(score.seconds),
            "mean error": _percent(_error(score.seconds, "mean")),
            "median": _percent(_error(score.seconds, "median")),
            "bias": _signed(_error(score.seconds, "bias")),
            "tau": "–" if score.tau is None else f"{score.tau:.2f}",
            "regret": _percent(score.regret),
            "memory": _percent(_error(score.bytes_, "mean")),
            "ran, said to fit": _of(score.fitting.fits_and_ran, score.fitting.too_large_but_ran),
            "failed, said not to": _of(score.fitting.too_large_and_failed, score.fitting.fits_but_failed),
        }
        for group in groups
    ]


def worst_table(predicted: Sequence[Prediction]) -> list[dict[str, Any]]:
    """The runs whose time is farthest off."""
    scored = [(error, p.run) for p in predicted if (error := p.run.seconds_error) is not None]
    worst = sorted(scored, key=lambda pair: -abs(pair[0]))[:WORST]
    return [
        {
            **row_of(run, "line model devices=gpus"),
            "tp×pp×dp": f"{run.tensor}×{run.pipeline}×{run.data}",
            **row_of(run, "microbatch=micro_batch predicted_seconds measured_seconds"),
            "error": _signed(error),
        }
        for error, run in worst
    ]


def refusals_table(predictions: Predictions) -> list[dict[str, Any]]:
    """Refused rows by reason, with their lines."""
    lines: dict[tuple[str, str, str], list[int]] = {}
    for r in predictions.refused:
        lines.setdefault((r.file, r.kind.value, r.reason), []).append(r.line)
    return [
        {"file": file, "rows": len(numbers), "refused": kind, "reason": reason, "lines": _listed(numbers)}
        for (file, kind, reason), numbers in sorted(lines.items())
    ]


def notes_table(predicted: Sequence[Prediction]) -> list[dict[str, Any]]:
    """What rows are priced by the nearest that is known, or by two ends, with their lines."""
    of_note: dict[str, list[int]] = {}
    for p in predicted:
        for note in p.notes:
            of_note.setdefault(note, []).append(p.row.line)
    return [{"rows": len(lines), "note": note, "lines": _listed(lines)} for note, lines in of_note.items()]


def _listed(lines: Sequence[int]) -> str:
    return ", ".join(map(str, lines[:_LINES])) + (", …" if len(lines) > _LINES else "")


def range_table(predicted: Sequence[Prediction]) -> list[dict[str, Any]]:
    """Runs that do not say what is recomputed: seconds and bytes of both ends, those first that are farthest apart."""
    ranged = [(p.run, p.price.ends[0], p.price.ends[-1]) for p in predicted if p.price.ends]
    return [
        {
            **row_of(run, "line model"),
            **{
                f"{which}: recompute, seconds, bytes": f"{end.recompute}, {units.seconds(end.seconds)}, "
                f"{units.bytes_(end.bytes)}" + ("" if end.fits else " (does not fit)")
                for which, end in (("from", first), ("to", last))
            },
            "measured_seconds": run.measured_seconds,
        }
        for run, first, last in sorted(ranged, key=lambda each: each[1].seconds / each[2].seconds)[:WORST]
    ]


def notes(groups: Sequence[GroupScore], predicted: Sequence[Prediction]) -> list[str]:
    """What must be known of the scores of one source: runs left out, noise of repetitions, both sides of the split."""
    whole = next(group for group in groups if group.group == "all")
    held_out = [p.run.held_out for p in predicted if p.row.scored]
    said = [f"Of the scored runs {held_out.count(False)} are to fit figures, {held_out.count(True)} are held out."]
    if whole.score.left_out:
        said.append(
            f"{whole.score.left_out} runs are left out: a fault of the software made their time (column note of the "
            "file), or their source does not say in which precision they ran."
        )
    if whole.repeats:
        said.append(
            f"{len(whole.repeats)} pairs of runs of the same configuration differ by "
            f"{units.percent(median(whole.repeats) - 1)} in the median: no model is closer than that on single runs."
        )
    if picks := sum(choice.failed_before > 0 for choice in whole.choices):
        said.append(f"In {picks} of {len(whole.choices)} sets of layouts it would pick one that failed.")
    return said


def _error(errors: Errors | None, figure: str) -> float | None:
    return None if errors is None else float(getattr(errors, figure))


def _runs(errors: Errors | None) -> int:
    return 0 if errors is None else errors.runs


def _percent(value: float | None) -> str:
    return "–" if value is None else units.percent(value)


def _signed(value: float | None) -> str:
    return "–" if value is None else f"{100 * value:+.1f} %"


def _of(part: int, rest: int) -> str:
    return f"{part} of {part + rest}" if part + rest else "–"
