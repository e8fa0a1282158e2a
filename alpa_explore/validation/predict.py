"""Predict the seconds and bytes of measured runs, in two processes.

Runs are grouped by what decides on the captured graph (`ModelKey`); a group is the task of one process. A run that
cannot be priced is refused, with the reason, and stops no other.
"""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, replace

from alpa_explore.accuracy.likeness import overhead_share
from alpa_explore.errors import AlpaExploreError, ExecutorError
from alpa_explore.execution.progress import ProgressCallback, TaskCount
from alpa_explore.uniform_layouts.model_work import ModelKey
from alpa_explore.uniform_layouts.stages import idle_ranks, pipeline_parts
from alpa_explore.validation.run_price import BLOCKS_CAPTURED, Answer, Pricer, RunPrice, RunRequest
from alpa_explore.validation.runs.architecture import padded_vocabulary
from alpa_explore.validation.runs.machines import Machine, driver_memory, machine, precision_of
from alpa_explore.validation.runs.nearest import recomputed
from alpa_explore.validation.runs.refusals import Kind
from alpa_explore.validation.runs.rows import MeasuredRow, RefusedRow, Rows

_ALONE = 2
"""Groups up to which no processes are started: that costs longer than a capture."""
_SHARED_OPTIMIZER = ("megatron", "megatron-2025", "megatron-hybridep", "mlperf", "nanotron")
"""Software whose default optimizer is ZeRO-1, for rows that do not say."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction(RunPrice):
    """A measured run and what the cost model says of it."""

    row: MeasuredRow
    device: str
    """Name of the device preset."""
    software: str
    """Name of the software profile."""
    peak_flops: float
    """Of all devices together, in the dtype of tensors: the 100 % of the MFU."""
    overhead: float | None = None
    """Share of the time that the software adds to kernels and links (`accuracy.likeness.overhead_share`)."""
    notes: tuple[str, ...] = ()
    """What of the row is priced by the nearest that is known."""

    @property
    def error(self) -> float | None:
        """predicted / measured − 1; None where the time is not scored."""
        measured = self.row.measured_seconds
        return self.seconds / measured - 1 if self.row.scored and measured else None

    @property
    def measured_mfu(self) -> float | None:
        """Share of the peak that the model's FLOPs make of the measured time."""
        row = self.row
        if row.measured_seconds is None:
            return None
        return row.architecture.flops(row.tokens, row.sequence) / (row.measured_seconds * self.peak_flops)


@dataclass(frozen=True, slots=True, kw_only=True)
class Predictions:
    """The predictions of a set of rows, and those that are refused: by the file or in pricing."""

    predicted: tuple[Prediction, ...]
    refused: tuple[RefusedRow, ...]


def predict_rows(
    rows: Rows,
    *,
    pricer: Pricer[RunPrice],
    device: str | None = None,
    software: str | None = None,
    processes: int = 2,
    progress: ProgressCallback | None = None,
) -> Predictions:
    """Predictions of all rows, in their order. `device` and `software` override what the rows say.

    With `processes` below 2, or few groups, all is done in this process.
    """
    made: dict[int, tuple[Machine, ModelKey, RunRequest]] = {}
    refused: list[RefusedRow] = list(rows.refused)
    for number, row in enumerate(rows.measured):
        try:
            made[number] = request_of(number, row, device, software)
        except AlpaExploreError as error:
            refused.append(row.refused(Kind.MACHINE, str(error)))
    groups: dict[ModelKey, list[RunRequest]] = {}
    for _, key, request in made.values():
        groups.setdefault(key, []).append(request)
    predicted: dict[int, Prediction] = {}
    for number, answer in priced_runs(groups, pricer, processes, progress):
        row = rows.measured[number]
        if isinstance(answer, AlpaExploreError):
            refused.append(row.refused(Kind.PRICING, str(answer)))
        else:
            predicted[number] = _prediction(row, made[number][0], answer)
    return Predictions(
        predicted=tuple(predicted[number] for number in sorted(predicted)),
        refused=tuple(sorted(refused, key=lambda row: (row.file, row.line))),
    )


