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
from alpa_explore.accuracy.measured_run import MeasuredRun
from alpa_explore.errors import AlpaExploreError, ExecutorError
from alpa_explore.execution.progress import ProgressCallback, TaskCount
from alpa_explore.plans.report.tables import row_of
from alpa_explore.uniform_layouts.stages import idle_ranks, pipeline_parts
from alpa_explore.uniform_layouts.works import ModelKey
from alpa_explore.validation.run_price import BLOCKS_CAPTURED, Answer, CapturedModel, Pricer, RunPrice, RunRequest
from alpa_explore.validation.runs.architecture import padded_vocabulary
from alpa_explore.validation.runs.machines import Machine, driver_memory, machine, precision_of
from alpa_explore.validation.runs.nearest import is_silent, recomputed
from alpa_explore.validation.runs.refusals import Kind
from alpa_explore.validation.runs.rows import MeasuredRow, RefusedRow, Rows, side

_ALONE = 2
"""Groups up to which no processes are started: that costs longer than a capture."""
_FAULTY = "a fault of the software made its time"
_SILENT = "its source does not say in which precision it ran"


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """A measured run and what the cost model says of it."""

    row: MeasuredRow
    run: MeasuredRun
    """The same as a run of the record, with its prediction."""
    price: RunPrice
    notes: tuple[str, ...] = ()
    """What of the row is priced by the nearest that is known."""


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
    """Predictions of all rows, in their order; the arguments are those of `priced_rows`."""
    priced, refused = priced_rows(
        rows.measured, pricer, device=device, software=software, processes=processes, progress=progress
    )
    return Predictions(
        predicted=tuple(prediction(row, run.on, price) for row, run, price in priced),
        refused=tuple(sorted((*rows.refused, *refused), key=lambda row: (row.file, row.line))),
    )


def priced_rows(
    rows: Sequence[MeasuredRow],
    pricer: Pricer[Answer],
    *,
    device: str | None = None,
    software: str | None = None,
    processes: int = 2,
    progress: ProgressCallback | None = None,
) -> tuple[list[tuple[MeasuredRow, RunRequest, Answer]], list[RefusedRow]]:
    """(rows in their order, with what the pricer says of each; those that cannot be priced). `device` and `software`
    override what the rows say.

    With `processes` below 2, or few groups, all is done in this process.
    """
    groups: dict[ModelKey, dict[int, RunRequest]] = {}
    refused: list[RefusedRow] = []
    for number, row in enumerate(rows):
        try:
            request = request_of(row, device, software)
        except AlpaExploreError as error:
            refused.append(row.refused(Kind.MACHINE, str(error)))
        else:
            groups.setdefault(request.key, {})[number] = request
    priced: dict[int, tuple[MeasuredRow, RunRequest, Answer]] = {}
    counter = TaskCount("runs", sum(map(len, groups.values())), progress)
    # The largest first, so that the processes end together.
    tasks = sorted(groups.items(), key=lambda group: -len(group[1]))
    for answers in _answers(tasks, pricer, processes):
        for number, request, answer in answers:
            if isinstance(answer, AlpaExploreError):
                refused.append(rows[number].refused(Kind.PRICING, str(answer)))
            else:
                priced[number] = rows[number], request, answer
        counter.add(len(answers))
    return [priced[number] for number in sorted(priced)], refused


def request_of(row: MeasuredRow, device: str | None = None, software: str | None = None) -> RunRequest:
    """What is priced for a row. AlpaExploreError for names that are not known."""
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
    profile = on.cluster.software
    words = padded_vocabulary(model.vocabulary, tensor, profile.name)
    replicated = replace(model, kv_heads=max(model.kv_heads, tensor))
    key = ModelKey(
        config=replicated.config(
            row.sequence, layers=BLOCKS_CAPTURED * model.period, vocabulary=words, software=profile.name
        ),
        micro_batch=row.layout.microbatch,
        dtype=precision.tensors,
        period=model.period,
        routed=model.experts > 1,
        predicted_ahead=model.predicted_ahead,
    )
    recompute = recomputed(row.recompute)[0]
    zero = int(profile.shards_optimizer) if row.zero_stage is None else row.zero_stage
    layout = replace(row.layout, zero_stage=zero, recompute=recompute[0])
    kinds = [number % model.period for number in range(model.layers)]
    return RunRequest(
        key=key,
        on=on,
        cluster=on.cluster.in_precision(precision.recipe),
        layout=layout,
        parts=pipeline_parts(model, kinds, layout, profile.name),
        recompute=recompute,
        counts_reserve=driver_memory(row.source),
    )


def prediction(row: MeasuredRow, on: Machine, price: RunPrice) -> Prediction:
    """A row and its price, as a run of the record, too."""
    precision, model, layout = precision_of(row.precision), row.architecture, row.layout
    software = on.cluster.software.name
    if idle := idle_ranks(model, layout.pipeline, software):
        reason = f"{idle} of {layout.pipeline} stages get no part of the model, and {software} stops"
        price = replace(price, fits=False, reason=reason)
    peak = row.devices * on.cluster.device.peak(precision.tensors)
    measured = row.measured_seconds
    run = MeasuredRun(
        **row_of(
            row,
            "source=file line model gpus=devices gpus_per_node=devices_per_node sequence global_batch zero_stage "
            "recompute precision measured_seconds measured_bytes status",
        ),
        **row_of(layout, "micro_batch=microbatch microbatches virtual=chunks tensor pipeline data context expert"),
        **row_of(on.cluster, "device=device.name software=software.name"),
        sizes=model.sizes,
        experts=model.experts > 1,
        token_flops=model.flops(1, row.sequence),
        overhead=overhead_share(on.cluster, layout.microbatches, price.seconds),
        predicted_seconds=price.seconds,
        # Where the source leaves open what is recomputed, the sizes of both ends say nothing of the model's error.
        predicted_bytes=None if price.ends else price.bytes,
        mfu=None if measured is None else model.flops(row.tokens, row.sequence) / (measured * peak),
        fits=price.fits,
        left_out=_FAULTY if row.faulty else _SILENT if is_silent(row.precision) else "",
        held_out=side(row) == "held-out",
    )
    said = (*on.notes, precision.note, recomputed(row.recompute)[1])
    return Prediction(row=row, run=run, price=price, notes=tuple(filter(None, said)))


_Answers = list[tuple[int, RunRequest, Answer | AlpaExploreError]]
"""(number, request, answer of the pricer or the reason why there is none) of the runs of a group."""


def _answers(
    tasks: Sequence[tuple[ModelKey, dict[int, RunRequest]]], pricer: Pricer[Answer], processes: int
) -> Iterator[_Answers[Answer]]:
    if processes < 2 or len(tasks) <= _ALONE:
        for key, runs in tasks:
            yield _price_group(pricer, key, runs)
        return
    # Fresh processes: torch's threads do not survive a fork.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(processes, mp_context=context, initializer=_one_thread) as pool:
        waiting = [pool.submit(_price_group, pricer, key, runs) for key, runs in tasks]
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


def _price_group(pricer: Pricer[Answer], key: ModelKey, runs: dict[int, RunRequest]) -> _Answers[Answer]:
    """The answers of runs that share a captured graph."""
    model, answers = CapturedModel(key), list[tuple[int, RunRequest, Answer | AlpaExploreError]]()
    for number, run in runs.items():
        try:
            answers.append((number, run, pricer(model, run)))
        except AlpaExploreError as error:
            answers.append((number, run, error))
    return answers
