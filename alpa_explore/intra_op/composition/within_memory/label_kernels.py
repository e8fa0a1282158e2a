"""The inner loop of label setting, compiled by numba: every label of a state with every option that begins there."""

from __future__ import annotations

import numpy as np

from alpa_explore.numerics.arrays import Floats, Ints
from alpa_explore.numerics.compiled import compiled


@compiled()
def extend_labels(
    label_begins: Ints,
    label_seconds: Floats,
    label_bytes: Floats,
    reaching: Floats,
    option_begins: Ints,
    option_end: Ints,
    option_seconds: Floats,
    option_bytes: Floats,
    remaining: Floats,
    behind: Floats,
    memory_price: float,
    room: float,
    bound: float,
    rounding: float,
    seconds: Floats,
    bytes_held: Floats,
    label: Ints,
    option: Ints,
) -> int:
    """Extend labels [labels] by options [options]; in every bucket keep the fastest sum below the bound, and of equal
    ones that with fewer bytes. Returns how many sums are below the bound.

    The labels at a state s are label_begins[s] … label_begins[s + 1] − 1, by what they cost at the price up to there
    (`reaching`); its options are option_begins[s] … option_begins[s + 1] − 1, by what `remaining` costs behind the
    label. Both are in ascending order, so that pairs above the bound are not made: there can be thousands of times as
    many. Each option leads to `option_end`, a row of the last four arrays [ends, buckets], which are filled: the bytes
    of the sums of a row, from the least to the most, are divided evenly among its buckets. Rows are inf where no sum
    fell.
    """
    ends, buckets = seconds.shape
    least, most = np.full(ends, np.inf), np.full(ends, -np.inf)
    reached = np.zeros(len(option_end), np.int64)
    # First, without making the pairs, the labels that every option extends and the range of bytes of every row.
    low, high = label_bytes.copy(), label_bytes.copy()
    for state in range(len(option_begins) - 1):
        begin, count = label_begins[state], label_begins[state + 1] - label_begins[state]
        for i in range(begin + 1, begin + count):
            low[i], high[i] = min(low[i], low[i - 1]), max(high[i], high[i - 1])
        for j in range(option_begins[state], option_begins[state + 1]):
            while count > 0 and reaching[begin + count - 1] + remaining[j] >= bound + rounding:
                count -= 1
            if count == 0:
                break
            reached[j] = count
            end = option_end[j]
            least[end] = min(least[end], low[begin + count - 1] + option_bytes[j])
            most[end] = max(most[end], high[begin + count - 1] + option_bytes[j])
    # Then the pairs: those of an option fall into one row, which stays in the cache of the processor.
    total = 0
    for state in range(len(option_begins) - 1):
        begin = label_begins[state]
        for j in range(option_begins[state], option_begins[state + 1]):
            if reached[j] == 0:
                break
            end = option_end[j]
            width = most[end] - least[end]
            buckets_per_byte = (buckets - 1) / width if width > 0 else 0.0
            for i in range(begin, begin + reached[j]):
                sum_seconds = label_seconds[i] + option_seconds[j]
                sum_bytes = label_bytes[i] + option_bytes[j]
                if sum_seconds + memory_price * (sum_bytes - room) + behind[j] >= bound:
                    continue
                total += 1
                k = int((sum_bytes - least[end]) * buckets_per_byte)
                if sum_seconds < seconds[end, k] or (sum_seconds == seconds[end, k] and sum_bytes < bytes_held[end, k]):
                    seconds[end, k] = sum_seconds
                    bytes_held[end, k] = sum_bytes
                    label[end, k] = i
                    option[end, k] = j
    return total
