"""Tuning constants of this room. None of them can make an answer wrong: they decide when a method stops."""

FIRST_MESSAGE_ROUNDS = 40
"""Rounds of messages before the first step of the price search. Measured: benchmarks/tuning_constants.py takes 0.81 of
its time with half of it, 1.02 with twice as much."""
MESSAGE_ROUNDS = 6
"""Rounds of messages at every later step. Measured: benchmarks/tuning_constants.py takes 0.26 of its time with half of
it, 1.13 with twice as much."""
REPAIR_INTERVAL = 4
"""Steps between two attempts to bring a choice within the limit. Measured: benchmarks/tuning_constants.py takes 0.25 of
its time with half of it, 0.97 with twice as much."""
IDLE_STEPS = 8
"""Steps without a better bound before the step length shrinks. Measured: benchmarks/tuning_constants.py takes 0.92 of
its time with half of it, 1.17 with twice as much."""
STEP_SHRINK = 0.6
"""Factor by which the step length shrinks. Measured: benchmarks/tuning_constants.py takes 0.92 of its time with half of
it, 7.28 with twice as much."""
SHORTEST_STEP = 1e-4
"""The price search ends when steps are shorter than this share of Polyak's length. Not critical: half or twice of it
changes the time of benchmarks/tuning_constants.py by less than 7 %."""
BOUND_PROGRESS = 1e-4
"""A step that raises the bound by less than this share of it made no progress. Not critical: half or twice of it
changes the time of benchmarks/tuning_constants.py by less than 7 %."""
REPAIR_ATTEMPTS = 6
"""Descents of one attempt to bring a choice within the limit, each at a higher price. Not critical: half or twice of it
changes the time of benchmarks/tuning_constants.py by less than 7 %."""
REPAIR_PRICE_GROWTH = 4
"""Factor between their prices. Not critical: half or twice of it changes the time of benchmarks/tuning_constants.py by
less than 7 %."""
REPAIR_DESCENT_ROUNDS = 10
"""Passes over the nodes of each of them. Not critical: half or twice of it changes the time of
benchmarks/tuning_constants.py by less than 7 %."""

MAX_PARETO_JOINS = 1e6
"""Default cap on the entries of all joins of an elimination over Pareto sets, which is known beforehand."""
MAX_PARETO_POINTS = 4_000_000
"""Default cap on the points kept in all tables together: about 300 MB with what belongs to them."""
MAX_PARETO_SUMS = 4e7
"""Default cap on the sums of two points formed: about five seconds on one core."""
PARETO_PRICES = 16
"""Prices of a byte tried at most for the bounds; each takes an elimination. Measured: with them the frontier of a
transformer block is exact in a third of a second."""
PARETO_SLACK = 1e-9
"""Share of a sum by which rounding may change it: a bound must exceed a corner by more to rule a point out."""
