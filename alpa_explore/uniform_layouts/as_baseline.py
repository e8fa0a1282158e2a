"""A uniform layout as a baseline of `ax.baseline`: then it is a plan like others."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from alpa_explore.uniform_layouts.layout import UniformLayout

_RECOMPUTES: Mapping[str, bool | str] = {"none": False, "selective": "attention", "full": "full"}


@dataclass(frozen=True, slots=True, kw_only=True)
class AsBaseline:
    """The arguments of `ax.baseline` for a layout."""

    kind: str
    degrees: tuple[tuple[str, int], ...]
    """(argument, value)."""
    num_microbatches: int
    samples: int
    """Of a microbatch of all replicas."""
    rematerialization: bool | str


def as_baseline(layout: UniformLayout) -> AsBaseline:
    """The baseline that is this layout, whose parts are cut at blocks as most frameworks do (`block_counts`)."""
    degrees = {
        "tp": layout.tensor,
        "dp": layout.data,
        "pp": layout.pipeline,
        "cp": layout.context,
        "ep": layout.expert,
        "zero": layout.zero_stage,
        "chunks": layout.chunks,
    }
    return AsBaseline(
        kind="megatron",
        degrees=tuple(degrees.items()),
        num_microbatches=layout.microbatches,
        samples=layout.microbatch * layout.data,
        rematerialization=_RECOMPUTES[layout.recompute],
    )
