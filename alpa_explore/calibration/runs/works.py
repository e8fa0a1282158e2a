"""Measured runs -> their work: what a fit prices with every trial of the figures.

Work is captured in processes, as for predictions, and kept in the cache of results as JSON. Its key has everything on
which it depends but the costs by which the fastest strategies were chosen: within the roles that a layout prescribes
these hardly differ with the figures of a device.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from enum import Enum
from pathlib import Path
from typing import Any

from alpa_explore.baselines.block_work import DecoderWork
from alpa_explore.baselines.layout import ManualLayout
from alpa_explore.cost.kernels import Kernel, KernelKind
from alpa_explore.cost.work import CollectiveCall, PartWork, PassWork
from alpa_explore.errors import AlpaExploreError
from alpa_explore.execution.progress import ProgressCallback
from alpa_explore.sharding.reshard import StepKind
from alpa_explore.store.cache import SolveCache
from alpa_explore.store.code_version import code_version
from alpa_explore.validation.predict import priced_runs, refused_row, request_of
from alpa_explore.validation.pricing import CapturedModel, LayoutPricer, division_of, layout_of, work_of
from alpa_explore.validation.requests import ModelKey, RunRequest
from alpa_explore.validation.runs.machines import Machine
from alpa_explore.validation.runs.refusals import Kind
from alpa_explore.validation.runs.rows import MeasuredRow, RefusedRow

_CODE = ("models", "graph", "tracing", "sharding", "intra_op", "cost", "baselines", "validation/pricing.py")
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
    """The work of a captured graph, which is captured only if some of it is not in the cache."""

    key: ModelKey
    cache: SolveCache
    captured: CapturedModel | None
    known: dict[str, DecoderWork]


@dataclass(frozen=True, slots=True)
class WorkReader:
    """Answers a run with its work and layout; small, so that processes get a copy."""

    folder: Path | None = None

    def model(self, key: ModelKey) -> _Model:
        """What all runs of a key share."""
        return _Model(key, SolveCache(self.folder, code_version=code_version(_CODE, _LIBRARIES)), None, {})

    def price(self, model: _Model, run: RunRequest) -> tuple[DecoderWork, ManualLayout]:
        """Work and layout of one run; where the source does not say what is recomputed, the first possibility."""
        layout = layout_of(model.key.dtype, run, run.recompute[0])
        cluster, software = run.cluster, run.cluster.software
        key = repr(
            (
                *(
                    "work of a run",
                    model.key,
                    division_of(model.key, run),
                    cluster.device.name,
                    cluster.devices_per_node,
                ),
                *(software.name, software.fuses_pointwise, software.sequence_parallel, software.gradient_bytes),
            )
        )
        if key not in model.known:
            stored = model.cache.get(key)
            if stored is None:
                if model.captured is None:
                    model.captured = LayoutPricer().model(model.key)
                work = work_of(model.captured, run)
                model.cache.put(key, asdict(work, dict_factory=_plain))
            else:
                work = _work(stored)
            model.known[key] = work
        return model.known[key], layout


def _plain(fields: list[tuple[str, Any]]) -> dict[str, Any]:
    """Fields of a dataclass as JSON has them."""
    return {name: value.value if isinstance(value, Enum) else value for name, value in fields}


def _work(stored: Mapping[str, Any]) -> DecoderWork:
    """The inverse of `asdict`."""
    return DecoderWork(**{**stored, **{part: _part(stored[part]) for part in ("embedding", "block", "head")}})


def _part(stored: Mapping[str, Any]) -> PartWork:
    return PartWork(**{**stored, "forward": _pass(stored["forward"]), "backward": _pass(stored["backward"])})


def _pass(stored: Mapping[str, Any]) -> PassWork:
    kernels = tuple(
        Kernel(**{**k, "kind": KernelKind(k["kind"]), "sizes": tuple(k["sizes"])}) for k in stored["kernels"]
    )
    calls = tuple(CollectiveCall(**{**c, "kind": StepKind(c["kind"])}) for c in stored["collectives"])
    return PassWork(**{**stored, "kernels": kernels, "collectives": calls})
