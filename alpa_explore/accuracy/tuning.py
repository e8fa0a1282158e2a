"""How many runs make a band, a group or a weak spot. Set by hand: with fewer, one odd run decides the mean."""

LEAST_RUNS = 5
"""Runs that an error band needs; with fewer of one kind, runs of a wider kind are taken and the band says so."""
ENOUGH_MFU = 0.15
"""Runs with a smaller share of the peak are limited by something else than arithmetic, as tensor parallelism across
nodes: they say little of a plan that reaches more."""
LEAST_WEAK_RUNS = 5
"""Runs that share a feature before the feature is named as a weak spot."""
WEAK_RATIO = 1.25
"""A weak spot has at least this multiple of the mean error of its source."""
MOST_OF_A_SOURCE = 3
"""Weak spots of one source: a source with many runs would fill the list."""
MOST_WEAK_SPOTS = 16
"""Weak spots that are listed, those that weigh most first: what fills a screen. The record has all runs."""
