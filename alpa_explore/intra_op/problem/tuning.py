"""Tuning constants of this room."""

LIMIT_TOLERANCE = 1e-9
"""A sum of bytes still fits when it exceeds the limit by this share of it: the rounding of a sum of n floats is at most
n · 1.1e-16 of it, of ten million 1e-9."""
