"""A limit on the memory that a choice may hold at any time, which Eq. 1 of the paper does not have.

    for every time t:    Σ_(items i alive at t) usage_i[s_(node of i)]  ≤  limit

An item is memory that a node holds from `start` until just before `end`; a node may have several (its weights all the
time, a temporary for a moment). The IOPDDL contest has the same limit with one item per node.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from alpa_explore.numerics.arrays import Flags, Floats, Ints

LIMIT_TOLERANCE = 1e-9
"""A sum of bytes still fits when it exceeds the limit by this share of it: sums of floats are rounded. Set by hand."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Item:
    """Memory of one node, alive at the times start ≤ t < end."""

    node: int
    start: int
    end: int
    usage: Floats
    """Bytes for each strategy of the node."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class MemoryLimit:
    """All items, and the bytes that they may take together."""

    items: tuple[Item, ...]
    limit: float
    fixed_bytes: Floats
    """Bytes that every choice holds at each time, beside the items, shape [times]; no item ends after the last time."""

    @staticmethod
    def of(items: Sequence[Item], limit: float) -> MemoryLimit:
        """The limit on `items` alone, with no fixed bytes."""
        times = max((item.end for item in items), default=0)
        return MemoryLimit(items=tuple(items), limit=limit, fixed_bytes=np.zeros(times))

    def profile(self, amounts: Sequence[float]) -> Floats:
        """Bytes at each time, shape [times], where item i takes `amounts[i]`."""
        change = np.zeros(len(self.fixed_bytes) + 1)
        for item, amount in zip(self.items, amounts, strict=True):
            change[item.start] += amount
            change[item.end] -= amount
        return np.asarray(self.fixed_bytes + change.cumsum()[:-1])

    def peak(self, choices: Sequence[int]) -> float:
        """The most bytes that a choice holds at any time."""
        return _highest(self.profile([float(item.usage[choices[item.node]]) for item in self.items]))

    def allows(self, choices: Sequence[int]) -> bool:
        """True when a choice stays within the limit, up to rounding."""
        return self.peak(choices) <= self.limit * (1 + LIMIT_TOLERANCE)

    def least_peak(self) -> float:
        """A lower bound on the peak of every choice: every item at its smallest."""
        return _highest(self.profile([float(item.usage.min(initial=np.inf)) for item in self.items]))

    def restricted(self, kept: Sequence[Ints]) -> MemoryLimit:
        """The same limit where node v has only the strategies `kept[v]`."""
        return MemoryLimit(
            items=tuple(Item(node=i.node, start=i.start, end=i.end, usage=i.usage[kept[i.node]]) for i in self.items),
            limit=self.limit,
            fixed_bytes=self.fixed_bytes,
        )

    def on_nodes(self, nodes: Sequence[int]) -> MemoryLimit:
        """The limit for the problem on `nodes` alone, numbered in that order.

        Items of other nodes must have the same usage for every strategy; they become fixed bytes.
        """
        position = {v: i for i, v in enumerate(nodes)}
        removed = [0.0 if item.node in position else float(item.usage[0]) for item in self.items]
        return MemoryLimit(
            items=tuple(
                Item(node=position[i.node], start=i.start, end=i.end, usage=i.usage)
                for i in self.items
                if i.node in position
            ),
            limit=self.limit,
            fixed_bytes=self.profile(removed),
        )

    def drop_overflowing(self, alive: Sequence[Flags]) -> list[int]:
        """Clear `alive[v][k]` where strategy k of node v overflows even when every other item is at its smallest.

        Returns the nodes that lost strategies.
        """
        least = [float(item.usage[alive[item.node]].min(initial=np.inf)) for item in self.items]
        held = self.profile(least)
        changed = []
        for item, smallest in zip(self.items, least, strict=True):
            if item.end <= item.start:
                continue
            others = held[item.start : item.end].max()
            room = self.limit * (1 + LIMIT_TOLERANCE) - others + smallest
            fitting = alive[item.node] & (item.usage <= room)
            if fitting.sum() < alive[item.node].sum():
                alive[item.node][:] = fitting
                changed.append(item.node)
        return changed


def _highest(profile: Floats) -> float:
    return float(profile.max()) if profile.size else 0.0
