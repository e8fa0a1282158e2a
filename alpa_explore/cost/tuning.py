"""Constants of the kernel formulas that are no figures of a device."""

TILES = ((256, 128, 1.0), (128, 256, 1.0), (128, 128, 0.92), (128, 64, 0.75), (64, 64, 0.5))
"""(height, width, relative rate) of the tiles of a product's output that libraries choose from: smaller tiles
reuse less of what they load. Common shapes of cuBLAS and CUTLASS; the rates are set by hand, not measured."""
ATTENTION_BLOCK = 128
"""Queries that one block of fused attention computes, as FlashAttention-2 has it (arXiv 2307.08691)."""
ROOFLINE_SHARPNESS = 6.0
"""Exponent of the soft maximum of arithmetic and memory time. Set by hand; not measured."""
