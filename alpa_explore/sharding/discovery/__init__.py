"""Discovery: the splits of an operator that no rule knows, found by running it."""
