"""Minkowski sums and unions of Pareto sets, compiled by numba.

A table of Pareto sets is stored flat: the set of entry e holds the points start[e]:start[e + 1], by ascending seconds
and therefore descending bytes. Every point of a sum records the numbers of its two summands.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from alpa_explore.numerics.arrays import Floats, Ints
from alpa_explore.numerics.compiled import compiled

Sets = tuple[Ints, Floats, Floats, Ints]
"""start, seconds, bytes, and the number of each point."""
Sums = tuple[Ints, Floats, Floats, Ints, Ints, float]
"""start, seconds, bytes, the numbers of the two summands of each point, and how many sums were formed."""


@compiled()
def _out_of_reach(
    seconds: float,
    size: float,
    prices: Floats,
    corner_seconds: Floats,
    corner_bytes: Floats,
    context: Floats,
    slack: float,
) -> bool:
    """True when for every corner some price proves that no completion of the point gets below it."""
    count = len(prices)
    last = 0
    for c in range(len(corner_seconds)):
        excluded = False
        for step in range(count):
            j = (last + step) % count  # the price that excludes one box often excludes the next
            least = prices[j, 0] * seconds + prices[j, 1] * size + context[j]
            if prices[j, 0] * corner_seconds[c] + prices[j, 1] * corner_bytes[c] < least * (1.0 - slack):
                excluded, last = True, j
                break
        if not excluded:
            return False
    return True


@compiled(inline="always")
def _resized(array: Any, points: int, capacity: int) -> Any:
    larger = np.empty(capacity, array.dtype)
    for p in range(points):
        larger[p] = array[p]
    return larger


@compiled()
def minimal_sums(
    a: Sets,
    b: Sets,
    entry_a: Ints,
    entry_b: Ints,
    most_seconds: float,
    most_points: int,
    most_sums: float,
    prices: Floats,
    corner_seconds: Floats,
    corner_bytes: Floats,
    contexts: Floats,
    slack: float,
) -> Sums:
    """Entry e of the result: the Pareto set of the union over k of a[entry_a[k, e]] + b[entry_b[k, e]].

    Points above `most_seconds` are left out, and so are those that `pareto_bounds` excludes (none without `contexts`,
    which are [prices, entries]). Stops early, and returns a number of sums above `most_sums`, when a cap is exceeded.
    """
    bounded = contexts.shape[1] > 0
    start_a, seconds_a, bytes_a, number_a = a
    start_b, seconds_b, bytes_b, number_b = b
    count, entries = entry_a.shape
    start = np.zeros(entries + 1, np.int64)
    capacity = 1024
    seconds, size = np.empty(capacity), np.empty(capacity)
    left, right = np.empty(capacity, np.int64), np.empty(capacity, np.int64)
    set_seconds, set_bytes = np.empty(1024), np.empty(1024)
    set_left, set_right = np.empty(1024, np.int64), np.empty(1024, np.int64)
    formed, points = 0.0, 0
    for e in range(entries):
        set_sums = 0
        for k in range(count):
            i, j = entry_a[k, e], entry_b[k, e]
            set_sums += (start_a[i + 1] - start_a[i]) * (start_b[j + 1] - start_b[j])
        formed += set_sums
        if formed > most_sums:
            return start, seconds, size, left, right, formed
        if set_sums > len(set_seconds):
            set_seconds, set_bytes = np.empty(2 * set_sums), np.empty(2 * set_sums)
            set_left, set_right = np.empty(2 * set_sums, np.int64), np.empty(2 * set_sums, np.int64)
        candidates = 0
        for k in range(count):
            i, j = entry_a[k, e], entry_b[k, e]
            for p in range(start_a[i], start_a[i + 1]):
                for q in range(start_b[j], start_b[j + 1]):
                    total_seconds = seconds_a[p] + seconds_b[q]
                    if total_seconds > most_seconds:
                        break  # later points of b are slower still
                    total_bytes = bytes_a[p] + bytes_b[q]
                    if bounded and _out_of_reach(
                        total_seconds, total_bytes, prices, corner_seconds, corner_bytes, contexts[:, e], slack
                    ):
                        continue
                    set_seconds[candidates], set_bytes[candidates] = total_seconds, total_bytes
                    set_left[candidates], set_right[candidates] = number_a[p], number_b[q]
                    candidates += 1
        if points + candidates > capacity:
            capacity = 2 * (points + candidates)
            seconds, size = _resized(seconds, points, capacity), _resized(size, points, capacity)
            left, right = _resized(left, points, capacity), _resized(right, points, capacity)
        first = points
        for x in np.argsort(set_seconds[:candidates]):
            if points > first and set_bytes[x] >= size[points - 1]:
                continue
            if points > first and set_seconds[x] == seconds[points - 1]:
                points -= 1  # as fast with fewer bytes: replaces the last point
            seconds[points], size[points] = set_seconds[x], set_bytes[x]
            left[points], right[points] = set_left[x], set_right[x]
            points += 1
        start[e + 1] = points
        if points > most_points:
            return start, seconds, size, left, right, np.inf
    return start, seconds[:points].copy(), size[:points].copy(), left[:points].copy(), right[:points].copy(), formed
