"""Minkowski sums and unions of Pareto sets, compiled by numba.

A table of Pareto sets is flat: the set of entry e is the points start[e]:start[e + 1], by seconds ascending and so by
bytes descending. Every point knows the two points that it is the sum of.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from alpa_explore.numerics.arrays import Floats, Ints
from alpa_explore.numerics.compiled import compiled

Sets = tuple[Ints, Floats, Floats, Ints]
"""start, seconds, bytes, and the number of each point."""
Sums = tuple[Ints, Floats, Floats, Ints, Ints, float]
"""start, seconds, bytes, the numbers of the two summands of each point, and the sums that were formed."""


@compiled()
def _hopeless(
    seconds: float,
    size: float,
    prices: Floats,
    corner_seconds: Floats,
    corner_bytes: Floats,
    context: Floats,
    slack: float,
) -> bool:
    """True when for every corner some price says that what the point becomes stays above it."""
    count = len(prices)
    last = 0
    for c in range(len(corner_seconds)):
        out = False
        for step in range(count):
            j = (last + step) % count  # the price that ruled out one box often rules out the next
            reach = prices[j, 0] * seconds + prices[j, 1] * size + context[j]
            if prices[j, 0] * corner_seconds[c] + prices[j, 1] * corner_bytes[c] < reach * (1.0 - slack):
                out, last = True, j
                break
        if not out:
            return False
    return True


@compiled(inline="always")
def _grown(array: Any, points: int, room: int) -> Any:
    larger = np.empty(room, array.dtype)
    larger[:points] = array[:points]
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

    Left out are points above `most_seconds`, and those that `pareto_bounds` rules out (none without `contexts`, which
    are [prices, entries]). Stops early, with sums above `most_sums`, where a cap is passed.
    """
    bounded = contexts.shape[1] > 0
    start_a, seconds_a, bytes_a, number_a = a
    start_b, seconds_b, bytes_b, number_b = b
    count, entries = entry_a.shape
    start = np.zeros(entries + 1, np.int64)
    room = 1024
    seconds, size = np.empty(room), np.empty(room)
    left, right = np.empty(room, np.int64), np.empty(room, np.int64)
    one_seconds, one_bytes = np.empty(1024), np.empty(1024)
    one_left, one_right = np.empty(1024, np.int64), np.empty(1024, np.int64)
    formed, points = 0.0, 0
    for e in range(entries):
        wanted = 0
        for k in range(count):
            i, j = entry_a[k, e], entry_b[k, e]
            wanted += (start_a[i + 1] - start_a[i]) * (start_b[j + 1] - start_b[j])
        formed += wanted
        if formed > most_sums:
            return start, seconds, size, left, right, formed
        if wanted > len(one_seconds):
            one_seconds, one_bytes = np.empty(2 * wanted), np.empty(2 * wanted)
            one_left, one_right = np.empty(2 * wanted, np.int64), np.empty(2 * wanted, np.int64)
        found = 0
        for k in range(count):
            i, j = entry_a[k, e], entry_b[k, e]
            for p in range(start_a[i], start_a[i + 1]):
                for q in range(start_b[j], start_b[j + 1]):
                    total = seconds_a[p] + seconds_b[q]
                    if total > most_seconds:
                        break  # the others of b are slower still
                    size_here = bytes_a[p] + bytes_b[q]
                    if bounded and _hopeless(
                        total, size_here, prices, corner_seconds, corner_bytes, contexts[:, e], slack
                    ):
                        continue
                    one_seconds[found], one_bytes[found] = total, size_here
                    one_left[found], one_right[found] = number_a[p], number_b[q]
                    found += 1
        if points + found > room:
            room = 2 * (points + found)
            seconds, size = _grown(seconds, points, room), _grown(size, points, room)
            left, right = _grown(left, points, room), _grown(right, points, room)
        first = points
        for x in np.argsort(one_seconds[:found]):
            if points > first and one_bytes[x] >= size[points - 1]:
                continue
            if points > first and one_seconds[x] == seconds[points - 1]:
                points -= 1  # as fast and leaner: takes its place
            seconds[points], size[points] = one_seconds[x], one_bytes[x]
            left[points], right[points] = one_left[x], one_right[x]
            points += 1
        start[e + 1] = points
        if points > most_points:
            return start, seconds, size, left, right, np.inf
    return start, seconds[:points].copy(), size[:points].copy(), left[:points].copy(), right[:points].copy(), formed
