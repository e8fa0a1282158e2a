"""Devices of several kinds as one number, so that the recurrence counts them as it counts like ones.

The devices left of kinds 0, 1, … are the digits of a number with bases 2·D_0 + 1, 2·D_1 + 1, …: adding a submesh (of at
most D devices of a kind) to a state (with at most D of it left) never carries into the next digit. Numbers with a digit
above D are states with more devices than there are; they are `outside`, and have no partition. States are about
(2·D_0 + 1)·(D_1 + 1) for two kinds.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from alpa_explore.numerics.arrays import Ints


def encoded(devices_of: Sequence[tuple[int, int]], totals: Sequence[int]) -> tuple[Ints, int, Ints]:
    """(the number of each submesh, that of all devices, the numbers outside) from the (kind, devices) of each submesh
    and the devices of each kind."""
    units = [math.prod(2 * total + 1 for total in totals[:kind]) for kind in range(len(totals))]
    numbers = np.array([units[kind] * devices for kind, devices in devices_of], dtype=np.int64)
    whole = sum(unit * total for unit, total in zip(units, totals, strict=True))
    states = np.arange(whole + 1)
    inside = np.ones(whole + 1, dtype=bool)
    for unit, total in zip(units, totals, strict=True):
        inside &= states // unit % (2 * total + 1) <= total
    return numbers, whole, np.flatnonzero(~inside)
