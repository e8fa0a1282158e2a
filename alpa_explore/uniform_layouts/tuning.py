"""Limits of the enumeration: what nobody runs is not priced."""

LEAST_POSITIONS = 2048
"""Positions that a context-parallel device has at least: with fewer, products are small and the ring has nothing to
hide behind. Half of the 4,096 that public runs with context parallelism have at least."""
MOST_TOKENS = 32_768
"""Tokens of a microbatch on one device, where it has more than one sample: with them products of 2,048 × 2,048 weights
reach 99 % of their full rate on A100, H100 and B200, larger ones with a quarter of them."""
MOST_TENSOR = 16
"""Devices of a tensor-parallel group; no public run has more."""
MOST_CHUNKS = 8
"""Parts of the model on each stage of an interleaved schedule."""
MOST_DEVICES = 16_384
"""Devices up to which it is searched on how many a model fits."""
SAYS_EVERY = 64
"""Layouts after which the progress is said, and the cancellation looked at."""
PARTIAL_SECONDS = 0.5
"""Between two answers of what is known so far."""
RACK_USED = 64
"""Devices of a rack that runs use: a power of two; the others are spare."""
KEPT_MODELS = 2
"""Models whose works and prices stay in memory."""
KEPT_CLUSTERS = 16
"""Clusters on which the prices of a model stay in memory; those of ten thousand layouts take 10 MB."""
KEPT_GRAPHS = 2
"""Captured graphs that stay in memory: the structure of a model and its works are read from the same."""
