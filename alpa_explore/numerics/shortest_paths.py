"""Shortest paths in a graph: of all pairs (Floyd–Warshall), and from a few sources (Bellman–Ford).

Nodes and steps are numbers. All pairs take n³ additions: right for a few hundred nodes which are all used, not for
thousands of which few are.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from alpa_explore.numerics.arrays import Floats, Ints, starts


def all_pairs(single: Floats) -> Floats:
    """[from, to]: the length of the shortest path, inf where there is none. `single` holds those of single steps."""
    seconds = single.copy()
    np.fill_diagonal(seconds, 0.0)
    for k in range(len(seconds)):
        np.minimum(seconds, seconds[:, k, None] + seconds[None, k, :], out=seconds)
    return seconds


def first_steps(single: Floats) -> Ints:
    """[from, to]: the node after the first step of the shortest path; -1 where there is none."""
    seconds = single.copy()
    np.fill_diagonal(seconds, 0.0)
    first = np.where(np.isfinite(single), np.arange(len(seconds))[None, :], -1)
    for k in range(len(seconds)):
        through = seconds[:, k, None] + seconds[None, k, :]
        # Replace only if strictly better: slices are free, and replacing a step by an equal one could close a loop.
        better = through < seconds
        seconds = np.where(better, through, seconds)
        first = np.where(better, first[:, k, None], first)
    return first


@dataclass(frozen=True, slots=True, eq=False)
class Arrivals:
    """The steps by the node where they end, for searches from a few sources."""

    step: Ints
    """[node, place] -> number of a step that ends there; -1 beyond the last one."""
    start: Ints
    """[node, place] -> the node where it starts."""
    seconds: Floats
    """[node, place]; inf beyond the last one."""

    @classmethod
    def of(cls, count: int, ends: Ints, seconds: Floats) -> Arrivals:
        """Those of `count` nodes; `ends` are the nodes of each step, [2, steps]."""
        order = np.argsort(ends[1], kind="stable")
        target = ends[1][order]
        counts = np.bincount(target, minlength=count)
        place = np.arange(len(target)) - starts(counts)[target]
        shape = (count, max(1, int(counts.max(initial=0))))
        step, start, length = np.full(shape, -1), np.zeros(shape, dtype=np.int64), np.full(shape, np.inf)
        step[target, place], start[target, place], length[target, place] = order, ends[0][order], seconds[order]
        return cls(step, start, length)

    def from_sources(self, sources: Ints) -> tuple[Floats, Ints]:
        """[source, to]: the length of the shortest path, inf where there is none; and the number of its last step, -1
        where there is none."""
        seconds = np.full((len(sources), len(self.step)), np.inf)
        seconds[np.arange(len(sources)), sources] = 0.0
        last = np.full(seconds.shape, -1)
        # A round finds the paths of one more step; few are longer than twice the number of mesh axes.
        while True:
            arriving = seconds[:, self.start] + self.seconds
            best = arriving.argmin(axis=2)
            through = np.take_along_axis(arriving, best[:, :, None], axis=2)[:, :, 0]
            better = through < seconds
            if not better.any():
                return seconds, last
            seconds = np.where(better, through, seconds)
            last = np.where(better, self.step[np.arange(len(self.step)), best], last)
