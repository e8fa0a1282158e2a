"""Stage costs for the planner: of a new plan, of another delta; and whether any pipeline fits."""

from __future__ import annotations

import math
import threading
from collections.abc import Sequence
from dataclasses import replace

from alpa_explore.errors import CancelledError
from alpa_explore.execution.executors import Executor
from alpa_explore.intra_op.stage.layered_graph import LayeredGraph
from alpa_explore.pricing.price_book import Search
from alpa_explore.pricing.tuning import TOLERANCE
from alpa_explore.search.library import SolveContext
from alpa_explore.search.pipeline_query import PipelineQuery
from alpa_explore.search.resolve import resolve, resolve_each
from alpa_explore.search.stage_pricing import Basis, NotComposableError, StagePricing
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
SOLVED_WITH = ("highspy", "numba", "numpy", "pulp", "torch")
"""Libraries whose version it depends on."""


_INCOMPLETE = (
    "Only {} stages are priced, those that the best plan with B = {} needs: with another B, the best plan may need "
    "stages that are not priced here. Plan with this delta to price all stages."
)
_GAP = "Memory is so short that a stage may have a choice that fits and is up to {:.1%} faster."
_NO_CHOICE_FITS = (
    "Memory is so short that no choice that fits was found for some stages ({}), though one may exist: there may be a "
    "better plan. Plan with this delta to search them to the end."
)


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
    few = not every_b and query.cluster.devices >= DEVICES_WORTH_BOUNDS
    first = Search.BOUNDED_WITH_CHOICES if few else Search.COMPOSED
    pricing = StagePricing(versions, query, solving, layer_flops=layer_flops, first=first)
    try:
        pricing.begin()
        costs = resolve_each(pricing, query)
        if not any(pipeline for _, pipeline in query.best_of_each(costs)):
            pricing.finish_composition()  # what is nearest to fitting is found among all stages
            costs = resolve_each(pricing, query)
    except CancelledError as error:
        error.known = pricing.profile(pricing.known_costs())
        raise
    return pricing.profile(replace(costs, screened=pricing.screened()))


def profile_on_demand(
    layered: LayeredGraph,
    query: PipelineQuery,
    *,
    basis: Basis,
    cancel: threading.Event | None = None,
    layer_flops: tuple[int, ...] = (),
) -> StageProfile | None:
    """Candidates of the stages that the best pipeline needs, as good as those of `profile_stages`, and lower bounds for
    all other stages, from the costs of another layering; None where a stage that is needed cannot be composed. Of a
    thousand stages about thirty are priced. CancelledError when cancelled."""
    try:
        pricing = _on_demand(layered, query, basis=basis, cancel=cancel, layer_flops=layer_flops)
        costs = resolve(pricing, query)
    except NotComposableError:
        return None
    gaps = pricing.gaps_within_memory()
    unfitted = {stage.cell for stage, gap in gaps if gap == math.inf}
    widest = max((gap for _, gap in gaps if gap < math.inf), default=0.0)
    warnings = (
        _INCOMPLETE.format(len(costs.candidates), query.num_microbatches),
        *((_GAP.format(widest),) if widest > TOLERANCE else ()),
        *((_NO_CHOICE_FITS.format(len(unfitted)),) if unfitted else ()),
    )
    return pricing.profile(costs, warnings)


def a_pipeline_fits(
    layered: LayeredGraph,
    query: PipelineQuery,
    *,
    layer_flops: tuple[int, ...] = (),
    cancel: threading.Event | None = None,
) -> bool | None:
    """True as soon as some pipeline of stages that were priced fits in memory, False where none can by the lower
    bounds; None where neither is known: `cancel` was set, a stage cannot be composed, or none of the choices that were
    found for some stage fits."""
    pricing = _on_demand(layered, query, cancel=cancel, layer_flops=layer_flops)
    try:
        while True:
            costs = pricing.costs()
            if query.best(costs).feasible:
                return True
            if not pricing.price(query.open_stages(costs)):
                return None if any(gap == math.inf for _, gap in pricing.gaps_within_memory()) else False
    except (CancelledError, NotComposableError):
        return None


def _on_demand(
    layered: LayeredGraph,
    query: PipelineQuery,
    *,
    cancel: threading.Event | None,
    layer_flops: tuple[int, ...],
    basis: Basis | None = None,
) -> StagePricing:
    """Stages that are priced when a pipeline wants them, in this process: few tasks, of milliseconds each."""
    solving = SolveContext(solver="auto", executor=Executor("serial"), store=None, cancel=cancel)
    return StagePricing((layered,), query, solving, layer_flops=layer_flops, first=Search.FASTEST_COMPOSED, basis=basis)
