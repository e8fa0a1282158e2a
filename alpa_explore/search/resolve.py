"""The loop of the search: price what the pipeline DP needs to know, until it needs to know nothing more.

    costs ← lower bounds and candidates of all stages
    repeat
        pipeline ← the best pipeline by the lower bounds          (pipeline DP)
        open     ← its stages whose bound is not yet attained by a candidate
        price the open stages; their bounds rise, or candidates attain them
    until nothing is open

Every bound is below the cost of its stage, so the last pipeline is optimal: it costs what its bounds say, and any other
pipeline costs at least as much. The guarantee is as good as the bounds: a stage whose candidate is within
pricing.tuning.TOLERANCE of its bound counts as priced where memory is short.

`eager_pricing` starts with candidates of all stages, `lazy_pricing` with bounds alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from alpa_explore.pricing.stage_costs import StageCosts
from alpa_explore.search.pipeline_query import HeldStage, PipelineQuery


class Pricing(Protocol):
    """The stage costs that are known so far, and a way to improve them."""

    def costs(self) -> StageCosts:
        """The candidates known, and in `StageCosts.bounds` a lower bound for every stage that is still open."""

    def price(self, open_stages: Sequence[HeldStage]) -> None:
        """Narrow the gap of these stages: afterwards their bounds have risen, are attained, or are given up."""


def resolve(pricing: Pricing, query: PipelineQuery) -> StageCosts:
    """Stage costs with which the best pipeline of `query` has no open stage."""
    while True:
        costs = pricing.costs()
        if not costs.bounds:
            return costs
        open_stages = [(cell, held) for cell, held in query.best_stages(costs) if held in costs.bounds.get(cell, ())]
        if not open_stages:
            return costs
        pricing.price(open_stages)
