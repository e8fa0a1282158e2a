"""Measured runs -> their work: what a fit prices with every trial of the figures.

Work is captured in processes, as for predictions, and kept in the cache of results as JSON. Its key has everything on
which it depends but the costs by which the fastest strategies were chosen: within the roles that a layout prescribes
these hardly differ with the figures of a device.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from alpa_explore.baselines.block_work import DecoderWork
from alpa_explore.baselines.layout import Layout, Parts
from alpa_explore.errors import AlpaExploreError
from alpa_explore.execution.progress import ProgressCallback
from alpa_explore.store.cache import SolveCache
from alpa_explore.store.code_version import code_version
from alpa_explore.uniform_layouts.model_work import ModelKey, check_dtype, stored_work, work_from
from alpa_explore.uniform_layouts.works import READ_BY, READ_WITH
from alpa_explore.validation.predict import priced_runs, request_of
from alpa_explore.validation.run_price import CapturedModel, RunRequest, run_features, work_of
from alpa_explore.validation.runs.machines import Machine
from alpa_explore.validation.runs.refusals import Kind
from alpa_explore.validation.runs.rows import MeasuredRow, RefusedRow


@dataclass(frozen=True, slots=True, kw_only=True)
class RunWork:
    """A measured run, and all from which its predicted seconds follow."""

    row: MeasuredRow
    machine: Machine
    work: DecoderWork
    layout: Layout
    parts: Parts


def works_of(
    rows: Iterable[MeasuredRow],
    *,
    processes: int = 2,
    cache: Path | None = None,
    progress: ProgressCallback | None = None,
) -> tuple[tuple[RunWork, ...], tuple[RefusedRow, ...]]:
    """The work of rows in their order, and the rows that cannot be priced. `cache`: a folder; by default the user's."""
    measured = tuple(rows)
    asked: dict[int, tuple[Machine, RunRequest]] = {}
    groups: dict[ModelKey, list[RunRequest]] = {}
    refused: list[RefusedRow] = []
    for number, row in enumerate(measured):
        try:
            machine, key, request = request_of(number, row)
        except AlpaExploreError as error:
            refused.append(row.refused(Kind.MACHINE, str(error)))
        else:
            asked[number] = machine, request
            groups.setdefault(key, []).append(request)
    made: dict[int, RunWork] = {}
    for number, answer in priced_runs(groups, WorkReader(cache), processes, progress):
        row = measured[number]
        if isinstance(answer, AlpaExploreError):
            refused.append(row.refused(Kind.PRICING, str(answer)))
        else:
            machine, run = asked[number]
            made[number] = RunWork(row=row, machine=machine, work=answer, layout=run.layout, parts=run.parts)
    return tuple(made[number] for number in sorted(made)), tuple(refused)


@dataclass(slots=True)
class _Model:
    """The work of a model, of which a graph is captured only if some work is not in the cache."""

    key: ModelKey
    cache: SolveCache
    captured: CapturedModel
    known: dict[str, DecoderWork]


@dataclass(frozen=True, slots=True)
class WorkReader:
    """Answers a run with its work; small, so that processes get a copy."""

    folder: Path | None = None

    def model(self, key: ModelKey) -> _Model:
        """What all runs of a key share."""
        store = SolveCache(self.folder, code_version=code_version(READ_BY, READ_WITH))
        return _Model(key, store, CapturedModel(key), {})

    def price(self, model: _Model, run: RunRequest) -> DecoderWork:
        """The work of one run."""
        check_dtype(run.cluster.device, model.key.dtype)
        names = run.cluster.device.name, run.cluster.software.name
        key = repr(("work of a run", model.key, *names, run_features(run)))
        if key not in model.known:
            stored = model.cache.get(key)
            if stored is None:
                work = work_of(model.captured, run)
                model.cache.put(key, stored_work(work))
            else:
                work = work_from(stored)
            model.known[key] = work
        return model.known[key]
