"""Constants of the kernel formulas that are no figures of a device, and of the search for cheapest reshardings."""

TILES = ((256, 128), (128, 256), (128, 128), (128, 64), (64, 128), (64, 64))
"""(height, width) of the tiles of a product's output that libraries choose from: common shapes of cuBLAS and
CUTLASS."""
LARGEST_TILE = 256 * 128
PARTS_OF_K = (1, 2, 4)
"""Numbers of parts into which libraries divide a long k where there are few tiles."""
ATTENTION_BLOCK = 128
"""Queries that one block of fused attention computes, as FlashAttention-2 has it (arXiv 2307.08691)."""
ROOFLINE_SHARPNESS = 6.0
"""Exponent of the soft maximum of arithmetic and memory time. Set by hand; not measured."""
MOST_SPECS_OF_ALL_PAIRS = 512
"""Specs of a tensor up to which all reshardings are priced at once: a tensor of 6 dims on 3 mesh axes has so many."""
SOURCES_AT_ONCE = 16
"""Specs from which reshardings are searched together, where specs are more: a few MB."""
