"""The loop of the search: price the stages of the best pipeline by the lower bounds, until its costs are proven.

    costs ← lower bounds and candidates of all stages
    repeat
        pipeline ← the best pipeline by the lower bounds          (pipeline DP)
        open     ← its stages with a gap between their lower bound and their fastest candidate that fits
        price the open stages: their bounds rise, or candidates attain them
    until no stage of the pipeline is open

The loop ends early where a pipeline is known, under another schedule, that none of this one can beat.

The last pipeline is optimal: it costs what its lower bounds say, and every other pipeline costs at least its own
bounds, which are no less. Where memory is short, a stage counts as priced when its candidate is within
pricing.tuning.TOLERANCE of its bound, so the pipeline is optimal to within that tolerance.

`eager_pricing` starts with candidates of all stages, `lazy_pricing` with bounds alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Protocol

from alpa_explore.pricing.stage_costs import StageCosts
from alpa_explore.search.pipeline_query import HeldStage, PipelineQuery


class Pricing(Protocol):
    """The stage costs that are known so far, and a way to improve them."""

    def costs(self) -> StageCosts:
        """The candidates so far, and a lower bound for every stage that is still open, in `StageCosts.bounds` or
        `StageCosts.screened`."""

    def price(self, open_stages: Sequence[HeldStage]) -> None:
        """Narrow the gap of these stages: raise their bounds, find candidates that attain them, or give them up."""


def resolve(
    pricing: Pricing,
    query: PipelineQuery,
    *,
    below: float = math.inf,
    price: Callable[[Sequence[HeldStage]], bool] | None = None,
) -> StageCosts:
    """Stage costs with which the best pipeline of `query` has no open stage, or no pipeline of it takes less than
    `below` seconds.

    `price`, where given, prices only some of the open stages; the loop ends where it says that it priced none.
    """
    while True:
        costs = pricing.costs()
        if not costs.bounds and not costs.screened:
            return costs
        if below < math.inf and query.bound(costs) >= below:
            return costs
        open_stages = query.open_stages(costs)
        if not open_stages:
            return costs
        if price is None:
            pricing.price(open_stages)
        elif not price(open_stages):
            return costs
