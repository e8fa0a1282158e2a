"""A table of layouts: CSV with the columns of vTrain's measurements, each row a `Layout` and what was measured."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from alpa_explore.errors import OptionError
from alpa_explore.layouts.layout import Layout

if TYPE_CHECKING:
    from _csv import Reader as CsvReader

COLUMNS = {
    "# GPUs": "devices", "global batch": "global_batch", "micro batch": "micro_batch", "hidden size": "hidden",
    "attention heads": "heads", "# layers": "layers", "sequence length": "sequence", "tensor parallelism": "tensor",
    "data parallelism": "data", "pipeline parallelism": "pipeline",
}  # fmt: skip
"""Column -> field of `Layout`; other columns are handed on untouched."""
MEASURED = "iteration time (ms)"
_MOST_ROWS = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One row as it was read."""

    line: int
    cells: Mapping[str, str]
    layout: Layout
    measured_seconds: float | None


def read_layouts(path: str | Path, *, vocabulary: int = 50257, recompute: bool = True) -> tuple[Row, ...]:
    """The rows of a file. OptionError names the line of a row that cannot be used."""
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
            "The table of layouts is no CSV", found=f"line {lines.line_num} of {path}: {error}",
            remedy="Correct that line: quotes must come in pairs.",
        ) from error  # fmt: skip


def _read(lines: CsvReader, path: str | Path, vocabulary: int, recompute: bool) -> tuple[Row, ...]:
    header = [name.strip() for name in next(lines, [])]
    missing = [name for name in COLUMNS if name not in header]
    if missing:
        raise OptionError(
            "The table of layouts lacks columns", found=f"{path} has no {', '.join(map(repr, missing))}",
            remedy=f"Its first line must name {', '.join(COLUMNS)}, in any order; '{MEASURED}' is optional.",
        )  # fmt: skip
    repeated = sorted({name for name in header if header.count(name) > 1})
    if repeated:
        raise OptionError(
            "The table of layouts names a column twice",
            found=", ".join(map(repr, repeated)),
            remedy="Keep one of them.",
        )
    rows: list[Row] = []
    for values in lines:
        if not any(value.strip() for value in values):
            continue
        if len(values) != len(header) or len(rows) >= _MOST_ROWS:
            raise OptionError(
                "A row of the table cannot be used",
                found=f"line {lines.line_num} of {path} has {len(values)} cells, the header {len(header)}",
                remedy=f"Give every row {len(header)} cells, and a table no more than {_MOST_ROWS:,} rows.",
            )
        cells = {name: value.strip() for name, value in zip(header, values, strict=True)}
        rows.append(_row(cells, lines.line_num, vocabulary, recompute))
    if not rows:
        raise OptionError("The table of layouts is empty", found=str(path), remedy="Give it a row for each layout.")
    return tuple(rows)


def _row(cells: Mapping[str, str], line: int, vocabulary: int, recompute: bool) -> Row:
    numbers = {field: _whole(cells[name], name, line) for name, field in COLUMNS.items()}
    try:
        layout = Layout(**numbers, vocabulary=vocabulary, recompute=recompute)
    except OptionError as error:
        raise OptionError(f"Line {line}: {error.what}", found=error.found, remedy=error.remedy) from error
    measured = cells.get(MEASURED, "")
    return Row(
        line=line, cells=cells, layout=layout, measured_seconds=_milliseconds(measured, line) if measured else None
    )


def _whole(text: str, column: str, line: int) -> int:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not (value.is_integer() and 1 <= value < 1e15):
        raise OptionError(
            f"Line {line}: '{column}' must be a whole number of 1 or more",
            found=repr(text),
            remedy="Correct that cell.",
        )
    return int(value)


def _milliseconds(text: str, line: int) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf:
        raise OptionError(
            f"Line {line}: '{MEASURED}' must be a number above 0", found=repr(text),
            remedy="Correct that cell, or leave it empty where nothing was measured.",
        )  # fmt: skip
    return value / 1e3


def _reason(error: OSError | UnicodeDecodeError) -> str:
    return (error.strerror or str(error)) if isinstance(error, OSError) else "not UTF-8 text"
