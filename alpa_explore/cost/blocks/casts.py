"""Products in a lower precision: the kernels that run in it, and the casts that they need.

A cast reads an operand in two bytes and writes it twice, in the two orders in which products of both passes read it.
With a scale for each tensor the second copy is a transpose of the first; MXFP8 has a scale for each 32 entries along
the dim that is summed over, and NVFP4 for 16, so both copies are quantised from the original, and one is transposed.
Current scaling and NVFP4 read the tensor once more before, for its largest entry; delayed scaling takes that from
earlier steps. (OCP Microscaling Formats 1.0; Transformer Engine, "Using FP8 and FP4 with Transformer Engine".)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from alpa_explore.cost.kernels import Kernel, KernelKind
from alpa_explore.cost.work import PassWork


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """A low precision of products."""

    dtype: str
    """torch's name."""
    cast_bytes: float
    """Bytes that a cast moves for each element."""


RECIPES: Mapping[str, Recipe] = {
    "fp8-delayed": Recipe(dtype="float8_e4m3fn", cast_bytes=2 + 2 * 1),
    "fp8-current": Recipe(dtype="float8_e4m3fn", cast_bytes=2 + 2 + 2 * 1),
    "mxfp8": Recipe(dtype="float8_e4m3fn", cast_bytes=2 + 2 * (1 + 1 / 32)),
    "nvfp4": Recipe(dtype="float4_e2m1fn_x2", cast_bytes=2 + 2 + 2 * (1 / 2 + 1 / 16)),
}
"""By name: how scales are found, and what is moved for them."""
CAST_KERNELS = 4
"""Casts of a pass of a block: the inputs of its four products, or their gradients."""
_PRODUCTS = (KernelKind.PRODUCT, KernelKind.GROUPED_PRODUCT)


def in_low_precision(forward: PassWork, backward: PassWork, recipe: str) -> tuple[PassWork, PassWork]:
    """The passes of a block with its linear layers and experts in one of `RECIPES`, and the casts that they need.

    Attention, routers, norms and whatever is outside of blocks keep their dtype, as in Transformer Engine.
    """
    products = [k for k in forward.kernels if lowered(k)]
    inputs = sum(k.sizes[0] * k.sizes[1] * k.sizes[3] for k in products)
    results = sum(k.sizes[0] * k.sizes[1] * k.sizes[2] for k in products)
    return _cast(forward, RECIPES[recipe], inputs), _cast(backward, RECIPES[recipe], results)


def lowered(kernel: Kernel) -> bool:
    """Whether a kernel of a block runs in the lower precision."""
    return kernel.kind in _PRODUCTS and not kernel.keeps_dtype


def _cast(work: PassWork, recipe: Recipe, elements: float) -> PassWork:
    moved = recipe.cast_bytes * elements / CAST_KERNELS
    cast = Kernel(flops=1.0, bytes_accessed=moved, dtype="bfloat16", matrix=False)
    kernels = tuple(replace(k, dtype=recipe.dtype) if lowered(k) else k for k in work.kernels)
    return replace(work, kernels=(*kernels, *(cast,) * CAST_KERNELS), launches=work.launches + CAST_KERNELS)
