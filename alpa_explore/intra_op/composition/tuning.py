"""Limits of composition: sizes of blocks, budgets of contraction, and prices of memory."""

from __future__ import annotations

MOST_LAYER_ENDS = 2
"""Most layers that end inside one block; beyond it the chain is cut there anyway. A residual block may have a whole
layer in its middle: with it a Wide-ResNet in 33 layers is composed whole."""
SMALLEST_BLOCK = 4
"""Forward operators of the smallest block, where no layer ends: smaller blocks would cost more than they save. Not
critical: twice of it changes the time of benchmarks/tuning_constants.py by less than 7 %; with 1 or 2 its plans are the
same."""
JOINED_ENTRIES_PER_RANGE = 1.5e8
"""Joined entries, for each range that is requested, that a block may take to contract: about what it takes to solve one
range by itself."""
SHARED_ENTRIES = 1 << 20
"""Largest table of a block that shares nodes with distant ones, at each price: it serves only the ranges that hold all
of these, and beyond it each is solved by itself. A scan of 12 steps in a Python loop shares 8 nodes, in tables of 11
million entries: 5 s for ranges that take 0.1 s to solve. Those of the tied weight of GPT-1.3B have less than half a
million on meshes of 16 devices."""

PIVOTS = 8
"""States, for each price of a table, by which `kernels.extend` leaves out others. Llama-3-70B on 4x8:h100 has 1.2
different cheapest states for each table and price."""
ROUNDING_OF_BOUNDS = 1e-9
"""How far a lower bound may be above the cost of a choice by rounding, in units of that cost."""

FIRST_PRICES = (1e-2, 3e-2, 1e-1, 1.0, 1e4)
"""First prices at which a range is solved within memory: of a whole device of memory, in multiples of the seconds of
the fastest choice. Set by hand; not measured."""
OUTER_PRICES = (1e-6, 1e-1, 1.0, 1e1, 1e4)
"""Prices, in the same unit, at which a range is solved where no choice found so far fits, or all of them do. Set by
hand; not measured."""
DUAL_ROUNDS = 12
"""Most rounds of raising the dual bounds, each at the crossings that the last one left. Not critical."""
EQUAL_PRICES = 1e-9
"""Relative difference up to which two prices count as equal: rounding."""
MIXED_PRICES = 1e-3
"""Relative difference from the best price of the two that mixtures have: small, so that they are nearly optimal at the
best one, and above rounding."""
