"""How kernels depend on their local sizes: tiles and waves of a product, heads and keys of attention."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from numbers import Real

from alpa_explore.errors import ClusterError


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelFigures:
    """Beside the peaks and the two efficiencies of a device: what a kernel of a given shape loses against a large one.

    The formulas are in `cost.kernel_seconds`; the figures were fitted to measured runs or measured (`calibrate`).
    """

    processors: int
    """Streaming multiprocessors: tiles that run at once."""
    wave_loss: float
    """Share, 0 … 1, of the last, partly filled wave of tiles that is lost."""
    small_tile_exponent: float
    """The rate of a tile falls like (its size / 256 × 128)^exponent: smaller tiles reuse less of what they load."""
    product_depth: float
    """k of a product at which half of the rate is reached: start and end of a tile cost as much as its products."""
    unaligned_share: float
    """Factor of the rate where a side of the product is not a multiple of 8."""
    unaligned_batched_share: float
    """The same for a batch of small products, such as those of spelled-out attention with heads of 150."""
    batched_share: float
    """Share of the rate of one large product that a batch of small ones reaches together."""
    shares: Mapping[str, float] = field(default_factory=dict, hash=False)
    """dtype -> share of its peak that a large product reaches, where it is not the device's `matmul_efficiency`."""
    attention_share: float
    """Share of the bfloat16 peak of fused attention forward, for heads of 128 and many keys."""
    attention_backward_share: float
    """Factor of that share in the backward pass."""
    attention_head_exponent: float
    """The share falls like (head / 128)^exponent for smaller heads."""
    attention_keys: float
    """Keys at which attention reaches half of its share."""
    masked_attention: float = 0.6
    """Factor of that share in plain PyTorch under a mask, all scores counted, for heads of 16-bit numbers up to 128: by
    default of its memory-efficient kernel, as xFormers measured it beside flash attention. PyTorch 2.11 takes cuDNN's
    kernel on Hopper, which is faster than flash attention there (a compiled Llama-3.2-1B, data/gpu)."""
    grouped_share: float = 1.0
    """Share of the rate of one large product that products in groups reach, such as those of experts."""

    def __post_init__(self) -> None:
        for name in self.__dataclass_fields__:
            value = getattr(self, name)
            numbers = value.values() if isinstance(value, Mapping) else (value,)
            if not all(isinstance(x, Real) and not isinstance(x, bool) and 0 <= float(x) < 1e9 for x in numbers):
                raise ClusterError(
                    f"{name} of the kernel figures of a device must be a number of 0 or more",
                    found=f"{name}={value!r}",
                    remedy="Copy the section from a preset that has it, such as h100.json.",
                )
        if self.processors < 1:
            raise ClusterError(
                "A device has processors", found=f"processors={self.processors}", remedy="Give 1 or more."
            )
