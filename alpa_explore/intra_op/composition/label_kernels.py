"""The inner loop of label setting, compiled by numba: every label of a state with every option that begins there."""

from __future__ import annotations

import numpy as np

from alpa_explore.numerics.arrays import Floats, Ints
from alpa_explore.numerics.compiled import compiled


@compiled()
def extend_labels(
    label_state: Ints,
    label_seconds: Floats,
    label_bytes: Floats,
    starts: Ints,
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

    The options of a left state s are starts[s] … starts[s + 1] − 1, by what `remaining` costs behind the label, least
    first, so that pairs above the bound are not made: there can be thousands of times as many. Each option leads to
    `option_end`, a row of the last four arrays [ends, buckets], which are filled: the bytes of the sums of a row, from
    the least to the most, are divided evenly among its buckets. Rows are inf where no sum fell.
    """
    ends, buckets = seconds.shape
    least, most, found = np.zeros(ends), np.zeros(ends), np.zeros(ends, np.int64)
    total = 0
    # First the range of bytes of every row, then its buckets.
    for turn in range(2):
        for i in range(len(label_state)):
            state = label_state[i]
            reaching = label_seconds[i] + memory_price * (label_bytes[i] - room)
            for j in range(starts[state], starts[state + 1]):
                if reaching + remaining[j] >= bound + rounding:
                    break
                sum_seconds = label_seconds[i] + option_seconds[j]
                sum_bytes = label_bytes[i] + option_bytes[j]
                if sum_seconds + memory_price * (sum_bytes - room) + behind[j] >= bound:
                    continue
                end = option_end[j]
                if turn == 0:
                    if found[end] == 0 or sum_bytes < least[end]:
                        least[end] = sum_bytes
                    if found[end] == 0 or sum_bytes > most[end]:
                        most[end] = sum_bytes
                    found[end] += 1
                    total += 1
                    continue
                width = most[end] - least[end]
                k = int((sum_bytes - least[end]) / width * (buckets - 1)) if width > 0 else 0
                if sum_seconds < seconds[end, k] or (sum_seconds == seconds[end, k] and sum_bytes < bytes_held[end, k]):
                    seconds[end, k] = sum_seconds
                    bytes_held[end, k] = sum_bytes
                    label[end, k] = i
                    option[end, k] = j
    return total
