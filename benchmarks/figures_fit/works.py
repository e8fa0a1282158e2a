"""Measured runs -> their work: what a fit prices with every trial of the figures.

Work is captured in processes, as for predictions, and kept in the cache of results as JSON. Its key has everything on
which it depends but the costs by which the fastest strategies were chosen: within the roles that a layout prescribes
these hardly differ with the figures of a device.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from alpa_explore.baselines.block_work import DecoderWork
from alpa_explore.baselines.layout import Layout, Parts
from alpa_explore.cluster import Cluster
from alpa_explore.execution.progress import ProgressCallback
from alpa_explore.store.cache import SolveCache
from alpa_explore.store.code_version import code_version
from alpa_explore.store.records import plain, record
from alpa_explore.uniform_layouts.works import READ_BY, READ_WITH, check_dtype
from alpa_explore.validation.predict import priced_rows
from alpa_explore.validation.run_price import CapturedModel, RunRequest, run_features, work_of
from alpa_explore.validation.runs.machines import Machine
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
) -> tuple[tuple[RunWork, ...], Sequence[RefusedRow]]:
    """The work of rows in their order, and the rows that cannot be priced. `cache`: a folder; by default the user's."""
    priced, refused = priced_rows(tuple(rows), WorkReader(cache), processes=processes, progress=progress)
    runs = (RunWork(row=row, machine=a.on, work=work, layout=a.layout, parts=a.parts) for row, a, work in priced)
    return tuple(runs), refused


def has_preset_rates(machine: Machine) -> bool:
    """Whether a machine has the rates of its preset and profile. Runs on a variant (a power limit, slower memory or
    links, no overlap of experts) tell nothing of these figures: a fit sets them, and would undo the variant."""
    at = machine.cluster
    known = Cluster.parse(f"1x1:{at.device.name}", software=at.software.name)
    device = replace(at.device, memory_bytes=known.device.memory_bytes)
    return (device, at.inside_node) == (known.device, known.inside_node)


@dataclass(frozen=True, slots=True)
class WorkReader:
    """Answers a run with its work, of which a graph is captured only if it is not in the cache; small, so that
    processes get a copy."""

    folder: Path | None = None

    def __call__(self, model: CapturedModel, run: RunRequest) -> DecoderWork:
        """The work of one run."""
        check_dtype(run.cluster.device, model.key.dtype)
        names = run.cluster.device.name, run.cluster.software.name
        key = repr(("work of a run", model.key, *names, run_features(run)))
        if (key,) not in model.work:
            cache = SolveCache(self.folder, code_version=code_version(READ_BY, READ_WITH))
            if (stored := cache.get(key)) is None:
                cache.put(key, stored := plain(work_of(model, run)))
            model.work[key,] = record(DecoderWork, stored, checked=False)
        return model.work[key,]
