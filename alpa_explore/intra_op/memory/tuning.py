"""Tuning constants of this room. None of them can make an answer wrong: they decide when a method stops."""

PRICE_SEARCH_SECONDS = 20.0
"""Time limit of the price search where an ILP can still prove the answer. Not critical."""
PRICE_SEARCH_SHARE = 0.5
"""Share of a time limit that the price search takes at most; the ILP that proves its answer gets the rest."""

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
"""The price search ends when steps are shorter than this share of Polyak's length. Not critical."""
BOUND_PROGRESS = 1e-4
"""A step that raises the bound by less than this share of it made no progress. Not critical."""
REPAIR_ATTEMPTS = 6
"""Descents of one attempt to bring a choice within the limit, each at a higher price. Not critical."""
REPAIR_PRICE_GROWTH = 4
"""Factor between their prices. Not critical."""
REPAIR_DESCENT_ROUNDS = 10
"""Passes over the nodes of each of them. Not critical."""
