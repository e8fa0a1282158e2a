"""A layout as people write it for Megatron, nanotron or FSDP: degrees, microbatches, ZeRO stage, recomputation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

RECOMPUTED: Mapping[str, str] = {"none": "none", "selective": "attention", "full": "full"}
"""What the blocks of a layout recompute, as people name it -> the `Recomputation` of a plan."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ManualLayout:
    """A tensor × context × data × pipeline layout. Devices are numbered in this order. Those of a stage are divided
    another way for experts: expert tensor × expert × copies of them (Megatron)."""

    tensor: int
    data: int
    pipeline: int
    microbatches: int
    """Of an iteration, for each data-parallel replica."""
    blocks: tuple[tuple[int, ...], ...]
    """Blocks of each kind in each part of the pipeline: part c · pipeline + s is chunk c of stage s."""
    head_part: int
    """The part that has the head and the loss."""
    context: int = 1
    """Devices that share the sequence."""
    expert: int = 1
    """Devices that share the experts of a layer."""
    expert_tensor: int = 1
    """Devices that share each matrix of an expert."""
    zero_stage: int = 0
    recompute: str = "none"
    """Of `RECOMPUTED`."""

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
    def chunks(self) -> int:
        """Parts of the model on each stage; more than 1 for an interleaved schedule."""
        return len(self.blocks) // self.pipeline
