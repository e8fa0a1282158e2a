"""Limits of stages."""

from __future__ import annotations

LARGEST_TABLE_BYTES = 1 << 26
"""Largest tensor that counts as a table, which each device computes whole: a rotary table of 131,072 tokens (64 MiB)
does, a causal mask of 8,192 x 8,192 numbers of 16 bits, twice as large, does not."""
MOST_PAIRS_KEPT = 2**16
"""Pairs of strategies at the ends of an edge whose seconds are kept (half a MB): on meshes of up to three axes nearly
all. A stage of a large model has thousands of edges."""
KEPT_CUTTERS = 8
"""Graphs of other sizes for which cut stages are kept: those of four versions, in layers and in fragments."""
