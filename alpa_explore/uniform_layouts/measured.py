"""Measured runs of the same model on the same device beside its layouts, from the stored record (`accuracy`).

A run counts where its sizes, device, number of devices, sequence and kind of precision are those of the layouts. Its
time is that of a sample times the global batch: runs with another batch, up to four times larger or smaller, are shown
for this one, and say so. Where a source does not say what is recomputed, nothing is taken to be; where it does
not say how experts are divided, the fastest division that fits is taken.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from alpa_explore.accuracy.measured_run import MeasuredRun
from alpa_explore.accuracy.record import Record, stored_record
from alpa_explore.baselines.layout import RECOMPUTATION, Axis
from alpa_explore.cluster.precisions import LOW_PRECISIONS, recipe_of
from alpa_explore.uniform_layouts.ranking import Layouts, PricedLayout

_MOST_SCALED = 4.0
"""Ratio of global batches up to which a time is scaled in proportion: beyond it, what an iteration takes once counts
too much or too little. Set by hand."""
_OTHER_NAMES = {"fp8-ds": "fp8-delayed", "fp8-cs": "fp8-current", "fp8-mx": "mxfp8"}
"""How sources name recipes of `cluster.precisions`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredLayout:
    """A measured run and the layout that it had."""

    run: MeasuredRun
    seconds: float
    """Measured, of an iteration with the global batch of the layouts."""
    priced: PricedLayout | None
    """The layout among those that are priced; None where it is not one of them."""

    @property
    def words(self) -> str:
        """The name of its layout."""
        return self.run.layout if self.priced is None else self.priced.words


def measured_beside(layouts: Layouts, record: Record | None = None) -> tuple[MeasuredLayout, ...]:
    """The measured runs of the same kind, the fastest first; one for each layout, software and precision. Those of
    another global batch are scaled to that of the layouts, where it is not too far away for that."""
    record = stored_record() if record is None else record
    recipe = recipe_of(layouts.precision)
    found: dict[tuple[object, ...], MeasuredLayout] = {}
    for run in record.runs:
        same = (run.sizes, run.device, run.gpus, run.sequence) == (
            layouts.sizes,
            layouts.cluster.device.name,
            layouts.cluster.devices,
            layouts.sequence,
        )
        if not (same and run.timed and run.measured_seconds and run.global_batch and _recipe(run) == recipe):
            continue
        scale = layouts.global_batch / run.global_batch
        if not 1 / _MOST_SCALED <= scale <= _MOST_SCALED:
            continue
        seconds = run.measured_seconds * scale
        one = MeasuredLayout(run=run, seconds=seconds, priced=_layout_of(layouts, run))
        key = (run.layout, run.recompute, run.software, run.precision)
        if key not in found or seconds < found[key].seconds:
            found[key] = one
    return tuple(sorted(found.values(), key=lambda one: one.seconds))


def context_of(run: MeasuredRun) -> int | None:
    """Devices that share a sequence: what the other degrees leave, where the record does not say."""
    others = (run.tensor or 1) * (run.pipeline or 1) * (run.data or 1)
    return run.context or (run.gpus // others if run.data and run.gpus % others == 0 else None)


def _recipe(run: MeasuredRun) -> str:
    name = run.precision.lower()
    return _OTHER_NAMES.get(name, LOW_PRECISIONS.get(name, ""))


def _layout_of(layouts: Layouts, run: MeasuredRun) -> PricedLayout | None:
    said: dict[Axis, Any] = {
        "tensor": run.tensor,
        "pipeline": run.pipeline,
        "data": run.data,
        "context": context_of(run),
        "expert": run.expert,
        "microbatch": run.micro_batch,
        "chunks": run.virtual,
        "zero_stage": run.zero_stage,
        "recompute": run.recompute if run.recompute in RECOMPUTATION else "none",
    }
    alike = layouts.where({axis: value for axis, value in said.items() if value is not None})
    return alike[0] if alike else None
