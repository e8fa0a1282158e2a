"""Memory under the moves of the annealing, compiled by numba.

`usage` (a tuple, see `walk.usage_of`) has the segments of a timeline (`intra_op.problem.timeline`). `profile` is the
tuple (above, shift, top): bytes above the limit at time t are above[t] + shift[t >> BLOCK_BITS], and top[b] is their
maximum in block b of times. A range of times is raised, and its maximum found, in one step a block.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from alpa_explore.numerics.arrays import Floats, Ints
from alpa_explore.numerics.compiled import compiled

BLOCK_BITS = 6
"""log2 of the times in a block. A constant of this file, because numba compiles it in."""

Usage = tuple[Any, ...]
"""(segments, begin, end, first, amounts, alive, alive_segment, segment_node)"""
Profile = tuple[Any, ...]
"""(above, shift, top)"""


@compiled()
def raise_range(profile: Profile, begin: int, end: int, grown: float) -> None:
    """Add `grown` bytes at the times begin:end."""
    above, shift, top = profile
    low, high = begin >> BLOCK_BITS, (end - 1) >> BLOCK_BITS
    for b in range(low, high + 1):
        block_begin = b << BLOCK_BITS
        block_end = min(block_begin + (1 << BLOCK_BITS), len(above))
        if begin <= block_begin and block_end <= end:
            shift[b] += grown
            top[b] += grown
        else:
            for t in range(max(begin, block_begin), min(end, block_end)):
                above[t] += grown
            most = -np.inf
            for t in range(block_begin, block_end):
                most = max(most, above[t])
            top[b] = most + shift[b]


@compiled()
def range_fits(profile: Profile, begin: int, end: int, grown: float) -> bool:
    """True when nothing in begin:end is above the limit after `grown` more bytes there."""
    above, shift, top = profile
    low, high = begin >> BLOCK_BITS, (end - 1) >> BLOCK_BITS
    for b in range(low, high + 1):
        if top[b] + grown <= 0.0:
            continue
        block_begin = b << BLOCK_BITS
        block_end = min(block_begin + (1 << BLOCK_BITS), len(above))
        if begin <= block_begin and block_end <= end:
            return False
        for t in range(max(begin, block_begin), min(end, block_end)):
            if above[t] + shift[b] + grown > 0.0:
                return False
    return True


@compiled()
def fits(usage: Usage, profile: Profile, v: int, old: int, new: int) -> bool:
    """True when node v may go from strategy `old` to `new` without more bytes than allowed where its usage grows."""
    segments, begin, end, first, amounts = usage[0], usage[1], usage[2], usage[3], usage[4]
    for s in range(segments[v], segments[v + 1]):
        grown = amounts[first[s] + new] - amounts[first[s] + old]
        if grown > 0 and not range_fits(profile, begin[s], end[s], grown):
            return False
    return True


@compiled()
def hold(usage: Usage, profile: Profile, v: int, old: int, new: int) -> None:
    """Count the bytes of strategy `new` of node v instead of those of `old`."""
    segments, begin, end, first, amounts = usage[0], usage[1], usage[2], usage[3], usage[4]
    for s in range(segments[v], segments[v + 1]):
        grown = amounts[first[s] + new] - amounts[first[s] + old]
        if grown != 0.0:
            raise_range(profile, begin[s], end[s], grown)


@compiled()
def profile_of(usage: Usage, room: Floats, choices: Ints, profile: Profile) -> None:
    """Fill `profile` with the bytes above `room` under `choices`."""
    segments, begin, end, first, amounts = usage[0], usage[1], usage[2], usage[3], usage[4]
    above, shift, top = profile
    for t in range(len(above)):
        above[t] = 0.0
    for v in range(len(segments) - 1):
        for s in range(segments[v], segments[v + 1]):
            taken = amounts[first[s] + choices[v]]
            above[begin[s]] += taken
            if end[s] < len(above):
                above[end[s]] -= taken
    held = 0.0
    for b in range(len(top)):
        shift[b] = 0.0
        most = -np.inf
        for t in range(b << BLOCK_BITS, min((b + 1) << BLOCK_BITS, len(above))):
            held += above[t]
            above[t] = held - room[t]
            most = max(most, above[t])
        top[b] = most


@compiled()
def fullest(profile: Profile) -> tuple[int, float]:
    """The time with the most bytes above the limit, and their number."""
    above, shift, top = profile
    block = 0
    for b in range(1, len(top)):
        if top[b] > top[block]:
            block = b
    time = block << BLOCK_BITS
    for t in range(time, min(time + (1 << BLOCK_BITS), len(above))):
        if above[t] > above[time]:
            time = t
    return time, above[time] + shift[block]
