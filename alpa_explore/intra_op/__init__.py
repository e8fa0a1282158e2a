"""The intra-op pass: a stage on a logical mesh becomes a sharding problem, and the problem a checked solution."""
