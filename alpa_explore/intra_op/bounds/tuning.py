"""Tuning constants of this room. None of them can make an answer wrong: they decide when a method stops."""

LARGEST_ILP_VARIABLES = 3 * 10**6
"""Variables of Eq. 1 in one component above which HiGHS is not tried, because it would take several GB: there the bound
of the messages is all there is."""

DESCENT_ROUNDS = 20
"""Passes of coordinate descent over the nodes at most. Not critical."""

MESSAGE_ROUNDS = 400
"""Rounds of messages (a sweep forward and one backward) at most. Not critical."""
GAP_CHECK_INTERVAL = 4
"""Rounds between two evaluations of the gap, each of which takes a descent and a bound. Not critical."""
MIN_PROGRESS = 2e-3
"""An evaluation that closes less than this share of the gap made no progress. Not critical."""
IDLE_CHECKS = 3
"""Evaluations without progress before the messages stop. Not critical."""
LARGE_PROBLEM_FACTOR = 8
"""Rounds and idle evaluations are multiplied by this above LARGEST_ILP_VARIABLES, where nothing comes after
messages."""
PROVEN_GAP = 1e-12
"""Relative gap at which the best known choice is proven optimal: no more than rounding."""
PRUNING_MARGIN = 1e-9
"""A strategy is pruned only if its bound exceeds the best known cost by this share of it, so that neither rounding nor
an equally good choice removes it."""
