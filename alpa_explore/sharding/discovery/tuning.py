"""Limits of discovery. Half and twice of each that counts or compares sizes give the same splits of 17 operators."""

LIMIT_SECONDS = 60.0
"""Time limit of one child process; testing an operator takes milliseconds."""

MOST_CANDIDATES = 600
"""Most candidates for one extent: where the product of the choices is larger, only dims at equal positions are
tried."""

SHARD_COUNTS = (2, 3, 4)
"""Numbers of shards that are tried."""

MOST_ELEMENTS = (1 << 16, 1 << 18, 1 << 20)
"""Limits on the elements of all inputs of a reduced run; the next one is used when nothing runs within the one
before."""

FULL_SIZE_ELEMENTS = 1 << 15
"""Up to this many input elements the operator is also run at its full size."""

LARGEST_FIXED_ARGUMENT = 4
"""Integer arguments up to this value are dims, strides, pads or modes; larger ones are sizes and are reduced too."""

LARGEST_OFFSET = 16
"""A size that is larger than another by at most this much stays so where nothing else runs (pads)."""

LARGEST_RATIO = 3
"""A size that is exactly 2 or 3 times another stays so (fused gates; query, key and value in one tensor)."""

REDUCTIONS = ((1, 6), (1, 8), (4, 6), (4, 8), (1, 4), (4, 4), (8, 8), (16, 8), (16, 12))
"""(keep, unit), in the order in which they are tried until two run: sizes up to `keep` stay as they are, larger ones
become multiples of `unit`. Units 6 and 12 divide into 2 and 3 shards, units 4 and 8 into 2 and 4: a split that holds
under both does not depend on the number of shards."""
