"""A memory limit as rows of an ILP: a running sum of what is held, with one variable m_t a time.

    m_t = m_(t−1) + Σ_(items that begin) usage · s − Σ_(items that ended) usage · s            m_t ≤ room_t

A row has as many terms as strategies change, not as many as are alive. Usage counts from the least of each item, and
the room is what those leave; times at which nothing can overflow, and those that a fuller time next to them implies,
get no row.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from alpa_explore.intra_op.problem.memory_limit import MemoryLimit
from alpa_explore.numerics.arrays import Ints

SCALED_ROOM = 1e3
"""The largest room, in the units of the rows: the tolerances of the solvers are absolute."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class MemoryRow:
    """m − (m of the row before, if any) + Σ weights[v, k] · s[v, k] = 0 with m ≤ room."""

    room: float
    """In units of `unit` bytes."""
    unit: float
    weights: dict[tuple[int, int], float]
    """(node, position among its legal strategies) -> weight."""


def memory_rows(memory: MemoryLimit, legal: Sequence[Ints]) -> Iterator[MemoryRow]:
    """The rows in the order of time; `legal[v]` are the strategies of node v that the ILP knows."""
    usage = [item.usage[legal[item.node]] for item in memory.items]
    room = memory.limit - memory.profile([float(u.min()) for u in usage])
    most = memory.profile([float(np.ptp(u)) for u in usage]) - memory.taken
    unit = max(float(room.max(initial=0.0)), 1.0) / SCALED_ROOM
    varying = [i for i, item in enumerate(memory.items) if item.end > item.start and np.ptp(usage[i]) > 0]
    waiting = sorted(varying, key=lambda i: memory.items[i].start, reverse=True)
    alive: set[int] = set()
    # Also where nothing varies: what no choice avoids may be too much already.
    for t in fullest_times(memory, {item.start for item in memory.items if item.end > item.start}):
        if most[t] <= room[t]:
            continue
        dead = {i for i in alive if memory.items[i].end <= t}
        born = set()
        while waiting and memory.items[waiting[-1]].start <= t:
            i = waiting.pop()
            if memory.items[i].end > t:
                born.add(i)
        weights: dict[tuple[int, int], float] = {}
        for sign, changed in ((-1.0, born), (1.0, dead)):
            for i in changed:
                node, above = memory.items[i].node, (usage[i] - usage[i].min()) / unit
                for k in np.flatnonzero(above):
                    weights[node, int(k)] = weights.get((node, int(k)), 0.0) + sign * float(above[k])
        yield MemoryRow(room=float(room[t]) / unit, unit=unit, weights=weights)
        alive = (alive | born) - dead


def fullest_times(memory: MemoryLimit, starts: set[int]) -> list[int]:
    """Times at which the most is alive: something began since the last such time, and something ends after it."""
    ends = {item.end for item in memory.items}
    found, grown = [], False
    for t in range(len(memory.taken)):
        grown = grown or t in starts
        last = t + 1 == len(memory.taken)
        # What is taken whatever is chosen may fall at any time.
        if last or t + 1 in ends or memory.taken[t + 1] < memory.taken[t]:
            found += [t] if grown else []
            grown = False
        if not last and memory.taken[t + 1] > memory.taken[t]:
            grown = True
    return found
