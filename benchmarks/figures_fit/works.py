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
from alpa_explore.baselines.layout import ManualLayout
from alpa_explore.errors import AlpaExploreError
from alpa_explore.execution.progress import ProgressCallback
from alpa_explore.store.cache import SolveCache
from alpa_explore.store.code_version import code_version
from alpa_explore.uniform_layouts.pricing.layout_pricer import CapturedModel, layout_of, run_features, work_of
from alpa_explore.uniform_layouts.pricing.requests import ModelKey, RunRequest
from alpa_explore.uniform_layouts.pricing.stored_work import stored_work, work_from
from alpa_explore.validation.predict import priced_runs, refused_row, request_of
from alpa_explore.validation.runs.machines import Machine
from alpa_explore.validation.runs.refusals import Kind
from alpa_explore.validation.runs.rows import MeasuredRow, RefusedRow

_CODE = ("models", "graph", "tracing", "sharding", "intra_op", "cost", "baselines", "uniform_layouts/pricing")
_LIBRARIES = ("torch", "numpy")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunWork:
    """A measured run, and all from which its predicted seconds follow."""

    row: MeasuredRow
    machine: Machine
    work: DecoderWork
    layout: ManualLayout


def works_of(
    rows: Iterable[MeasuredRow],
    *,
    processes: int = 2,
    cache: Path | None = None,
    progress: ProgressCallback | None = None,
) -> tuple[tuple[RunWork, ...], tuple[RefusedRow, ...]]:
    """The work of rows in their order, and the rows that cannot be priced. `cache`: a folder; by default the user's."""
    measured = tuple(rows)
    machines: dict[int, Machine] = {}
    groups: dict[ModelKey, list[RunRequest]] = {}
    refused: list[RefusedRow] = []
    for number, row in enumerate(measured):
        try:
            machines[number], key, request = request_of(number, row)
        except AlpaExploreError as error:
            refused.append(refused_row(row, Kind.MACHINE, error))
        else:
            groups.setdefault(key, []).append(request)
    made: dict[int, RunWork] = {}
    for number, answer in priced_runs(groups, WorkReader(cache), processes, progress):
        row = measured[number]
        if isinstance(answer, AlpaExploreError):
            refused.append(refused_row(row, Kind.PRICING, answer))
        else:
            work, layout = answer
            made[number] = RunWork(row=row, machine=machines[number], work=work, layout=layout)
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
    """Answers a run with its work and layout; small, so that processes get a copy."""

    folder: Path | None = None

    def model(self, key: ModelKey) -> _Model:
        """What all runs of a key share."""
        store = SolveCache(self.folder, code_version=code_version(_CODE, _LIBRARIES))
        return _Model(key, store, CapturedModel(key), {})

    def price(self, model: _Model, run: RunRequest) -> tuple[DecoderWork, ManualLayout]:
        """Work and layout of one run; where the source does not say what is recomputed, the first possibility."""
        layout = layout_of(model.key.dtype, run, run.recompute[0])
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
        return model.known[key], layout
