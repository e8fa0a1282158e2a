"""A layout: one degree of each kind of parallelism for a whole model, as people write it for Megatron-LM or FSDP."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from alpa_explore.baselines.equal_stages import block_counts
from alpa_explore.plans.phrases import layout_phrase

RECOMPUTED: Mapping[str, str] = {"none": "none", "selective": "attention", "full": "full"}
"""What the blocks of a layout recompute, as people name it -> the `Recomputation` of a plan."""
RECOMPUTATION = tuple(RECOMPUTED)
Axis: TypeAlias = Literal[
    "tensor",
    "pipeline",
    "data",
    "context",
    "expert",
    "expert_tensor",
    "microbatch",
    "chunks",
    "zero_stage",
    "recompute",
]
LABELS: dict[Axis, str] = {
    "tensor": "TP",
    "pipeline": "PP",
    "data": "DP",
    "context": "CP",
    "expert": "EP",
    "expert_tensor": "expert TP",
    "microbatch": "microbatch",
    "chunks": "interleaving",
    "zero_stage": "ZeRO",
    "recompute": "recomputation",
}
"""What can differ between layouts, and its name on screen."""
BASELINE = "megatron"
"""The kind of `ax.baseline` of which every layout is one."""
Parts: TypeAlias = tuple[tuple[int, ...], ...]
"""Of each part of a pipeline how many embeddings, blocks of each kind and heads (with the loss) it has. With
interleaving part c · pipeline + s is chunk c of stage s."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """TP × CP × DP × PP devices, numbered in this order. Those of a stage are divided another way for experts: expert
    TP × EP × copies of them (Megatron)."""

    tensor: int = 1
    pipeline: int = 1
    data: int = 1
    context: int = 1
    """Devices that share the sequence."""
    expert: int = 1
    """Devices that share the experts of a layer."""
    expert_tensor: int = 1
    """Devices that share each matrix of an expert."""
    microbatch: int = 1
    """Samples of a microbatch of one data-parallel replica."""
    microbatches: int = 1
    """Of a replica in an iteration."""
    chunks: int = 1
    """Parts of the model on each stage; more than 1 under an interleaved schedule."""
    zero_stage: int = 0
    recompute: str = "none"
    """Of `RECOMPUTATION`."""

    @property
    def devices(self) -> int:
        """Number of devices."""
        return self.stage_devices * self.pipeline

    @property
    def stage_devices(self) -> int:
        """Number of devices of a stage."""
        return self.tensor * self.replicas

    @property
    def replicas(self) -> int:
        """Copies of every weight but those of experts: devices that share the sequence have one each."""
        return self.context * self.data

    @property
    def expert_replicas(self) -> int:
        """Copies of every expert."""
        return self.stage_devices // (self.expert * self.expert_tensor)

    @property
    def samples(self) -> int:
        """Of a microbatch of all replicas."""
        return self.microbatch * self.data

    @property
    def rematerialization(self) -> bool | str:
        """The recomputation of a plan that is this layout."""
        return self.recompute != "none" and RECOMPUTED[self.recompute]

    def degrees(self, blocks: Sequence[int] = ()) -> dict[str, Any]:
        """The arguments of `ax.baseline` that make the plan that is this layout, with so many blocks in each part of
        its pipeline (`PricedLayout.blocks`); by default as most frameworks cut them (`block_counts`)."""
        degrees: dict[str, Any] = {
            "tp": self.tensor,
            "dp": self.data,
            "pp": self.pipeline,
            "cp": self.context,
            "ep": self.expert,
            "zero": self.zero_stage,
            "chunks": self.chunks,
        }
        if blocks and min(blocks) > 0 and tuple(blocks) != block_counts(sum(blocks), len(blocks)):
            degrees["blocks"] = tuple(blocks)
        return degrees

    @property
    def words(self) -> str:
        """'TP 2 · PP 4 · DP 8 · ZeRO-1 · microbatch 2 · selective recomputation'."""
        return layout_phrase(
            {label: getattr(self, axis) for axis, label in list(LABELS.items())[:6]},
            "1 device" if self.devices == 1 else "",
            f"ZeRO-{self.zero_stage}" if self.zero_stage else "",
            f"interleaved × {self.chunks}" if self.chunks > 1 else "",
            f"microbatch {self.microbatch}",
            f"{self.recompute} recomputation" if self.recompute != "none" else "",
        )
