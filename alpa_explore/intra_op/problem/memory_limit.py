"""A limit on the memory that a choice may hold at any time: what Eq. 1 lacks.

    for every time t:    Σ_(items i alive at t) usage_i[s_(node of i)]  ≤  limit

An item is memory that a node holds from `start` until before `end`; a node may have several (weights for ever, a
temporary for a moment). This is the memory of the IOPDDL contest, with one item a node.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from alpa_explore.numerics.arrays import Floats, Ints

FITS = 1e-9
"""Share of the limit by which a sum of floats may exceed it and still be called equal."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Item:
    """Memory of one node; alive at the times start ≤ t < end."""

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
    taken: Floats
    """Bytes that are taken at each time whatever is chosen, shape [times]; no item ends later."""

    @staticmethod
    def of(items: Sequence[Item], limit: float) -> MemoryLimit:
        """The limit on `items` alone."""
        times = max((item.end for item in items), default=0)
        return MemoryLimit(items=tuple(items), limit=limit, taken=np.zeros(times))

    def profile(self, amounts: Sequence[float]) -> Floats:
        """Bytes at each time, shape [times], where item i takes `amounts[i]`."""
        change = np.zeros(len(self.taken) + 1)
        for item, amount in zip(self.items, amounts, strict=True):
            change[item.start] += amount
            change[item.end] -= amount
        return np.asarray(self.taken + change.cumsum()[:-1])

    def peak(self, choices: Sequence[int]) -> float:
        """The most bytes that a choice holds at any time."""
        return _highest(self.profile([float(item.usage[choices[item.node]]) for item in self.items]))

    def allows(self, choices: Sequence[int]) -> bool:
        """True when a choice stays within the limit."""
        return self.peak(choices) <= self.limit * (1 + FITS)

    def least_peak(self) -> float:
        """A lower bound on the peak of every choice: each item as small as it can be."""
        return _highest(self.profile([float(item.usage.min(initial=np.inf)) for item in self.items]))

    def restricted(self, kept: Sequence[Ints]) -> MemoryLimit:
        """The same limit where node v has only the strategies kept[v]."""
        return MemoryLimit(
            items=tuple(Item(node=i.node, start=i.start, end=i.end, usage=i.usage[kept[i.node]]) for i in self.items),
            limit=self.limit,
            taken=self.taken,
        )

    def on(self, nodes: Sequence[int]) -> MemoryLimit:
        """The limit for a problem on `nodes` alone, in that order; the items of the others must be the same for every
        strategy, and count as taken."""
        place = {v: i for i, v in enumerate(nodes)}
        gone = [0.0 if item.node in place else float(item.usage[0]) for item in self.items]
        return MemoryLimit(
            items=tuple(
                Item(node=place[i.node], start=i.start, end=i.end, usage=i.usage) for i in self.items if i.node in place
            ),
            limit=self.limit,
            taken=self.profile(gone),
        )

    def possible(self, alive: Sequence[np.ndarray[tuple[int, ...], np.dtype[np.bool_]]]) -> list[int]:
        """Strike from `alive` every strategy that overflows though all others take the least; the nodes changed."""
        least = [float(item.usage[alive[item.node]].min(initial=np.inf)) for item in self.items]
        held = self.profile(least)
        changed = []
        for item, smallest in zip(self.items, least, strict=True):
            if item.end <= item.start:
                continue
            room = self.limit * (1 + FITS) - held[item.start : item.end].max() + smallest
            good = alive[item.node] & (item.usage <= room)
            if good.sum() < alive[item.node].sum():
                alive[item.node][:] = good
                changed.append(item.node)
        return changed


def _highest(profile: Floats) -> float:
    return float(profile.max()) if profile.size else 0.0
