"""A layout as people write it for Megatron, nanotron or FSDP: degrees, microbatches, ZeRO stage, recomputation."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ManualLayout:
    """A tensor × data × pipeline layout. Devices are numbered tensor first, then data, then pipeline."""

    tensor: int
    data: int
    pipeline: int
    microbatches: int
    """Of an iteration, for each data-parallel replica."""
    blocks: tuple[int, ...]
    """Blocks of each part of the pipeline: part c · pipeline + s is chunk c of stage s."""
    head_part: int
    """The part that has the head and the loss."""
    zero_stage: int = 0
    recompute: str = "none"
    """'none', 'selective' (attention) or 'full' (only the inputs of blocks are held)."""
    low_precision: str | None = None
    """dtype in which the products of blocks run, such as 'float8_e4m3fn'; None for the dtype of the graph."""

    @property
    def devices(self) -> int:
        """Number of devices."""
        return self.tensor * self.data * self.pipeline

    @property
    def chunks(self) -> int:
        """Parts of the model on each stage; more than 1 for an interleaved schedule."""
        return len(self.blocks) // self.pipeline
