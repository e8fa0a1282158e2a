"""Exercises of lesson 04: layering."""

from __future__ import annotations

from itertools import combinations, pairwise
from random import Random
from typing import NamedTuple

import numpy as np

from alpa_explore.layering.balance import flops_limit, smallest_delta
from alpa_explore.layering.crossing import Crossing
from alpa_explore.layering.dp import Clustering, solve


class Chain(NamedTuple):
    """Operators in a row, each read by the next."""

    flops: tuple[int, ...]
    bytes: tuple[int, ...]
    """Behind each operator but the last."""
    layers: int
    delta: float

    @property
    def limit(self) -> int:
        """Most FLOPs of a layer."""
        return flops_limit(sum(self.flops), self.layers, self.delta)

    def clustered(self) -> Clustering:
        """By Eq. 6."""
        crossings = [Crossing(producer=i, readers=(i + 1,), bytes=size) for i, size in enumerate(self.bytes)]
        return solve(np.array(self.flops), crossings, self.layers, self.delta)

    def legal_cuts(self) -> list[tuple[int, ...]]:
        """Every way to cut within the limit."""
        return [cuts for cuts in combinations(range(1, len(self.flops)), self.layers - 1) if self._largest(cuts)]

    def _largest(self, cuts: tuple[int, ...]) -> bool:
        ends = (0, *cuts, len(self.flops))
        return all(sum(self.flops[a:b]) <= self.limit for a, b in pairwise(ends))

    def cheapest_anywhere(self) -> int:
        """The costliest of the cheapest cuts, without the limit."""
        return sorted(self.bytes)[self.layers - 2]

    @property
    def dearer(self) -> list[int]:
        """What legal cuts cost that are not the best."""
        costs = {max(self.bytes[c - 1] for c in cuts) for cuts in self.legal_cuts()}
        return sorted(costs - {self.clustered().objective_bytes})

    @property
    def added(self) -> int:
        """The sum over the best cuts."""
        return sum(self.bytes[c - 1] for c in self.clustered().cuts)

    @property
    def table(self) -> str:
        """The chain in words."""
        return f"FLOPs {list(self.flops)}, bytes behind the first to the last but one {list(self.bytes)}"


def _chain(random: Random) -> Chain:
    """A chain whose cheapest cuts are too unequal, so that the limit matters."""
    while True:
        flops = tuple(random.choice((2, 3, 4, 6, 8)) for _ in range(7))
        sizes = random.sample((10, 20, 30, 40, 50, 60, 70, 80, 90), 6)
        chain = Chain(flops=flops, bytes=tuple(sizes), layers=3, delta=0.25)
        cuts = chain.legal_cuts()
        costs = sorted(max(chain.bytes[c - 1] for c in places) for places in cuts)
        unequal = smallest_delta(list(flops), chain.layers) > 0
        if unequal and len(cuts) >= 3 and costs[0] > chain.cheapest_anywhere() and costs.count(costs[0]) == 1:
            return chain


def _why_cost(chain: Chain, truth: int) -> str:
    cuts = chain.clustered().cuts
    layers = [list(part) for part in np.split(np.array(chain.flops), list(cuts))]
    sums = ", ".join(str(int(sum(layer))) for layer in layers)
    return (
        f"The mean is {sum(chain.flops)} / {chain.layers}, so a layer may have {chain.limit} FLOPs. "
        f"{len(chain.legal_cuts())} ways to cut keep the limit. The best cuts behind operators "
        f"{' and '.join(map(str, cuts))}: layers of {sums} FLOPs, and the costlier cut sends {truth} bytes."
    )
