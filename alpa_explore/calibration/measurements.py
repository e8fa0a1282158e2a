"""What was measured on the attached devices: raw points, which a device file keeps beside the fitted figures."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One measurement: FLOPs of a product, or bytes of a kernel or a collective, and its seconds."""

    size: float
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Product:
    """`count` matrix products (m, k) × (k, n) in one kernel, the second factor stored transposed as in a linear
    layer."""

    dtype: str
    m: int
    n: int
    k: int
    seconds: float
    count: int = 1

    @property
    def flops(self) -> float:
        """2 · count · m · n · k."""
        return 2.0 * self.count * self.m * self.n * self.k


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionTime:
    """`scaled_dot_product_attention` of queries, keys and values of (1, batch_heads, sequence, head)."""

    dtype: str
    batch_heads: int
    """Samples times heads."""
    sequence: int
    head: int
    causal: bool
    forward_seconds: float
    backward_seconds: float
    """Gradients of queries, keys and values together."""

    @property
    def flops(self) -> float:
        """Of the forward pass: two products, half of them where the mask is causal."""
        return 4.0 * self.batch_heads * self.sequence**2 * self.head * (0.5 if self.causal else 1.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupTime:
    """A collective or a send within groups of some ranks, all groups at the same time."""

    kind: str
    """A kind of collective, or 'send' from one rank to the next."""
    ranks: int
    bytes: float
    """Of the larger side on one device."""
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurements:
    """The measurements of one kind of device."""

    device: str
    """'cpu' or the accelerator's own name."""
    software: str
    """Versions, for the `source` of the file."""
    memory_bytes: int
    main_dtype: str
    """The dtype in `matmul` whose curve is kept."""
    matmul: Mapping[str, tuple[Point, ...]]
    """dtype -> points of square products, FLOPs ascending."""
    memory: tuple[Point, ...]
    """Bytes that an elementwise kernel reads and writes, ascending."""
    ranks: int
    """The number of devices in the collectives; they also measured kernels at the same time."""
    collectives: Mapping[str, tuple[Point, ...]]
    """Kind -> bytes of the larger side on one device, and seconds; empty for a single device."""
    processors: int = 1
    """Multiprocessors of a GPU, each of which computes a tile of a product at a time; 1 on a CPU."""
    products: tuple[Product, ...] = ()
    """Products of other shapes than squares, aligned and not."""
    attention: tuple[AttentionTime, ...] = ()
    host_seconds: Mapping[str, float] = field(default_factory=dict)
    """What the host needs to issue one operator or collective (`measuring.host_time` names them)."""
    groups: tuple[GroupTime, ...] = ()
    """Collectives of fewer ranks, and sends."""
    clocks: Mapping[str, str] = field(default_factory=dict)
    """Clocks and power of the device before and after; empty where they cannot be read."""
