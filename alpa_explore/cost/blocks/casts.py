"""Products in a lower precision: the kernels that run in it, and the casts that they need.

Scales for each tensor need its largest entry first (`current`: one more read; `delayed`: taken from earlier steps).
Both passes read an operand along another dim, so each cast writes it twice, in two orders. MXFP8 has a scale for each
32 entries along the dim that is summed over, NVFP4 for 16 and one for the tensor, so both copies are quantised from
the original (OCP Microscaling Formats 1.0; Transformer Engine, "Using FP8 and FP4").
"""

from __future__ import annotations

from dataclasses import replace

from alpa_explore.cost.kernels import Kernel, KernelKind
from alpa_explore.cost.work import PassWork

CAST_BYTES = {"": 4.0, "float8_e4m3fn": 4.0, "float4_e2m1fn_x2": 5.2}
"""dtype -> bytes that a cast moves for each element: it reads two, and writes one in each order; NVFP4 reads twice (the
largest entry of the tensor first) and writes a half and a sixteenth in each order."""
CAST_KERNELS = 4
"""Casts of a pass of a block: the inputs of its four products, or their gradients."""
_PRODUCTS = (KernelKind.PRODUCT, KernelKind.GROUPED_PRODUCT)


def in_low_precision(forward: PassWork, backward: PassWork, dtype: str) -> tuple[PassWork, PassWork]:
    """The passes of a block with its linear layers and experts in another dtype, and the casts that they need.

    Attention, routers, norms and whatever is outside of blocks keep their dtype, as in Transformer Engine.
    """
    products = [k for k in forward.kernels if lowered(k)]
    inputs = sum(k.sizes[0] * k.sizes[1] * k.sizes[3] for k in products)
    results = sum(k.sizes[0] * k.sizes[1] * k.sizes[2] for k in products)
    return _cast(forward, dtype, inputs), _cast(backward, dtype, results)


def lowered(kernel: Kernel) -> bool:
    """Whether a kernel of a block runs in the lower precision."""
    return kernel.kind in _PRODUCTS and not kernel.keeps_dtype


def _cast(work: PassWork, dtype: str, elements: float) -> PassWork:
    moved = CAST_BYTES[dtype] * elements / CAST_KERNELS
    cast = Kernel(flops=1.0, bytes_accessed=moved, dtype="bfloat16", matrix=False)
    kernels = tuple(replace(k, dtype=dtype) if lowered(k) else k for k in work.kernels)
    return replace(work, kernels=(*kernels, *(cast,) * CAST_KERNELS), launches=work.launches + CAST_KERNELS)
