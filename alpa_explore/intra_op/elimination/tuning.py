"""Tuning constants of this room. Entries are entries of joins: the unit in which the time of an elimination is
known."""

JOINS_A_SECOND = 5e8
"""Joined entries per second that one core manages at the least; turns a time limit into a limit on entries."""

MAX_JOINED_ENTRIES = 1e10
"""Default limit of an elimination on its joined entries: about 10 s on one core."""
MAX_TABLE_ENTRIES = 2e7
"""Default limit on the entries of its largest table: 160 MB."""
MAX_TOTAL_ENTRIES = 1e8
"""Default limit on the entries of all its tables together: about 1 GB."""

CHEAP_JOINS = 2e7
"""An order with at most this many joined entries (about 0.02 s) is taken at once by `solve`."""
HOPELESS_JOINS = 1e11
"""The search for an order stops at this many joined entries: such an elimination would take many minutes, and looking
for wide orders is slow too."""

JOINS_A_TRY = 1e5
"""One more noisy try for a better order for every so many joined entries of the best order. Set by hand; the searched
orders join about half of the entries of the greedy ones, or fewer."""
MOST_TRIES = 128
"""Noisy tries at most. Not critical."""
MOST_STEPS = 4e8
"""Steps of all tries together, about the cube of the number of nodes each: some tenths of a second."""
ORDER_NOISE = 0.3
"""In a noisy try scores are multiplied by a factor between 1 − ORDER_NOISE and 1 + ORDER_NOISE. Not critical."""
CORE_JOINS = 512
"""Nodes that join no more entries than this are eliminated first in every noisy try, so that the search is over the
others alone. Not critical."""
WIDEST_CORE = 2_000
"""Nodes; a larger core is not searched, because the compiled search holds square arrays over it and takes cubic
time."""
