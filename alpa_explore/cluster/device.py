"""One device: its peak rates, its memory, and the share of the peak that a kernel of a given size reaches."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from numbers import Integral, Real

from alpa_explore.cluster.kernel_figures import KernelFigures
from alpa_explore.cluster.kernel_store import KernelStore
from alpa_explore.cluster.precisions import BLOCK_FORMATS, RECIPES, nearest, runs
from alpa_explore.cluster.software import Software
from alpa_explore.errors import ClusterError

UNHIDDEN_SHARE = 0.05
"""Share of overlapped collectives of weights and gradients that nothing hides: of the first and last bucket or block,
as two of 40 buckets of 25 MB (PyTorch's default) of 1 GB of gradients."""
HIDDEN_BUCKETS = 1 - UNHIDDEN_SHARE
"""Share of a gradient sum that software hides which sums gradients in buckets."""


_PARTS = {"complex64": "float32", "complex128": "float64"}
"""A dtype of complex numbers -> that of their real and imaginary parts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mirror:
    """The device that holds a second copy of the same weights, in a pipeline that runs from both ends (DualPipe)."""

    bandwidth: float
    """Bytes per second between the two, in either direction."""
    latency_seconds: float
    """To start a send."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """A device as a roofline with two corrections: efficiency grows with kernel size, and every kernel has a launch
    cost."""

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
    block_formats: tuple[str, ...] = ()
    """Formats with a scale for each block of entries that its matrix units compute in, of `precisions.BLOCK_FORMATS`.
    """
    matmul_curve: tuple[tuple[float, float], ...] = ()
    """Measured points (FLOPs of a matrix product, share of the peak), FLOPs ascending. When empty, `matmul_efficiency`
    and `half_efficiency_flops` describe how efficiency grows with size."""

    kernels: KernelFigures | None = None
    """How kernels depend on their local sizes. When None, products follow `matmul_curve` or `half_efficiency_flops`."""
    measured: KernelStore | None = None
    """Kernels that were timed on such a device: they take the measured seconds."""
    collective_overlap: float = 0.0
    """Share, 0 … 1, of the overlappable time of collectives that overlaps with the operator beside them (asynchronous
    tensor parallelism); 0 as in the paper."""
    gradient_overlap: float = 0.0
    """Share, 0 … 1, of the overlappable time of gradient all-reduces that overlaps with the backward pass."""

    expert_imbalance: float = 1.0
    """Rows of the busiest device over the mean, where devices hold different experts: what the others wait for."""
    expert_capacity: float = 0.0
    """Rows that each expert computes over the mean, whatever is routed to it: fewer are padded, more are dropped. 0:
    no expert has a capacity."""

    software: Software = field(default_factory=Software)
    """The framework that runs the model on it."""

    mirror: Mirror | None = None
    """Where every device runs a stage of each of two copies of the model: the other one that holds the same weights."""

    def __post_init__(self) -> None:
        if not isinstance(self.software, Software):
            raise ClusterError(
                "The software of a device must be a software profile",
                found=repr(self.software),
                remedy='Give a name to Cluster.parse: Cluster.parse("1x8:h100", software="megatron").',
            )
        _check_numbers(
            self,
            "memory_bytes",
            "memory_bandwidth",
            "matmul_efficiency",
            "half_efficiency_flops",
            "memory_efficiency",
            "launch_seconds",
            "collective_overlap",
            "gradient_overlap",
            "expert_imbalance",
            "expert_capacity",
        )
        if self.expert_imbalance < 1:
            raise ClusterError(
                "The busiest device cannot have fewer rows than the mean",
                found=f"expert_imbalance={self.expert_imbalance}",
                remedy="Give 1 for an even load, 1.3 for a busiest device with 30 % more.",
            )
        rates = self.peak_flops.values() if isinstance(self.peak_flops, Mapping) else (None,)
        if not all(isinstance(rate, Real) and rate > 0 for rate in rates) or "float32" not in self.peak_flops:
            raise ClusterError(
                "peak_flops must map dtypes to FLOP/s, float32 among them",
                found=repr(self.peak_flops),
                remedy='For example {"float32": 1.5e13, "float16": 1.25e14}.',
            )
        object.__setattr__(self, "block_formats", tuple(self.block_formats))
        if unknown := [name for name in self.block_formats if name not in BLOCK_FORMATS]:
            raise ClusterError(
                "block_formats must name formats of matrix products",
                found=repr(unknown[0]),
                remedy=f"Give some of {', '.join(BLOCK_FORMATS)}.",
            )
        recipe = self.software.low_precision
        if recipe and not runs(recipe, self.peak_flops, self.block_formats):
            raise ClusterError(
                "The device does not compute in this precision",
                found=f"{RECIPES[recipe].label} on {self.name}",
                remedy=f"The nearest that it has: {nearest(recipe, self.peak_flops, self.block_formats)}.",
            )
        for name in ("collective_overlap", "gradient_overlap"):
            if not 0.0 <= getattr(self, name) <= 1.0:
                raise ClusterError(
                    "An overlap must be a share between 0 and 1",
                    found=f"{name}={getattr(self, name)}",
                    remedy="Give 0 for no overlap, as in the paper, up to 1 for full overlap.",
                )

    @property
    def overlaps_given(self) -> bool:
        """Whether the user says what hides behind computation, and not the software."""
        return bool(self.collective_overlap or self.gradient_overlap)

    @property
    def hidden_collectives(self) -> float:
        """Share of the overlappable time of collectives that is hidden: as given, else as the software has it."""
        return self.collective_overlap or self.software.tensor_overlap

    @property
    def hidden_gradient_sums(self) -> float:
        """The same of gradient sums behind the backward pass; the last bucket never is."""
        overlapped = HIDDEN_BUCKETS if self.software.gradient_sync == "overlapped" else 0.0
        return self.gradient_overlap or overlapped

    @property
    def reserved_bytes(self) -> float:
        """Bytes that the software keeps back: no plan is offered them."""
        return self.software.reserved_bytes(self.memory_bytes)

    @property
    def offered_bytes(self) -> float:
        """Bytes that a plan can use."""
        return self.memory_bytes - self.reserved_bytes

    def peak(self, dtype: str) -> float:
        """Peak FLOP/s for `dtype`; a dtype without matrix units runs at the fp32 rate, complex numbers at that of their
        parts."""
        return float(self.peak_flops.get(_PARTS.get(dtype, dtype), self.peak_flops["float32"]))

    def computes_in(self, dtype: str) -> str:
        """`dtype`, and float32 in place of TF32 where the device has none."""
        return "float32" if dtype == "tf32" and "tf32" not in self.peak_flops else dtype


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """A link between devices, alpha-beta: `latency_seconds` + bytes / `bandwidth`."""

    bandwidth: float
    """Bytes per second, one direction: of one device inside a node, of one whole node between nodes."""
    latency_seconds: float
    source: str = ""
    reduction_bandwidth: float = 0.0
    """Bus bandwidth of an all-reduce that the switches of the link compute (NVLink SHARP); 0 where they do not."""

    def __post_init__(self) -> None:
        _check_numbers(self, "bandwidth", "latency_seconds", "reduction_bandwidth")


def _check_numbers(part: Device | Link, *fields: str) -> None:
    """ClusterError for a field that is not a number of 0 or more; numpy numbers become Python numbers, which JSON can
    hold."""
    for name in fields:
        value = getattr(part, name)
        if isinstance(value, bool) or not isinstance(value, Real) or not float(value) >= 0:
            raise ClusterError(
                f"{name} of a {type(part).__name__.lower()} must be a number of 0 or more",
                found=f"{name}={value!r}",
                remedy="Give it in bytes, FLOPs, seconds, bytes or FLOPs per second; an efficiency is a share.",
            )
        object.__setattr__(part, name, int(value) if isinstance(value, Integral) else float(value))
