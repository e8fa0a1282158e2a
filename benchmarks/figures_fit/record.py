"""Predictions of measured runs as the record of `alpa_explore.accuracy`: error bands and figures are made from it."""

from __future__ import annotations

import gzip
import json
from collections.abc import Mapping
from dataclasses import asdict, fields, replace
from typing import Any

from alpa_explore.accuracy.measured_run import MeasuredRun
from alpa_explore.accuracy.record import FORMAT, VERSION, Record, Source
from alpa_explore.validation.predict import Prediction, Predictions
from alpa_explore.validation.runs.rows import RefusedRow


def record_of(predictions: Predictions, sources: Mapping[str, Source], *, made: str) -> Record:
    """The record of all rows, predicted or refused, in the order of `sources`, then of lines.

    `sources` describes each file by its name without folder and suffix; a file that it lacks is named after itself.
    Of a source with an empty `fitted` no run was fitted to; of the others those on the fitted side of the split.
    """
    rows: list[Prediction | RefusedRow] = [*predictions.predicted, *predictions.refused]
    names = dict.fromkeys([*sources, *(_file(row) for row in rows)])
    present = {_file(row) for row in rows}
    described = {name: sources.get(name, Source(name=name, label=name, origin="", licence="")) for name in names}
    runs = [_run(row, fitted=bool(described[_file(row)].fitted)) for row in rows]
    order = list(names)
    return Record(
        runs=tuple(sorted(runs, key=lambda run: (order.index(run.source), run.line))),
        sources=tuple(described[name] for name in names if name in present),
        made=made,
    )


def _file(row: Prediction | RefusedRow) -> str:
    return row.row.file if isinstance(row, Prediction) else row.file


def _run(row: Prediction | RefusedRow, *, fitted: bool) -> MeasuredRun:
    if isinstance(row, Prediction):
        return replace(row.run, held_out=not fitted or row.run.held_out)
    return MeasuredRun(
        source=row.file,
        line=row.line,
        device=row.gpu_type,
        software=row.framework,
        gpus=0,
        model=row.model,
        measured_seconds=row.measured_seconds,
        measured_bytes=row.measured_bytes,
        status=row.status,
        refused=row.reason,
    )


def record_to_bytes(record: Record) -> bytes:
    """The content of the file; equal records give equal bytes."""
    columns = [field.name for field in fields(MeasuredRun)]
    document = {
        "format": FORMAT,
        "version": VERSION,
        "made": record.made,
        "sources": [asdict(source) for source in record.sources],
        "columns": columns,
        "rows": [[_rounded(getattr(run, name)) for name in columns] for run in record.runs],
    }
    text = json.dumps(document, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return gzip.compress(text.encode(), mtime=0)


def _rounded(value: Any) -> Any:
    """Six digits of a figure: more than any clock measured."""
    return float(f"{value:.6g}") if isinstance(value, float) else value
