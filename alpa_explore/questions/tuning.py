"""Constants of the answers about a plan."""

ROUNDING = 1e-12
"""Share of a stage's latency below which an extra cost counts as rounding: it depends on the order of additions. Set by
hand; not measured."""
UNLIMITED_BYTES = 10**18
"""Memory of a device in the question what a plan would do without a limit on memory: more than any plan needs."""
FRONTIER_SOLVES = 24
"""Most solves for the convex part of a stage's frontier, unless the caller says how many. Set by hand; not measured."""
BETTER = 0.01
"""A plan that saves less than this share of an iteration is not better: predictions are not as exact."""
