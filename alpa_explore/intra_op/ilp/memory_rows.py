"""A memory limit as rows of an ILP: a running sum of the bytes held, with one variable m_t per time.

    m_t = m_(t−1) + Σ_(items that begin) usage · s − Σ_(items that ended) usage · s            m_t ≤ room_t

A row has terms for the items that change, not for all that are alive. Usage is counted above the least usage of each
item, and the room is what the least usages leave. Times at which nothing can overflow get no row, nor do times that are
implied by a fuller time next to them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from alpa_explore.intra_op.ilp import tuning
from alpa_explore.intra_op.problem.memory_limit import MemoryLimit
from alpa_explore.numerics.arrays import Ints


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class MemoryRow:
    """m − (m of the previous row, if any) + Σ weights[v, k] · s[v, k] = 0 with m ≤ room."""

    room: float
    """In units of `unit` bytes."""
    unit: float
    weights: dict[tuple[int, int], float]
    """(node, position among its legal strategies) -> weight."""


def memory_rows(memory: MemoryLimit, legal: Sequence[Ints]) -> Iterator[MemoryRow]:
    """The rows in the order of time; `legal[v]` are the strategies of node v that have a variable in the ILP."""
    usage = [item.usage[legal[item.node]] for item in memory.items]
    room = memory.limit - memory.profile([float(u.min()) for u in usage])
    most_above = memory.profile([float(np.ptp(u)) for u in usage]) - memory.fixed_bytes
    unit = max(float(room.max(initial=0.0)), 1.0) / tuning.SCALED_ROOM
    varying = [i for i, item in enumerate(memory.items) if item.end > item.start and np.ptp(usage[i]) > 0]
    not_begun = sorted(varying, key=lambda i: memory.items[i].start, reverse=True)
    alive: set[int] = set()
    # Items that do not vary count too: the usage that no choice avoids may exceed the limit already.
    for t in fullest_times(memory, {item.start for item in memory.items if item.end > item.start}):
        if most_above[t] <= room[t]:
            continue
        ended = {i for i in alive if memory.items[i].end <= t}
        begun = set()
        while not_begun and memory.items[not_begun[-1]].start <= t:
            i = not_begun.pop()
            if memory.items[i].end > t:
                begun.add(i)
        weights: dict[tuple[int, int], float] = {}
        for sign, changed in ((-1.0, begun), (1.0, ended)):
            for i in changed:
                node, above = memory.items[i].node, (usage[i] - usage[i].min()) / unit
                for k in np.flatnonzero(above):
                    weights[node, int(k)] = weights.get((node, int(k)), 0.0) + sign * float(above[k])
        yield MemoryRow(room=float(room[t]) / unit, unit=unit, weights=weights)
        alive = (alive | begun) - ended


def fullest_times(memory: MemoryLimit, starts: set[int]) -> list[int]:
    """The times that imply the limit at all others: an item began since the last such time, and one ends right
    after."""
    ends = {item.end for item in memory.items}
    times, grown = [], False
    for t in range(len(memory.fixed_bytes)):
        grown = grown or t in starts
        last = t + 1 == len(memory.fixed_bytes)
        # Fixed bytes may fall at any time.
        if last or t + 1 in ends or memory.fixed_bytes[t + 1] < memory.fixed_bytes[t]:
            times += [t] if grown else []
            grown = False
        if not last and memory.fixed_bytes[t + 1] > memory.fixed_bytes[t]:
            grown = True
    return times
