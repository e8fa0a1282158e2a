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

`stage_pricing` starts with candidates of all stages, or with bounds alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol

from alpa_explore.pricing.stage_costs import StageCosts
from alpa_explore.search.pipeline_query import HeldStage, PipelineQuery
from alpa_explore.search.tuning import SLOWER_SCHEDULE


class Pricing(Protocol):
    """The stage costs that are known so far, and a way to improve them."""

    def costs(self) -> StageCosts:
        """The candidates so far, and a lower bound for every stage that is still open, in `StageCosts.bounds`."""

    def price(self, open_stages: Sequence[HeldStage], *, gap: Callable[[], float], within_memory: bool = True) -> bool:
        """Narrow the gap of these stages: raise their bounds, find candidates that attain them, or give them up, as
        where the `gap` of the pipeline is small. Whether there was one for which that is done, which may need a search
        within memory."""


def resolve(
    pricing: Pricing,
    query: PipelineQuery,
    *,
    enough: Callable[[StageCosts], bool] = lambda _: False,
    within_memory: bool = True,
) -> StageCosts:
    """Stage costs with which the best pipeline of `query` has no open stage, or that are `enough`.

    The loop also ends where the open stages need a search that it does without.
    """
    while True:
        costs = pricing.costs()
        if not costs.bounds or enough(costs):
            return costs
        open_stages = query.open_stages(costs)
        gap = partial(query.gap, costs)
        if not open_stages or not pricing.price(open_stages, gap=gap, within_memory=within_memory):
            return costs


def resolve_each(pricing: Pricing, query: PipelineQuery) -> StageCosts:
    """Stage costs with which the best pipeline under the best schedule has no open stage.

    Schedules are followed in the order of their lower bounds, each as long as that bound says that it may be faster
    than what is known of another. This is done first without searches within memory, which take longest: what is known
    by then often shows that a schedule is slower before they run for it.
    """
    costs = pricing.costs()
    each = query.each(costs.num_layers)
    for within_memory in (False, True) if len(each) > 1 else (True,):
        known = {asked: asked.best(costs).total_seconds for asked in each}
        bounds = {asked: asked.bound(costs) for asked in each}
        for asked in sorted(each, key=lambda asked: bounds[asked]):
            least = min((seconds for other, seconds in known.items() if other != asked), default=math.inf)
            below = (1.0 + SLOWER_SCHEDULE) * least / asked.least_share
            slower = partial(is_slower, asked, below)
            costs = resolve(pricing, asked, enough=slower, within_memory=within_memory)
            known[asked] = asked.best(costs).total_seconds
    return costs


def is_slower(query: PipelineQuery, below: float, costs: StageCosts) -> bool:
    """Whether no pipeline of the query takes less than so many seconds."""
    return below < math.inf and query.bound(costs) >= below
