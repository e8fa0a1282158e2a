"""The memory of every node as segments of constant usage, at the times only at which the limit can be exceeded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from alpa_explore.intra_op.anytime.anneal_kernels import BLOCK_BITS, Profile, Usage
from alpa_explore.intra_op.ilp.memory_rows import fullest_times
from alpa_explore.intra_op.problem.memory_limit import MemoryLimit
from alpa_explore.numerics.arrays import Floats, Ints


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Segments:
    """Usage above what no choice avoids, node after node."""

    usage: Usage
    """The arrays that the kernels read (see `anneal_kernels`)."""
    room: Floats
    """Bytes left at each time for what `usage` counts; negative where no choice fits."""

    def profile(self, choices: Sequence[int] | Ints) -> Profile:
        """The bytes above the limit under `choices`, as the kernels update them."""
        segments, begin, end, first, amounts = self.usage[:5]
        owner = self.usage[7]
        taken = amounts[first + np.asarray(choices, dtype=np.int64)[owner]]
        change = np.zeros(len(self.room) + 1)
        np.add.at(change, begin, taken)
        np.add.at(change, end, -taken)
        above = change.cumsum()[:-1] - self.room
        blocks = -(-len(above) // (1 << BLOCK_BITS))
        padded = np.full(blocks << BLOCK_BITS, -np.inf)
        padded[: len(above)] = above
        return above, np.zeros(blocks), padded.reshape(blocks, -1).max(axis=1)


def segments(memory: MemoryLimit, sizes: Sequence[int]) -> Segments:
    """The segments of the nodes with `sizes` strategies each."""
    items = [item for item in memory.items if item.end > item.start]
    least = [float(item.usage.min()) for item in items]
    alive = MemoryLimit(items=tuple(items), limit=memory.limit, fixed_bytes=memory.fixed_bytes)
    room = memory.limit - alive.profile(least)
    most = alive.profile([float(np.ptp(item.usage)) for item in items]) - memory.fixed_bytes
    times = np.array(fullest_times(alive, {item.start for item in items}), dtype=np.int64)
    times = times[most[times] > room[times]]
    if not times.size:  # the limit never binds: one time stands for all
        times = np.zeros(1, dtype=np.int64)
        room = np.maximum(room, most)[:1] if room.size else np.zeros(1)
    place = np.searchsorted(times, np.arange(len(memory.fixed_bytes) + 1))
    by_node: list[list[int]] = [[] for _ in sizes]
    for i, item in enumerate(items):
        if place[item.end] > place[item.start] and np.ptp(item.usage) > 0:
            by_node[item.node].append(i)
    starts, begin, end, rows, owner = [0], [], [], [], []
    for v, at in enumerate(by_node):
        if at:
            ends = np.array([[place[items[i].start], place[items[i].end]] for i in at])
            cuts = np.unique(ends)
            position = np.searchsorted(cuts, ends)
            change = np.zeros((len(cuts), sizes[v]))
            for i, (low, high) in zip(at, position, strict=True):
                above = items[i].usage - items[i].usage.min()
                change[low] += above
                change[high] -= above
            level = change.cumsum(axis=0)
            for j in range(len(cuts) - 1):
                if level[j].any():
                    begin.append(cuts[j])
                    end.append(cuts[j + 1])
                    rows.append(level[j])
                    owner.append(v)
        starts.append(len(begin))
    first = np.concatenate([[0], np.cumsum([len(row) for row in rows])]).astype(np.int64)[:-1]
    begins, ends_of = np.array(begin, dtype=np.int64), np.array(end, dtype=np.int64)
    blocks = -(-len(times) // (1 << BLOCK_BITS))
    low, high = begins >> BLOCK_BITS, (ends_of - 1) >> BLOCK_BITS
    spans = high - low + 1
    at_block = np.repeat(low, spans) + np.arange(spans.sum()) - np.repeat(np.cumsum(spans) - spans, spans)
    order = np.argsort(at_block, kind="stable")
    return Segments(
        usage=(
            np.array(starts, dtype=np.int64),
            begins,
            ends_of,
            first,
            np.concatenate([*rows, np.zeros(0)]),
            np.concatenate([[0], np.cumsum(np.bincount(at_block, minlength=blocks))]).astype(np.int64),
            np.repeat(np.arange(len(begins)), spans)[order],
            np.array(owner, dtype=np.int64),
        ),
        room=np.asarray(room[times] if room.size > 1 else room),
    )
