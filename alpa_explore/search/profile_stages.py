"""Stage costs for a new plan: candidates of every feasible stage; those of the best pipeline are proven."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from alpa_explore.errors import CancelledError
from alpa_explore.inter_op.pipeline_dp import NEAR
from alpa_explore.intra_op.stage.layered_graph import LayeredGraph
from alpa_explore.pricing.stage_costs import StageCosts
from alpa_explore.search.eager.eager_pricing import EagerPricing, Solving
from alpa_explore.search.eager.version_pricing import VersionPricing
from alpa_explore.search.pipeline_query import PipelineQuery
from alpa_explore.search.resolve import resolve
from alpa_explore.search.stage_profile import StageProfile
from alpa_explore.search.tuning import DEVICES_WORTH_BOUNDS

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
SOLVED_WITH = ("highspy", "numba", "numpy", "pulp", "pytoulbar2", "torch")
"""Libraries whose version it depends on."""


def profile_stages(
    versions: Sequence[LayeredGraph],
    query: PipelineQuery,
    solving: Solving,
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
        costs = resolve(pricing, query)
        if not query.best(costs).feasible:  # what is nearest to fitting is found among all stages
            pricing.compose_deferred()
            costs = resolve(pricing, query)
        costs = _under_other_schedules(pricing, query, costs)
    except CancelledError as error:
        error.known = pricing.profile(pricing.known_costs())
        raise
    screened = {cell: costs.screened.get(cell, bound).or_better(bound) for cell, bound in pricing.bounded().items()}
    return pricing.profile(replace(costs, screened={**costs.screened, **screened}))


def _under_other_schedules(
    pricing: EagerPricing | VersionPricing, query: PipelineQuery, costs: StageCosts
) -> StageCosts:
    """`costs` with which the best pipeline under the best schedule has no open stage, too. A schedule whose pipelines
    are all slower by their lower bounds is passed over."""
    first, *others = query.each(costs.num_layers)
    least = first.best(costs).total_seconds
    bounds = {other: other.bound(costs) for other in others}
    for other in sorted(bounds, key=lambda asked: bounds[asked]):
        # What is minimised counts sends as if nothing ran beside them, so it may be near T alone.
        if bounds[other] < (1.0 + NEAR) * least:
            costs = resolve(pricing, other)
            least = min(least, other.best(costs).total_seconds)
    return costs
