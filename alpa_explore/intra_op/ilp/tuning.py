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
