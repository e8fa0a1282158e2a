"""Read files of measured runs. A row that cannot be priced is refused by its line, with the reason; it stops no other.

`Architecture`, batch, machine and layout of a `MeasuredRow` are complete and agree with each other. What a source
leaves out is derived where the other columns determine it (dp from the number of devices, the microbatch from the
numbers of samples, …), and otherwise taken as frameworks take it: as many heads of keys as of queries, vp 1, bf16,
nodes of 8.
"""

from __future__ import annotations

import csv
import io
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

from alpa_explore.baselines.layout import Layout
from alpa_explore.errors import OptionError
from alpa_explore.store.read import read_table
from alpa_explore.validation.runs.architecture import Architecture, decoder_of, kind_of
from alpa_explore.validation.runs.nearest import is_silent
from alpa_explore.validation.runs.refusals import (
    COLUMNS,
    VTRAIN,
    Cells,
    Kind,
    cells_faults,
    is_vtrain,
    known_columns,
    layout_faults,
    parse,
    stage_faults,
    unknown_columns,
)

if TYPE_CHECKING:
    from _csv import Reader as CsvReader

SIDES = ("fit", "held-out")
Configuration = tuple[object, ...]
"""Everything that decides on a run but its measured values."""
_MOST_ROWS = 1_000_000
_MOST_BYTES, _MOST_LINE = 256 * 2**20, 2**18
_GIB = 2**30
_FAULTY = "outlier population"
"""Marks, in the notes of nanotron's rows, the runs that a fault of that software slowed down."""
_LONG = 4096
"""Sequences of which a microbatch has one, where the source does not say."""
_EXPERT_TENSOR = re.compile(r"\bETP=(\d+)")
_INTERLEAVED_BY = 12
"""Parts of a stage of MLPerf's GPT-3 in v3.1 where the file of a run does not say: the default of its conf/custom.yaml
(virtual_pipeline_model_parallel_size, github.com/mlcommons/training_results_v3.1)."""
_LAYOUT = {
    **{"tp": "tensor", "pp": "pipeline", "dp": "data", "cp": "context", "ep": "expert", "etp": "expert_tensor"},
    **{"micro_batch": "microbatch", "grad_accum": "microbatches", "vp": "chunks"},
}
"""Column -> field of `Layout`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """What is known of every row of a file."""

    file: str
    """Name of the file without suffix, and without folder unless two have the same name: the source under which rows
    are scored."""
    line: int
    """Of the file; the header is line 1."""
    model: str = ""
    status: str = ""
    """ok, doubtful, failed, oom."""
    gpu_type: str = ""
    framework: str = ""
    measured_seconds: float | None = None
    """Of an iteration."""
    measured_bytes: float | None = None
    """Most memory of a device."""

    def refused(self, kind: Kind, reason: str) -> RefusedRow:
        """The same as a row that is not priced."""
        return RefusedRow(kind=kind, reason=reason, **self.known)

    @property
    def known(self) -> dict[str, Any]:
        """These fields by name."""
        return {field.name: getattr(self, field.name) for field in fields(Row)}


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredRow(Row):
    """One training run: model, batch, machine, layout, and what was measured."""

    architecture: Architecture
    sequence: int
    global_batch: int
    """Samples of an iteration."""
    layout: Layout
    """With ZeRO stage 0 and no recomputation: of these the source may say nothing."""
    devices: int
    devices_per_node: int
    """As the source says, 72 for a rack of GB200."""
    zero_stage: int | None
    """0 to 3; None where the source does not say."""
    recompute: str
    """'none', 'selective', 'full', or 'not stated'."""
    precision: str
    """As the source says: bf16, fp16, fp8, mxfp8, nvfp4, …"""
    schedule: str
    source: str
    note: str

    @property
    def faulty(self) -> bool:
        """Whether the time is that of a fault of the software, and is left out of fits and scores."""
        return _FAULTY in self.note

    @property
    def scored(self) -> bool:
        """Whether its time counts: it ran, was measured, its precision is known, and neither the source nor a known
        fault casts doubt on it."""
        known = self.measured_seconds is not None and not is_silent(self.precision)
        return self.status == "ok" and known and not self.faulty

    @property
    def tokens(self) -> int:
        """Tokens of an iteration."""
        return self.global_batch * self.sequence


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusedRow(Row):
    """A row that is not priced."""

    kind: Kind
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """The rows of one or more files, in their order."""

    measured: tuple[MeasuredRow, ...]
    refused: tuple[RefusedRow, ...]
    ignored: tuple[str, ...] = ()
    """What of the files was not taken, in words."""


def read_rows(paths: Iterable[str | Path]) -> Rows:
    """The rows of all files. OptionError for a file that cannot be read, is not CSV, has neither set of columns, or
    has no row."""
    measured: list[MeasuredRow] = []
    refused: list[RefusedRow] = []
    ignored: list[str] = []
    files = [Path(path) for path in paths]
    stems = Counter(path.stem for path in files)
    for path in files:
        rows, unknown = _read_file(path, path.stem if stems[path.stem] == 1 else str(path.with_suffix("")))
        if unknown:
            names = ", ".join(f"{name!r:.60}" for name in unknown[:6]) + ", …" * (len(unknown) > 6)
            ignored.append(f"{path}: columns that are not known here, and ignored: {names}")
        for row in rows:
            if isinstance(row, MeasuredRow):
                measured.append(row)
            else:
                refused.append(row)
    return Rows(measured=tuple(measured), refused=tuple(refused), ignored=tuple(ignored))


def _read_file(path: Path, file: str) -> tuple[list[MeasuredRow | RefusedRow], list[str]]:
    """The rows, of a source that is called `file`, and the columns that are not known."""
    try:
        text = read_table(path, _MOST_BYTES, _MOST_LINE, "utf-8-sig")
    except (OSError, ValueError) as error:
        reason = "not UTF-8 text" if isinstance(error, UnicodeDecodeError) else getattr(error, "strerror", "") or error
        raise OptionError(
            "The file of runs cannot be read", found=f"{path}: {reason}", remedy="Give a CSV file, UTF-8."
        ) from error
    lines = csv.reader(io.StringIO(text, newline=""))
    try:
        return _read_lines(lines, path, file)
    except csv.Error as error:
        raise OptionError(
            "The file of runs is not valid CSV",
            found=f"line {lines.line_num} of {path}: {error}",
            remedy="Correct that line: quotes must come in pairs.",
        ) from error


def _read_lines(lines: CsvReader, path: Path, file: str) -> tuple[list[MeasuredRow | RefusedRow], list[str]]:
    header = [name.strip() for name in next(lines, [])]
    vtrain = is_vtrain(header)
    if len(known_columns(header)) < 2:
        raise OptionError(
            "The file of runs lacks columns",
            found=f"{path} has {', '.join(map(repr, header[:6])) or 'no header'}",
            remedy=f"Its first line must name {', '.join(COLUMNS)}, in any order; or, as vTrain, {', '.join(VTRAIN)}.",
        )
    repeated = sorted({name for name in header if name and header.count(name) > 1})
    if repeated:
        raise OptionError(
            "The file of runs names a column twice", found=", ".join(map(repr, repeated)), remedy="Keep one of them."
        )
    rows: list[MeasuredRow | RefusedRow] = []
    start = lines.line_num + 1
    for values in lines:
        line, start = start, lines.line_num + 1
        if not any(value.strip() for value in values):
            continue
        if len(rows) >= _MOST_ROWS:
            raise OptionError(
                "The file of runs is too long", found=f"more than {_MOST_ROWS:,} rows in {path}", remedy="Divide it."
            )
        rows.append(_row(header, values, file, line, vtrain))
    if not rows:
        raise OptionError("The file of runs is empty", found=str(path), remedy="Give it a row for each run.")
    return rows, unknown_columns(header)


def _row(header: Sequence[str], values: Sequence[str], file: str, line: int, vtrain: bool) -> MeasuredRow | RefusedRow:
    if len(values) != len(header):
        return Row(file=file, line=line).refused(Kind.CELL, f"{len(values)} cells, but {len(header)} columns")
    cells = parse(header, values, vtrain=vtrain)
    memory = cells.real["memory_gib"]
    row = Row(
        file=file,
        line=line,
        **{name: cells.text[name] for name in ("model", "status", "gpu_type", "framework")},
        measured_seconds=cells.real["step_s"],
        measured_bytes=memory and memory * _GIB,
    )
    made = cells_faults(cells) or _measured(cells, row)
    return made if isinstance(made, MeasuredRow) else row.refused(*made)


def _measured(cells: Cells, row: Row) -> MeasuredRow | tuple[Kind, str]:
    """The row, or why it is none; the cells have all that `cells_faults` asks for."""
    numbers = _completed(cells)
    missing = [name for name in ("dp", "gpus", "micro_batch", "global_batch", "ffn") if not numbers.get(name)]
    if missing:
        return Kind.MISSING, f"{' and '.join(missing)} not given, and not determined by the other columns"
    text, software = cells.text, cells.text["framework"].lower()
    schedule = text["schedule"]
    if _lacks_parts(cells, numbers):
        numbers["vp"], schedule = _INTERLEAVED_BY, "interleaved-1f1b"
    faults = layout_faults(numbers) or stage_faults(
        numbers["layers"], numbers["pp"], numbers["vp"], idle_stages="nanotron" in software
    )
    if faults:
        return faults
    kind = kind_of(text["model"], numbers["hidden"], numbers["ffn"])
    decoder, ahead = None, 0
    if numbers.get("experts", 1) > 1:
        try:
            decoder, ahead = decoder_of(text["model"], numbers, text["note"])
        except OptionError as error:
            return Kind.CONTRADICTION, str(error)
    tied = cells.whole["tied"]
    sizes: dict[str, Any] = {name: numbers[name] for name in ("layers", "hidden", "heads", "kv_heads", "ffn")}
    architecture = Architecture(
        kind=kind,
        **sizes,
        vocabulary=numbers["vocab"],
        tied=kind == "gpt" if tied is None else bool(tied),
        decoder=decoder,
        predicted_ahead=ahead,
    )
    degrees: dict[str, Any] = {field: numbers[column] for column, field in _LAYOUT.items()}
    seconds = _seconds(cells, numbers, architecture)
    known = {"status": row.status or ("ok" if seconds is not None else ""), "measured_seconds": seconds}
    return MeasuredRow(
        **{**row.known, **known},
        architecture=architecture,
        sequence=numbers["seq"],
        global_batch=numbers["global_batch"],
        layout=replace(Layout(), **degrees),
        devices=numbers["gpus"],
        devices_per_node=numbers["gpus_per_node"],
        zero_stage=cells.whole["zero_stage"],
        recompute=text["recompute"] or "not stated",
        precision=text["precision"] or "bf16",
        schedule=schedule,
        source=text["source"],
        note=text["note"],
    )


def _completed(cells: Cells) -> dict[str, int]:
    """The numbers of a row with those that follow from others; those that nothing determines are left out."""
    n = {name: value for name, value in cells.whole.items() if value is not None}
    n.setdefault("vp", 1)
    n.setdefault("kv_heads", n["heads"])
    n.setdefault("gpus_per_node", 8)
    n.setdefault("cp", 1)
    n.setdefault("ep", 1)
    # The common columns have none for it; Megatron's option is --expert-tensor-parallel-size.
    n["etp"] = int(found[1]) if (found := _EXPERT_TENSOR.search(cells.text["note"])) else 1
    if "ffn" not in n and kind_of(cells.text["model"], n["hidden"], None) != "llama":
        n["ffn"] = 4 * n["hidden"]
    model_parallel = n["tp"] * n["pp"] * n["cp"]
    if "dp" not in n and "gpus" in n:
        n["dp"] = n["gpus"] // model_parallel
    if "gpus" not in n and "dp" in n:
        n["gpus"] = n["dp"] * model_parallel
    if not n.get("dp"):
        return n
    if n["seq"] >= _LONG and "micro_batch" not in n and "grad_accum" not in n:
        n["micro_batch"] = 1
    known = [name for name in ("global_batch", "micro_batch", "grad_accum") if name in n]
    if len(known) >= 2:
        if "global_batch" not in n:
            n["global_batch"] = n["dp"] * n["micro_batch"] * n["grad_accum"]
        n.setdefault("micro_batch", n["global_batch"] // (n["dp"] * n.get("grad_accum", 1)))
        n.setdefault("grad_accum", n["global_batch"] // (n["dp"] * max(n["micro_batch"], 1)))
    return n


def _lacks_parts(cells: Cells, n: dict[str, int]) -> bool:
    """Whether a table read 1F1B from a file that leaves the number of parts to MLPerf's default."""
    of = "training_results_v3.1" in cells.text["source"] and "/gpt3" in cells.text["source"]
    parts = n["pp"] * _INTERLEAVED_BY
    return of and n["pp"] > 1 and n["vp"] == 1 and n["layers"] % parts == 0 and n["grad_accum"] % n["pp"] == 0


def _seconds(cells: Cells, n: dict[str, int], architecture: Architecture) -> float | None:
    """Seconds of an iteration, from the first column that tells them."""
    real, tokens = cells.real, n["global_batch"] * n["seq"]
    if (step := real["step_s"]) is not None:
        return step
    if (rate := real["tokens_s_gpu"]) is not None:
        return tokens / (rate * n["gpus"])
    if (teraflops := real["tflops_gpu"]) is not None:
        return architecture.flops(tokens, n["seq"]) / (teraflops * 1e12 * n["gpus"])
    return None


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
    """'fit' or 'held-out', half of all configurations each. The digest of its columns decides, so that repetitions of a
    run, and the same run in another file, are on the same side whatever the order of rows."""
    return SIDES[sha256(repr(configuration(row)).encode()).digest()[0] % 2]
