"""The memory of every node as segments of constant usage, at the times only at which the limit can be exceeded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from alpa_explore.intra_op.anytime.profile_kernels import BLOCK_BITS, Profile, Usage
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
        _, begin, end, first, amounts = self.usage[:5]
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
    usages = np.concatenate([*(item.usage for item in items), np.zeros(0)])
    firsts = np.concatenate([[0], np.cumsum([len(item.usage) for item in items])]).astype(np.int64)[:-1]
    least = np.minimum.reduceat(usages, firsts) if items else np.zeros(0)
    span = np.maximum.reduceat(usages, firsts) - least if items else np.zeros(0)
    alive = MemoryLimit(items=tuple(items), limit=memory.limit, fixed_bytes=memory.fixed_bytes)
    room = memory.limit - alive.profile(least.tolist())
    most = alive.profile(span.tolist()) - memory.fixed_bytes
    times = np.array(fullest_times(alive, {item.start for item in items}), dtype=np.int64)
    times = times[most[times] > room[times]]
    if not times.size:
        # The limit never binds, or nothing that varies can help: the time with least room stands for all.
        times = np.array([int(np.argmin(room - most))] if room.size else [], dtype=np.int64)
    place = np.searchsorted(times, np.arange(len(memory.fixed_bytes) + 1))
    by_node: list[list[int]] = [[] for _ in sizes]
    for i, item in enumerate(items):
        if span[i] > 0 and place[item.end] > place[item.start]:
            by_node[item.node].append(i)
    starts, begin, end, rows, owner = [0], [], [], [], []
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
        starts.append(len(begin))
    first = np.concatenate([[0], np.cumsum([len(row) for row in rows])]).astype(np.int64)[:-1]
    begins, ends_of = np.array(begin, dtype=np.int64), np.array(end, dtype=np.int64)
    blocks = max(1, -(-len(times) // (1 << BLOCK_BITS)))
    first_block = begins >> BLOCK_BITS
    spans = ((ends_of - 1) >> BLOCK_BITS) - first_block + 1
    at_block = np.repeat(first_block, spans) + np.arange(spans.sum()) - np.repeat(np.cumsum(spans) - spans, spans)
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
        room=np.asarray(room[times]) if times.size else np.ones(1),
    )
