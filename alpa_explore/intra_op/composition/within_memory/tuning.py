"""Prices and limits of the search for choices that fit."""

from __future__ import annotations

FIRST_PRICES = (1e-2, 3e-2, 1e-1, 1.0, 1e4)
"""First prices at which a range is solved within memory: of a whole device of memory, in multiples of the seconds of
the fastest choice. Set by hand; not measured."""
OUTER_PRICES = (1e-6, 1e-1, 1.0, 1e1, 1e4)
"""Prices, in the same unit, at which a range is solved where no choice found so far fits, or all of them do. Set by
hand; not measured."""
DUAL_ROUNDS = 12
"""Most rounds of raising the dual bounds, each at the crossings that the last one left. Not critical: half or twice of
it changes the time of benchmarks/tuning_constants.py by less than 7 %."""
MOST_COMBINED = 3
"""Numbers of microbatches held for which label setting combines options; what fits beside more microbatches also fits
beside the fewer between them. Not critical: half or twice of it changes the time of benchmarks/tuning_constants.py by
less than 7 %."""
EQUAL_PRICES = 1e-9
"""Relative difference up to which two prices count as equal: rounding."""

OPTION_PRICES = (0.5, 0.8, 0.95, 1.05, 1.25, 2.0)
"""Prices at which blocks offer options to label setting, in multiples of the best price. Set by hand; not measured."""
NEARLY_EQUAL_PRICES = 0.04
"""Relative difference up to which two prices offer about the same options. Set by hand; not measured."""
MOST_SLACK = 0.02
"""Slack of the pairs of states that label setting considers, relative to the bound, where no choice that fits is known.
Not critical: half or twice of it changes the time of benchmarks/tuning_constants.py by less than 7 %."""
ROUNDING = 1e-9
"""Of the largest figure: labels that are above a bound by less are computed, and compared with it, again."""
MOST_LABELS = 400
"""Labels kept at one state; more are thinned out evenly. Not critical: half or twice of it changes the time of
benchmarks/tuning_constants.py by less than 7 %."""
BUCKETS = 2_000_000
"""Buckets of bytes among which the labels of all states behind a block are divided; in each the fastest is kept."""
MOST_PAIRS = 2_000
"""Pairs of states of a block that label setting considers, those of least slack."""
SLOPE_STEP = 1e-4
"""Relative difference of two prices whose tables give the bytes of options: rounding changes them by 1e-12 of the cost
over this, and few choices change between the prices."""
EQUAL_OPTIONS = 1e-6
"""Relative difference of the bytes of two options of a pair of states that count as one choice: above rounding."""
MOST_ENDS_TRIED = 12
"""Labels at the right end whose workspace is computed. Not critical: half or twice of it changes the time of
benchmarks/tuning_constants.py by less than 7 %."""
