"""Tuning constants of this room. None of them can make an answer wrong."""

FOLLOWER_GROWTH = 1
"""A follower with more than two edges is merged only into a node with at most this many times its strategies. Set by hand."""
DOMINANCE_WORK = 2_000_000
"""Nodes that would take more comparisons of entries are not tested for dominated strategies. Set by hand: all of the
largest public problem of the contest took 40 s, with this cap it takes two."""
DOMINANCE_AMOUNTS = 16
"""Distinct amounts of an item that this estimate counts. Set by hand."""
DOMINANCE_ROUNDS = 4
"""Passes over the nodes that changed. Set by hand."""
