"""`timeline`: the items of a memory limit as arrays, at the times that matter.

A choice that fits at these times fits at all. Usage is counted above the least usage of each item, and the room is what
the least usages leave. The memory of node v lies in the segments of_node[v]:of_node[v+1], which do not overlap; segment
s lasts from begin[s] until just before end[s] and takes amounts[first[s] + k] under strategy k.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from alpa_explore.intra_op.problem.memory_limit import MemoryLimit
from alpa_explore.numerics.arrays import Floats, Ints, starts


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Timeline:
    """Usage above what no choice avoids, node after node."""

    room: Floats
    """Bytes left at each time; negative where no choice fits."""
    of_node: Ints
    begin: Ints
    end: Ints
    first: Ints
    amounts: Floats
    owner: Ints
    """The node of each segment."""
    entry: Ints
    """Of each of the amounts its strategy, all strategies counted node after node."""

    def memory_costs(self, prices: Floats, strategies: int) -> Floats:
        """The price of the memory of each of all `strategies`, at a price of a byte for each time."""
        until = np.concatenate([[0.0], np.cumsum(prices)])
        of_segment = until[self.end] - until[self.begin]
        costs = self.amounts * np.repeat(of_segment, np.diff(self.first, append=len(self.amounts)))
        return np.bincount(self.entry, weights=costs, minlength=strategies).astype(np.float64)

    def held(self, choices: Sequence[int] | Ints) -> Floats:
        """Bytes at each time, above what no choice avoids."""
        taken = self.amounts[self.first + np.asarray(choices, dtype=np.int64)[self.owner]]
        change = np.zeros(len(self.room) + 1)
        np.add.at(change, self.begin, taken)
        np.add.at(change, self.end, -taken)
        return np.asarray(change.cumsum()[:-1])


def timeline(memory: MemoryLimit, sizes: Sequence[int]) -> Timeline:
    """The timeline of nodes with `sizes` strategies each."""
    items = [item for item in memory.items if item.end > item.start]
    usages = np.concatenate([*(item.usage for item in items), np.zeros(0)])
    firsts = starts([len(item.usage) for item in items])
    least = np.minimum.reduceat(usages, firsts) if items else np.zeros(0)
    span = np.maximum.reduceat(usages, firsts) - least if items else np.zeros(0)
    alive = MemoryLimit(items=tuple(items), limit=memory.limit, fixed_bytes=memory.fixed_bytes)
    room = memory.limit - alive.profile(least.tolist())
    most = alive.profile(span.tolist()) - memory.fixed_bytes
    times = np.array(_fullest_times(alive, {item.start for item in items}), dtype=np.int64)
    times = times[most[times] > room[times]]
    if not times.size:
        # The limit never binds, or nothing that varies can help: the time with least room stands for all.
        times = np.array([int(np.argmin(room - most))] if room.size else [], dtype=np.int64)
    place = np.searchsorted(times, np.arange(len(memory.fixed_bytes) + 1))
    by_node: list[list[int]] = [[] for _ in sizes]
    for i, item in enumerate(items):
        if span[i] > 0 and place[item.end] > place[item.start]:
            by_node[item.node].append(i)
    of_node, begin, end, rows, owner = [0], [], [], [], []
    for v, at in enumerate(by_node):
        if at:
            ends = np.array([[place[items[i].start], place[items[i].end]] for i in at])
            cuts, position = np.unique(ends, return_inverse=True)
            change = np.zeros((len(cuts), sizes[v]))
            for i, (low, high) in zip(at, position.reshape(-1, 2).tolist(), strict=True):
                above = items[i].usage - least[i]
                change[low] += above
                change[high] -= above
            level = change.cumsum(axis=0)
            used = np.flatnonzero((level[:-1] != 0).any(axis=1))
            begin += cuts[used].tolist()
            end += cuts[used + 1].tolist()
            rows += list(level[used])
            owner += [v] * len(used)
        of_node.append(len(begin))
    widths, owners = [len(row) for row in rows], np.array(owner, dtype=np.int64)
    first, amounts = starts(widths), np.concatenate([*rows, np.zeros(0)])
    return Timeline(
        room=np.asarray(room[times]) if times.size else np.ones(1),
        of_node=np.array(of_node, dtype=np.int64),
        begin=np.array(begin, dtype=np.int64),
        end=np.array(end, dtype=np.int64),
        first=first,
        amounts=amounts,
        owner=owners,
        entry=np.arange(len(amounts)) + np.repeat(starts(list(sizes))[owners] - first, widths),
    )


def _fullest_times(memory: MemoryLimit, starts: set[int]) -> list[int]:
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
