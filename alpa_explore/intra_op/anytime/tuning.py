"""Tuning constants of this room. None of them can make an answer wrong."""

FOLLOWER_GROWTH = 1
"""A follower with more than two edges is merged only into a node with at most this many times its strategies. Set by hand."""
DOMINANCE_TABLES = 64
"""Nodes with more tables are not tested for dominated strategies. Set by hand."""
DOMINANCE_ROUNDS = 4
"""Passes over the nodes that changed. Set by hand."""
