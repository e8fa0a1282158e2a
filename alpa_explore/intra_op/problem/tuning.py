"""Tuning constants of this room."""

LIMIT_TOLERANCE = 1e-9
"""A sum of bytes still fits when it exceeds the limit by this share of it: sums of floats are rounded. Set by hand."""
