"""Tuning constants of this room."""

MAX_ENUMERATED_VARIABLES = 400_000
"""Variables of Eq. 1 above which the enumerated ILP is only counted, unless it is requested by name: PuLP builds
about 180,000 variables a second, so these take it two seconds."""

REPORTED_GAP = 1e-8
"""Relative gaps below this are shown as 0: they are the tolerances of HiGHS."""

EQUAL_COSTS = 1e-9
"""Relative difference below which two costs of a node count as equal."""

FACTOR_GAP = 1e-3
"""Relative gap at which the factor ILP stops: its linear costs are not exact to more than a few times this."""

POLISH_ROUNDS = 10
"""Sweeps of `polish` over the axes at most; two or three are usual."""

POLISH_GAIN = 1e-9
"""Relative gain of a sweep below which `polish` stops."""
