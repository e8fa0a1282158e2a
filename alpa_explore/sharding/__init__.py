"""Sharding specs, strategies, resharding steps and operator rules."""
