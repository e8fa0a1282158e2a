"""A uniform layout as a baseline of `ax.baseline`: then it is a plan like others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from alpa_explore.baselines.equal_stages import block_counts
from alpa_explore.baselines.layout import RECOMPUTED
from alpa_explore.uniform_layouts.layout import UniformLayout


@dataclass(frozen=True, slots=True, kw_only=True)
class AsBaseline:
    """The arguments of `ax.baseline` for a layout."""

    kind: str
    degrees: tuple[tuple[str, Any], ...]
    """(argument, value): degrees of parallelism, and the blocks of each part where these are given."""
    num_microbatches: int
    samples: int
    """Of a microbatch of all replicas."""
    rematerialization: bool | str


def as_baseline(layout: UniformLayout, blocks: Sequence[int] = ()) -> AsBaseline:
    """The baseline that is this layout, with so many blocks in each part of its pipeline (`PricedLayout.blocks`); by
    default as most frameworks cut them (`block_counts`)."""
    degrees: dict[str, Any] = {
        "tp": layout.tensor,
        "dp": layout.data,
        "pp": layout.pipeline,
        "cp": layout.context,
        "ep": layout.expert,
        "zero": layout.zero_stage,
        "chunks": layout.chunks,
    }
    if blocks and min(blocks) > 0 and tuple(blocks) != block_counts(sum(blocks), len(blocks)):
        degrees["blocks"] = tuple(blocks)
    return AsBaseline(
        kind="megatron",
        degrees=tuple(degrees.items()),
        num_microbatches=layout.microbatches,
        samples=layout.microbatch * layout.data,
        rematerialization=layout.recompute != "none" and RECOMPUTED[layout.recompute],
    )
