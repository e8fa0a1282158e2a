"""Read a table of layouts: CSV with the columns of vTrain's measurements, a `Layout` and its measured time per row."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from alpa_explore.errors import OptionError
from alpa_explore.layouts.layout import Layout

if TYPE_CHECKING:
    from _csv import Reader as CsvReader

COLUMNS = {
    "# GPUs": "devices",
    "global batch": "global_batch",
    "micro batch": "micro_batch",
    "hidden size": "hidden",
    "attention heads": "heads",
    "# layers": "layers",
    "sequence length": "sequence",
    "tensor parallelism": "tensor",
    "data parallelism": "data",
    "pipeline parallelism": "pipeline",
}
"""Column -> field of `Layout`; other columns are kept as text."""
MEASURED = "iteration time (ms)"
_MOST_ROWS = 1_000_000
_MOST_FAULTS = 10
"""The number of faults that one error lists."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One row of the table."""

    line: int
    cells: Mapping[str, str]
    layout: Layout
    measured_seconds: float | None


def read_layouts(path: str | Path, *, vocabulary: int = 50257, recompute: bool = True) -> tuple[Row, ...]:
    """The rows of a file. OptionError names the invalid cells by line and column."""
    try:
        text = Path(path).read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise OptionError(
            "The table of layouts cannot be read", found=f"{path}: {_reason(error)}", remedy="Give a CSV file, UTF-8."
        ) from error
    lines = csv.reader(io.StringIO(text, newline=""))
    try:
        return _read(lines, path, vocabulary, recompute)
    except csv.Error as error:
        raise OptionError(
            "The table of layouts is not valid CSV",
            found=f"line {lines.line_num} of {path}: {error}",
            remedy="Correct that line: quotes must come in pairs.",
        ) from error


def _read(lines: CsvReader, path: str | Path, vocabulary: int, recompute: bool) -> tuple[Row, ...]:
    header = [name.strip() for name in next(lines, [])]
    missing = [name for name in COLUMNS if name not in header]
    if missing:
        raise OptionError(
            "The table of layouts lacks columns",
            found=f"{path} has no {', '.join(map(repr, missing))}",
            remedy=f"Its first line must name {', '.join(COLUMNS)}, in any order; '{MEASURED}' is optional.",
        )
    repeated = sorted({name for name in header if header.count(name) > 1})
    if repeated:
        raise OptionError(
            "The table of layouts names a column twice",
            found=", ".join(map(repr, repeated)),
            remedy="Keep one of them.",
        )
    rows: list[Row] = []
    faults: list[OptionError] = []
    for values in lines:
        if not any(value.strip() for value in values):
            continue
        if len(rows) >= _MOST_ROWS:
            raise OptionError(
                "The table of layouts is too long",
                found=f"more than {_MOST_ROWS:,} rows in {path}",
                remedy="Give it in parts.",
            )
        row = _row(header, values, lines.line_num, vocabulary, recompute, faults)
        if row is not None:
            rows.append(row)
        elif len(faults) > _MOST_FAULTS:
            break
    if faults:
        raise _all_of(faults, path)
    if not rows:
        raise OptionError("The table of layouts is empty", found=str(path), remedy="Give it a row for each layout.")
    return tuple(rows)


def _row(
    header: Sequence[str],
    values: Sequence[str],
    line: int,
    vocabulary: int,
    recompute: bool,
    faults: list[OptionError],
) -> Row | None:
    """The row; None for an invalid one, whose faults are appended to `faults`."""
    if len(values) != len(header):
        faults.append(
            OptionError(
                f"Line {line}: every row has a cell for each column",
                found=f"{len(values)} cells, {len(header)} columns",
                remedy=f"Give the row {len(header)} cells.",
            )
        )
        return None
    cells = {name: value.strip() for name, value in zip(header, values, strict=True)}
    before = len(faults)
    numbers = {field: _whole(cells[name], name, line, faults) for name, field in COLUMNS.items()}
    measured = _milliseconds(cells[MEASURED], line, faults) if cells.get(MEASURED) else None
    if len(faults) > before:
        return None
    try:
        layout = Layout(**numbers, vocabulary=vocabulary, recompute=recompute)
    except OptionError as error:
        faults.append(OptionError(f"Line {line}: {error.what}", found=error.found, remedy=error.remedy))
        return None
    return Row(line=line, cells=cells, layout=layout, measured_seconds=measured)


def _all_of(faults: Sequence[OptionError], path: str | Path) -> OptionError:
    """One error for all faults, so that a table can be corrected at once."""
    if len(faults) == 1:
        return faults[0]
    messages = [f"{e.what}: {e.found} ({e.remedy.rstrip('.')})" for e in faults[:_MOST_FAULTS]]
    more = "; and more" if len(faults) > _MOST_FAULTS else ""
    return OptionError(
        f"Cells of {path} cannot be used",
        found="; ".join(messages) + more,
        remedy="Correct them: either all rows are predicted, or none.",
    )


def _whole(text: str, column: str, line: int, faults: list[OptionError]) -> int:
    value = _number(text)
    if value.is_integer() and 1 <= value < 1e15:
        return int(value)
    faults.append(
        OptionError(
            f"Line {line}: '{column}' must be a whole number of 1 or more",
            found=repr(text),
            remedy="Correct that cell.",
        )
    )
    return 1


def _milliseconds(text: str, line: int, faults: list[OptionError]) -> float:
    """A cell in milliseconds as seconds."""
    value = _number(text)
    if not 0 < value < math.inf:
        faults.append(
            OptionError(
                f"Line {line}: '{MEASURED}' must be a number above 0",
                found=repr(text),
                remedy="Correct that cell, or leave it empty where nothing was measured.",
            )
        )
    return value / 1e3


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan


def _reason(error: OSError | UnicodeDecodeError) -> str:
    return (error.strerror or str(error)) if isinstance(error, OSError) else "not UTF-8 text"
