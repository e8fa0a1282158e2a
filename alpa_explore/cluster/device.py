"""One accelerator: its peak rates, its memory, and how much of the peak a kernel of a given size reaches."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from alpa_explore.errors import ClusterError


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """A device as a roofline with two corrections: efficiency grows with size, and every kernel costs a launch."""

    name: str
    peak_flops: Mapping[str, float] = field(hash=False)
    """dtype -> peak FLOP/s of matrix products in that dtype."""
    memory_bytes: int
    memory_bandwidth: float
    """Bytes per second."""
    matmul_efficiency: float
    """Share of the peak that a large matrix product reaches."""
    half_efficiency_flops: float
    """FLOPs of one kernel at which half of `matmul_efficiency` is reached."""
    memory_efficiency: float
    """Share of the memory bandwidth that a large elementwise kernel reaches."""
    launch_seconds: float
    """Fixed cost of one kernel."""
    source: str = ""
    matmul_curve: tuple[tuple[float, float], ...] = ()
    """Measured: (FLOPs of a matrix product, share of the peak), FLOPs ascending. Where empty, `matmul_efficiency` and
    `half_efficiency_flops` say how efficiency grows with size."""

    collective_overlap: float = 0.0
    """Which share of what could hide of the collectives beside operators does hide behind their computing (async tensor
    parallelism): 0 as in the paper, 1 all of it. See `intra_op.overlap`."""
    gradient_overlap: float = 0.0
    """The same of sums of gradients behind the backward pass."""

    def __post_init__(self) -> None:
        for name in ("collective_overlap", "gradient_overlap"):
            if not 0.0 <= getattr(self, name) <= 1.0:
                raise ClusterError(
                    "An overlap is a share between 0 and 1", found=f"{name}={getattr(self, name)}",
                    remedy="Give 0 where nothing hides, as in the paper, or 1 where everything does that can.",
                )  # fmt: skip

    def peak(self, dtype: str) -> float:
        """Peak FLOP/s for `dtype`; a dtype without matrix units runs at the fp32 rate."""
        return float(self.peak_flops.get(dtype, self.peak_flops["float32"]))


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """A link between devices, alpha-beta: `latency_seconds` + bytes / `bandwidth`."""

    bandwidth: float
    """Bytes per second, one direction: of one device inside a node, of one whole node between nodes."""
    latency_seconds: float
    source: str = ""
