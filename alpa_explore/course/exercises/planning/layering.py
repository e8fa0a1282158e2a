"""Exercises of lesson 04: layering."""

from __future__ import annotations

from itertools import combinations, pairwise
from random import Random
from typing import NamedTuple

import numpy as np

from alpa_explore.course.definition import Exercise, Mistake
from alpa_explore.course.kinds import Items, Number
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


def _largest_without_balance(chain: Chain) -> list[Mistake]:
    least = chain.clustered().objective_bytes
    dearer = sorted({max(chain.bytes[c - 1] for c in cuts) for cuts in chain.legal_cuts()} - {least})
    added = sum(chain.bytes[c - 1] for c in chain.clustered().cuts)
    return [
        *(Mistake(answer=cost, reason="Legal cuts cost this much, but another pair is cheaper.") for cost in dearer),
        Mistake(
            answer=chain.cheapest_anywhere(),
            reason="Those are the cheapest cuts of all, but a layer between them has more FLOPs than the limit.",
        ),
        *(
            [
                Mistake(
                    answer=added, reason="That is the sum over the cuts. Eq. 6 takes the largest: the costliest layer."
                )
            ]
            if added not in dearer
            else []
        ),
    ]


def _why_cost(chain: Chain, truth: int) -> str:
    cuts = chain.clustered().cuts
    layers = [list(part) for part in np.split(np.array(chain.flops), list(cuts))]
    sums = ", ".join(str(int(sum(layer))) for layer in layers)
    return (
        f"The mean is {sum(chain.flops)} / {chain.layers}, so a layer may have {chain.limit} FLOPs. "
        f"{len(chain.legal_cuts())} ways to cut keep the limit. The best cuts behind operators "
        f"{' and '.join(map(str, cuts))}: layers of {sums} FLOPs, and the costlier cut sends {truth} bytes."
    )


EXERCISES = (
    Exercise(
        id="04.1",
        draw=_chain,
        kind=lambda _: Number(unit="B", tolerance=0.0),
        truth=lambda chain: chain.clustered().objective_bytes,
        values={
            "steps": _why_cost,
            "all": lambda n, _: sum(n.flops),
            "ways": lambda n, _: len(n.legal_cuts()),
            "factor": lambda n, _: 1 + n.delta,
        },
        wrong=lambda chain, _: _largest_without_balance(chain),
        holds=lambda chain: chain.clustered().objective_bytes > chain.cheapest_anywhere(),
    ),
    Exercise(
        id="04.2",
        draw=_chain,
        kind=lambda _: Items(of="two operators", ordered=True),
        truth=lambda chain: chain.clustered().cuts,
        values={"largest": lambda n, _: n.clustered().objective_bytes, "factor": lambda n, _: 1 + n.delta},
        wrong=lambda chain, truth: ([cut - 1 for cut in truth],),
        holds=lambda chain: (
            sum(
                max(chain.bytes[c - 1] for c in cuts) <= chain.clustered().objective_bytes
                for cuts in chain.legal_cuts()
            )
            == 1
        ),
    ),
    Exercise(
        id="04.3",
        draw=_chain,
        kind=lambda _: Number(tolerance=0.002),
        truth=lambda chain: float(smallest_delta(list(chain.flops), chain.layers)),
        values={
            "heaviest": lambda n, truth: round((1 + truth) * sum(n.flops) / n.layers),
            "all": lambda n, _: sum(n.flops),
            "mean": lambda n, _: sum(n.flops) / n.layers,
        },
        wrong=lambda chain, truth: (1 + truth, (1 + truth) * sum(chain.flops) / chain.layers),
        holds=lambda chain: smallest_delta(list(chain.flops), chain.layers) > 0,
    ),
)
"""In the order of their ids."""
