"""Products of a block in a lower precision (`cluster.precisions`): the kernels that run in it, and their casts."""

from __future__ import annotations

from dataclasses import replace

from alpa_explore.cluster.precisions import RECIPES, Recipe
from alpa_explore.cost.kernels import Kernel, KernelKind
from alpa_explore.cost.work import PassWork

ELEMENT = 2
"""Bytes of an element of what is cast."""
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
    moved = recipe.cast_bytes(ELEMENT) * elements / CAST_KERNELS
    cast = Kernel(flops=1.0, bytes_accessed=moved, dtype="bfloat16", matrix=False)
    kernels = tuple(replace(k, dtype=recipe.dtype) if lowered(k) else k for k in work.kernels)
    return replace(work, kernels=(*kernels, *(cast,) * CAST_KERNELS), launches=work.launches + CAST_KERNELS)
