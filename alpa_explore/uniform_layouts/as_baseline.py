"""A uniform layout as a baseline of `ax.baseline`, where a kind expresses it: then it is a plan like others."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from alpa_explore.cluster import Cluster
from alpa_explore.errors import OptionError
from alpa_explore.uniform_layouts.layout import UniformLayout

_ONE_STAGE = ("data-parallel", "zero-1", "zero-2", "zero-3")
"""By ZeRO stage."""
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


def as_baseline(layout: UniformLayout, cluster: Cluster) -> AsBaseline:
    """The baseline that is this layout. OptionError, with the reason, where no kind expresses it."""
    kind, degrees = _kind(layout, cluster)
    return AsBaseline(
        kind=kind,
        degrees=tuple(degrees.items()),
        num_microbatches=layout.microbatches,
        samples=layout.microbatch * layout.data,
        rematerialization=_RECOMPUTES[layout.recompute],
    )


def _kind(layout: UniformLayout, cluster: Cluster) -> tuple[str, dict[str, int]]:
    if layout.chunks > 1:
        raise _no_baseline(layout, "it is interleaved, and stages of baselines are whole")
    if layout.expert > 1 and (layout.expert_tensor != layout.tensor or layout.data % layout.expert):
        raise _no_baseline(layout, "baselines hold experts on devices that are replicas, divided by TP as the rest")
    plain = layout.tensor == layout.pipeline == layout.expert == 1
    if plain and layout.context == 1:
        return _ONE_STAGE[layout.zero_stage], {}
    if plain and layout.zero_stage == 3:
        return "zero-3", {"cp": layout.context}
    degrees = {
        "tp": layout.tensor,
        "dp": layout.data,
        "pp": layout.pipeline,
        "cp": layout.context,
        "ep": layout.expert,
    }
    if layout.zero_stage == 3 and layout.context == 1:
        return "fsdp+tp+pp", degrees | {"replicas": 1}
    default = int(cluster.software.shards_optimizer) if layout.data * layout.context > 1 else 0
    if layout.zero_stage != default:
        named = "ZeRO-1" if default else "no ZeRO"
        raise _no_baseline(layout, f"the baseline megatron has {named} with {cluster.software.label}")
    return "megatron", degrees


def _no_baseline(layout: UniformLayout, why: str) -> OptionError:
    return OptionError(
        "No baseline is this layout, so it cannot be opened as a plan",
        found=f"{layout.words}: {why}",
        remedy="Open another layout, or plan: the planner is free to choose more.",
    )
