"""Limits of the search that were set by measurement, not by the method."""

from __future__ import annotations

MOST_FITTING = 40
"""Problems that are solved within memory for one plan, 10 s at most each; after that known choices must do. Set by
hand: no stored row of the paper needs more than a handful."""
EXACT_FRONTIER_VARIABLES = 1_500
"""Variables of Eq. 1 up to which a memory frontier is computed for a composed problem as well: Pareto sets of such a
problem may stay small enough for the exact frontier. Set by hand."""
NEAR = (1.0, 2.0, 4.5)
"""Prices of memory, in multiples of the estimated price of a byte, at which `lazy_pricing` contracts all blocks of a
mesh together. Set by hand."""
