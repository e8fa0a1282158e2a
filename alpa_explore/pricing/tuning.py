"""Tolerances and limits of pricing."""

from __future__ import annotations

SMALLEST_INVERSE_B = 2.0**-20
"""1/B of the largest number of microbatches that the envelope covers (a million)."""
TOLERANCE = 2.5e-3
"""Relative gap at which a solve may stop, and the relative gain that a corner of the envelope must promise to be worth
its solves. Measured: benchmarks/tuning_constants.py takes 1.00 of its time with half of it, 0.84 with twice as much."""
FITTING_SECONDS = 10.0
"""Time limit of a solve for a choice that fits in the memory of a device. Not critical: half or twice of it changes the
time of benchmarks/tuning_constants.py by less than 7 %."""
LEAN_GAP = 1e-4
"""Relative gap of the leanest choice of a large stage: among thousands of choices with nearly the same bytes a proof
may take an ILP hours."""
PROVEN = 1e-12
"""Relative gap that is no more than rounding."""
TIE_SECONDS = 1e-10
"""Price of a whole device of memory when memory is not short: it only breaks ties between equally fast choices."""

NEXT_B_FACTOR = 4.0
"""All ranges of a mesh are composed at a B that is so many times smaller, too. Set by hand: half and a quarter of a B
are what users try."""
MOST_CORNERS = 2
"""Corners of envelopes, between the first three values of 1/B, at which all ranges of a mesh are composed. Set by
hand."""
SWEEP_PRICES = (3e-1, 3.0, 1e4)
"""Prices of a whole device of memory, in multiples of the seconds of a stage, at which ranges that overflow are
composed; at the last one no saved time justifies a byte. Set by hand; not measured."""
COMPOSED_GAP = 0.8 * TOLERANCE
"""Relative gap at which composition within memory stops; up to TOLERANCE the result is accepted. Not critical: half or
twice of it changes the time of benchmarks/tuning_constants.py by less than 7 %."""

KEPT_GRAPHS = 36
"""Layered graphs whose chains and stages a worker keeps: up to four versions of rematerialisation, of nine B that are
compared."""
KEPT_MESHES = 24
"""Meshes whose costs and block subproblems a worker keeps, because stages are bounded, composed and made to fit on the
same mesh: 6 MB each for Llama-3-70B. A cluster of 8x8 has 21."""
KEPT_TABLES = 4
"""Meshes whose block tables a worker keeps for stages that are priced on demand: 130 MB each for GPT-39B, of which
another delta on 8x8:a100 asks for 16 meshes. With 24 its peak memory is twice as high, and its time the same."""

KERNELS_WAIT_SECONDS = 10.0
"""How long a worker waits for kernels that other processes compile (5 to 9 s), before it compiles them itself."""
KERNELS_LOOK_SECONDS = 0.05
"""How often it looks for them."""
