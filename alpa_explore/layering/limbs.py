"""Multi-word arithmetic on squares of FLOPs: numbers below 2^124 as two int64 words, value = high · 2^62 + low.

A *limb* is one word of a multi-word number (the term of the GMP manual).

The FLOPs of a large model's layer reach 1e17. Their squares fit neither int64 nor, exactly, float64, and the
tie-break of Eq. 6 compares sums of such squares, which must be exact to order near-equal clusterings.
"""

import numpy as np

from alpa_explore.numerics.arrays import Ints

LIMB = 62
"""Bits of the low limb: the sum of two low limbs still fits in int64."""
BASE = 1 << LIMB
INFINITY = BASE
"""As a high limb: larger than that of any sum of squares, and small enough that adding a square does not overflow."""
LIMIT = 1 << 61
"""Numbers to be squared, and their sum, must be smaller than this; then a sum of squares has a high limb below 2^60."""
_MASK = BASE - 1


def square(x: Ints) -> tuple[Ints, Ints]:
    """x² for 0 ≤ x < LIMIT, elementwise.

    With x = a · 2^31 + b: x² = a² · 2^62 + ab · 2^32 + b², and ab · 2^32 = (ab >> 30) · 2^62 + (ab mod 2^30) · 2^32.
    """
    a, b = x >> 31, x & ((1 << 31) - 1)
    middle = a * b
    low = ((middle & ((1 << 30) - 1)) << 32) + b * b
    return a * a + (middle >> 30) + (low >> LIMB), low & _MASK


def add(x: tuple[Ints, Ints], y: tuple[Ints, Ints]) -> tuple[Ints, Ints]:
    """x + y, elementwise with broadcasting."""
    low = x[1] + y[1]
    return x[0] + y[0] + (low >> LIMB), low & _MASK


def argmin(x: tuple[Ints, Ints]) -> Ints:
    """Index of the smallest number along the last dim; of equal ones the first."""
    high, low = x
    best = high.min(axis=-1, keepdims=True)
    candidate: Ints = np.where(high == best, low, BASE).argmin(axis=-1)
    return candidate