def request_of(
    number: int, row: MeasuredRow, device: str | None = None, software: str | None = None
) -> tuple[Machine, ModelKey, RunRequest]:
    """The machine and the request of a row. AlpaExploreError for names that are not known."""
    on = machine(
        row.gpu_type,
        row.framework,
        row.devices,
        row.devices_per_node,
        source=row.source,
        note=row.note,
        device=device,
        software=software,
    )
    precision, model, tensor = precision_of(row.precision), row.architecture, row.layout.tensor
    words = padded_vocabulary(model.vocabulary, tensor, on.software)
    replicated = replace(model, kv_heads=max(model.kv_heads, tensor))
    zero = row.zero_stage
    key = ModelKey(
        config=replicated.config(
            row.sequence, layers=BLOCKS_CAPTURED * model.period, vocabulary=words, software=on.software
        ),
        micro_batch=row.layout.microbatch,
        dtype=precision.tensors,
        period=model.period,
        routed=model.experts > 1,
        predicted_ahead=model.predicted_ahead,
    )
    recompute = recomputed(row.recompute)[0]
    layout = replace(
        row.layout, zero_stage=int(on.software in _SHARED_OPTIMIZER) if zero is None else zero, recompute=recompute[0]
    )
    kinds = [number % model.period for number in range(model.layers)]
    request = RunRequest(
        number=number,
        cluster=on.cluster.in_precision(precision.recipe),
        layout=layout,
        parts=pipeline_parts(model, kinds, layout, on.software),
        recompute=recompute,
        counts_reserve=driver_memory(row.source),
    )
    return on, key, request


def _prediction(row: MeasuredRow, on: Machine, price: RunPrice) -> Prediction:
    precision, stages = precision_of(row.precision), row.layout.pipeline
    idle = idle_ranks(row.architecture, stages, on.software)
    reason = price.reason
    if idle:
        reason = f"{idle} of {stages} stages get no part of the model, and {on.software} stops"
    return Prediction(
        row=row,
        device=on.device,
        software=on.software,
        seconds=price.seconds,
        bytes=price.bytes,
        fits=price.fits and not idle,
        reason=reason,
        peak_flops=row.devices * on.cluster.device.peak(precision.tensors),
        recompute=price.recompute,
        ends=price.ends,
        overhead=overhead_share(on.cluster, row.layout.microbatches, price.seconds),
        notes=tuple(note for note in (*on.notes, precision.note, recomputed(row.recompute)[1]) if note),
    )


def priced_runs(
    groups: dict[ModelKey, list[RunRequest]], pricer: Pricer[Answer], processes: int, progress: ProgressCallback | None
) -> Iterator[tuple[int, Answer | AlpaExploreError]]:
    """(number, answer of the pricer or the reason why there is none) of all runs, group by group."""
    counter = TaskCount("runs", sum(map(len, groups.values())), progress)
    # The largest first, so that the processes end together.
    tasks = sorted(groups.items(), key=lambda group: -len(group[1]))
    for answers in _answers(tasks, pricer, processes):
        yield from answers
        counter.add(len(answers))


def _answers(
    tasks: Sequence[tuple[ModelKey, list[RunRequest]]], pricer: Pricer[Answer], processes: int
) -> Iterator[list[tuple[int, Answer | AlpaExploreError]]]:
    if processes < 2 or len(tasks) <= _ALONE:
        for key, runs in tasks:
            yield price_group(pricer, key, runs)
        return
    # Fresh processes: torch's threads do not survive a fork.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(processes, mp_context=context, initializer=_one_thread) as pool:
        waiting = [pool.submit(price_group, pricer, key, runs) for key, runs in tasks]
        try:
            for future in as_completed(waiting):
                yield future.result()
        except BrokenProcessPool as error:
            raise ExecutorError(
                "A process that prices runs ended", found=str(error), remedy="Free memory, or give fewer rows at once."
            ) from error
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def _one_thread() -> None:
    """Each process has one core to itself; fake tensors leave nothing to do for more."""
    os.environ["OMP_NUM_THREADS"] = "1"


def price_group(
    pricer: Pricer[Answer], key: ModelKey, runs: Sequence[RunRequest]
) -> list[tuple[int, Answer | AlpaExploreError]]:
    """(number, price or the reason why there is none) of runs that share a captured graph."""
    try:
        model = pricer.model(key)
    except AlpaExploreError as error:
        return [(run.number, error) for run in runs]
    answers: list[tuple[int, Answer | AlpaExploreError]] = []
    for run in runs:
        try:
            answers.append((run.number, pricer.price(model, run)))
        except AlpaExploreError as error:
            answers.append((run.number, error))
    return answers
