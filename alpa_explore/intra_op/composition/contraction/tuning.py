"""Limits and thresholds of contraction."""

from __future__ import annotations

from alpa_explore.intra_op.elimination.elimination_order import Limits

LIMITS = Limits(joined_entries=1e9, largest_table=1.5e7, table_entries=3e7)
"""When a contraction is too wide, at each price: about a second and 240 MB. A residual block with a convolution on its
shortcut takes that much on a 2 x 2 mesh."""
WORKSPACE_ENTRIES = 1 << 24
"""Largest working memory, in entries, that a thread keeps for its next contraction (128 MB): fresh memory is slow the
first time it is touched. Measured: a quarter of it costs Llama-3-70B on 8x8:h100 4 %, twice as much gains 1 %."""
BACKTRACKING_ENTRIES = 6e7
"""Most entries of the tables that backtracking reads, at all prices together (480 MB), for which they are kept. Beyond
it one price is taken at a time, only the result is kept, and backtracking computes the tables again. Introduced so that
the paper's plans of MoE-27B and the large Wide-ResNets can be priced; the figure was set by hand."""
STORED_ENTRIES = 1 << 18
"""Tables of up to this many entries are always stored whole. With 1 << 17, backtracking to hundreds of thousands of
choices of stages of Llama-3-70B took 40 s, not 1 s, in 20 % less memory."""
SLICE_SHARE = 1 / 8
"""Most joined entries of a slice, as a share of the entries of its table, for which the slice is recomputed instead of
stored: backtracking follows a few states only. Not critical."""
MERGED_ENTRIES = 1 << 12
"""Tables over the same nodes with up to this many entries are added into one; larger ones stay apart and are read
together. Not critical."""
LARGE_ENTRIES = 1 << 20
"""Entries from which the machine's memory is looked at before they are allocated, or kept for backtracking: 8 MB, which
take longer to fill than the look, 0.05 ms."""
ENTRIES_WORTH_DOMINANCE = 6e7
"""Joined entries, at all prices together, from which dominated strategies are dropped first: about 30 ms. What is left
differs from block to block, so its program is compiled anew, which takes 12 ms, where that of the whole is known."""
DOMINANCE_STEPS = 2e7
"""Most steps of the search for dominated strategies at one node, about 10 ms: a node of hundreds of strategies whose
neighbours have as many is left as it is."""
DOMINANCE_ROUNDS = 8
"""Most rounds of that search: what is dropped at a node may make strategies of its neighbours dominated. Blocks of
transformers take three or four."""
