"""Predictions of measured runs as the record of `alpa_explore.accuracy`: error bands and figures are made from it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from alpa_explore.accuracy.measured_run import MeasuredRun
from alpa_explore.accuracy.record import Record, Source
from alpa_explore.validation.predict import Prediction, Predictions
from alpa_explore.validation.runs.nearest import is_silent
from alpa_explore.validation.runs.rows import RefusedRow
from alpa_explore.validation.split import side

_FAULTY = "a fault of the software made its time"
_SILENT = "its source does not say in which precision it ran"


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
        run = measured_run(row)
        return replace(run, held_out=not fitted or side(row.row) == "held-out")
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


def measured_run(prediction: Prediction) -> MeasuredRun:
    """A prediction as a run of the record."""
    row = prediction.row
    return MeasuredRun(
        source=row.file,
        line=row.line,
        device=prediction.device,
        software=prediction.software,
        gpus=row.devices,
        gpus_per_node=row.devices_per_node,
        model=row.model,
        sizes=row.architecture.sizes,
        sequence=row.sequence,
        global_batch=row.global_batch,
        micro_batch=row.micro_batch,
        microbatches=row.microbatches,
        tensor=row.tensor,
        pipeline=row.pipeline,
        virtual=row.chunks,
        data=row.data,
        context=row.context,
        expert=row.expert,
        zero_stage=row.zero_stage,
        recompute=row.recompute,
        precision=row.precision,
        experts=row.architecture.experts > 1,
        token_flops=row.architecture.flops(1, row.sequence),
        overhead=prediction.overhead,
        predicted_seconds=prediction.seconds,
        measured_seconds=row.measured_seconds,
        # Where the source leaves open what is recomputed, the sizes of both ends say nothing of the model's error.
        predicted_bytes=None if prediction.ends else prediction.bytes,
        measured_bytes=row.measured_bytes,
        mfu=prediction.measured_mfu,
        fits=prediction.fits,
        status=row.status,
        left_out=_FAULTY if row.faulty else _SILENT if is_silent(row.precision) else "",
        held_out=side(row) == "held-out",
    )
