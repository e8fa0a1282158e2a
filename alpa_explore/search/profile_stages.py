"""Stage costs for a new plan: candidates of every feasible stage; those of the best pipeline are proven."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from alpa_explore.errors import CancelledError
from alpa_explore.intra_op.stage.layered_graph import LayeredGraph
from alpa_explore.pricing.stage_costs import StageCosts
from alpa_explore.search.eager.eager_pricing import EagerPricing, SolveContext
from alpa_explore.search.eager.version_pricing import VersionPricing
from alpa_explore.search.pipeline_query import PipelineQuery
from alpa_explore.search.resolve import resolve
from alpa_explore.search.stage_profile import StageProfile
from alpa_explore.search.tuning import DEVICES_WORTH_BOUNDS, SLOWER_SCHEDULE

SOLVED_BY = (
    "arguments.py",
    "cluster",
    "cost",
    "errors.py",
    "execution",
    "graph",
    "inter_op",
    "intra_op",
    "layering",
    "models",
    "numerics",
    "pricing",
    "schedules",
    "search",
    "sharding",
    "store",
    "tracing",
    "units.py",
)
"""Packages whose code a cached solve depends on; tracing and models, because discovery runs operators through
them."""
SOLVED_WITH = ("highspy", "numba", "numpy", "pulp", "torch")
"""Libraries whose version it depends on."""


def profile_stages(
    versions: Sequence[LayeredGraph],
    query: PipelineQuery,
    solving: SolveContext,
    *,
    layer_flops: tuple[int, ...] = (),
    every_b: bool = False,
) -> StageProfile:
    """Candidates of every layer range on every submesh, in every version of one layering.

    The stages of the best pipeline of `query` are optimal, or, where memory is short, within pricing.tuning.TOLERANCE
    of the optimum, like all other stages. Each stage takes the fastest version that fits. On large clusters the stages
    that no best pipeline of `query` can contain have their fastest choices and a bound alone (`StageCosts.screened`),
    unless the plans for `every_b` are wanted from these costs. CancelledError when cancelled, with the profile of what
    is known (`CancelledError.known`); the solves that were finished are in the cache.
    """
    bound_first = not every_b and query.cluster.devices >= DEVICES_WORTH_BOUNDS
    parts = [EagerPricing(layered, query, solving, layer_flops, bound_first=bound_first) for layered in versions]
    pricing = parts[0] if len(parts) == 1 else VersionPricing(parts)
    try:
        pricing.begin()
        costs = _under_each_schedule(pricing, query)
        if not any(pipeline for _, pipeline in query.best_of_each(costs)):
            pricing.compose_deferred()  # what is nearest to fitting is found among all stages
            costs = _under_each_schedule(pricing, query)
    except CancelledError as error:
        error.known = pricing.profile(pricing.known_costs())
        raise
    screened = {cell: costs.screened.get(cell, bound).weakest(bound) for cell, bound in pricing.bounded().items()}
    return pricing.profile(replace(costs, screened={**costs.screened, **screened}))


def _under_each_schedule(pricing: EagerPricing | VersionPricing, query: PipelineQuery) -> StageCosts:
    """Stage costs with which the best pipeline under the best schedule has no open stage.

    Schedules are followed in the order of their lower bounds, each as long as that bound says that it may be faster
    than what is known of another. This is done first without searches within memory, which take longest: what is known
    by then often shows that a schedule is slower before they run for it.
    """
    costs = pricing.costs()
    each = query.each(costs.num_layers)
    for price in (pricing.price_without_memory, None) if len(each) > 1 else (None,):
        known = {asked: asked.best(costs).total_seconds for asked in each}
        bounds = {asked: asked.bound(costs) for asked in each}
        for asked in sorted(each, key=lambda asked: bounds[asked]):
            least = min((seconds for other, seconds in known.items() if other != asked), default=math.inf)
            costs = resolve(pricing, asked, below=(1.0 + SLOWER_SCHEDULE) * least, price=price)
            known[asked] = asked.best(costs).total_seconds
    return costs
