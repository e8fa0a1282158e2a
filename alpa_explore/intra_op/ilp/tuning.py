"""Tuning constants of this room: scales and tolerances. Wrong ones make a solver call a wrong answer optimal."""

SCALED_OPTIMUM = 1e3
"""Costs are scaled so that the optimum is near this. The tolerances of the solvers are absolute: with an optimum of
1e-5 (seconds) HiGHS calls an answer optimal that is 4.5 % too high."""
OBJECTIVE_TOLERANCE = 1e-6
"""Largest relative difference between the objective that a solver reports and the costs added up again."""
HIGHS_PROVEN_GAP = 1e-9
"""Relative gap below which HiGHS has proven its answer: the rest is rounding."""
SCALED_ROOM = 1e3
"""The largest room of a memory row, in the units of the rows: again because tolerances are absolute."""
MIN_TIME_LIMIT_SECONDS = 0.01
"""A solver is given at least this much time, however little is left."""

TOULBAR2_COST_UNITS = 1e6
"""toulbar2 takes whole costs: others are multiplied so that the optimum is near SCALED_OPTIMUM × this."""
TOULBAR2_LARGEST_COST = 2.0**52
"""Whole costs whose sum is above this are scaled too: they must stay exact as floats, and so must their sum."""
TOULBAR2_MEMORY_UNITS = 1e9
"""toulbar2 counts memory in this fraction of the limit, rounded up."""
