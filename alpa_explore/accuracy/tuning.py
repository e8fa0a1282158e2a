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
OTHER_SIZE = 8.0
"""Ratio of the FLOPs of a token from which on a run says nothing of a model: other products, other limits."""
MUCH_OVERHEAD = 0.25
"""Share of an iteration that software adds from which on the host, and not kernels, decides on the time."""
USABLE_SHARE = 0.989
"""Of a device's memory what PyTorch may allocate: it reports 79.1 of 80 GiB on an H100 and 39.5 of 40 GiB on an A100;
the driver and its reserve take the rest."""
RUNS_ON_CPU, ERROR_OF_TIMED, ERROR_OF_CURVES = 58, (0.12, -0.096), (0.428, -0.458)
"""Runs of 20 models on a CPU, and (mean error, bias) of their computing time by kernels that were timed there and by
curves (benchmarks/on_cpu.json). Of GPUs there is no such record."""
UNKNOWN_ERROR = 0.01
"""Error of a size where no run of the kind was measured: fragments of the allocator and buffers of communicators."""
