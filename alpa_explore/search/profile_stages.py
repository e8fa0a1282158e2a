"""Stage costs for the planner: of all stages, of those alone that pipelines want; and whether any pipeline fits."""

from __future__ import annotations

import math
import threading
from collections.abc import Sequence
from dataclasses import replace

from alpa_explore.errors import CancelledError
from alpa_explore.execution.executors import Executor
from alpa_explore.intra_op.stage.layered_graph import LayeredGraph
from alpa_explore.pricing.price_book import Search
from alpa_explore.pricing.tuning import PROVEN, TOLERANCE
from alpa_explore.search.library import SolveContext
from alpa_explore.search.pipeline_query import PipelineQuery
from alpa_explore.search.resolve import resolve, resolve_each
from alpa_explore.search.stage_pricing import NotComposableError, StagePricing
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
_GAP = (
    "The best plan is not proven, because memory is short or a stage is very large: another one may be up to {:.1%} "
    "faster."
)


def profile_stages(
    versions: Sequence[LayeredGraph],
    query: PipelineQuery,
    solving: SolveContext,
    *,
    layer_flops: tuple[int, ...] = (),
    every_b: bool | None = None,
) -> StageProfile:
    """Candidates of every layer range on every submesh, in every version of one layering.

    The stages of the best pipeline of `query` are optimal, or, where memory is short, within pricing.tuning.TOLERANCE
    of the optimum, like all other stages. Each stage takes the fastest version that fits. Unless the plans for
    `every_b` are wanted from these costs (None: unless the cluster is large), the stages that no best pipeline of
    `query` can contain have their fastest choices and a bound alone (`StageCosts.screened`). CancelledError when
    cancelled, with the profile of what is known (`CancelledError.known`); the solves that were finished are in the
    cache.
    """
    first = _first(query, every_b)
    pricing = StagePricing(versions, query, solving, layer_flops=layer_flops, first=first)
    try:
        pricing.begin()
        costs = resolve_each(pricing, query)
        if not any(pipeline for _, pipeline in query.best_of_each(costs)):
            pricing.finish_composition()  # what is nearest to fitting is found among all stages
            costs = resolve_each(pricing, query)
        pricing.price_turns(costs, first)
        costs = pricing.costs()
    except CancelledError as error:
        error.known = pricing.profile(pricing.known_costs())
        raise
    gap = pricing.gap()
    unproven = [_GAP.format(gap)] if TOLERANCE < gap < math.inf else []  # inf: no plan
    return pricing.profile(replace(costs, screened=pricing.screened()), unproven)


def unpriced_stages(
    versions: Sequence[LayeredGraph],
    query: PipelineQuery,
    solving: SolveContext,
    *,
    layer_flops: tuple[int, ...] = (),
    whole_meshes: bool = False,
) -> StagePricing:
    """All stages with their lower bounds; those that a pipeline wants are priced on demand, or with `whole_meshes` all
    on their meshes. No solver is asked for choices that fit."""
    return StagePricing(versions, query, solving, layer_flops=layer_flops, first=None, whole_meshes=whole_meshes)


def profile_wanted(
    pricing: StagePricing, *, below: float = math.inf, proven: bool = True
) -> tuple[float, StageProfile | None]:
    """(lower bound on T of every pipeline in seconds, candidates of the stages of `unpriced_stages` that the best ones
    want, and of those that their submeshes run in turn): of a thousand stages about thirty. The best pipeline of these
    is as good as with those of `profile_stages`; where it is not `proven` it may be slower where memory is short.

    No candidates where the bound exceeds `below` seconds, a stage cannot be composed, or a proof that is asked for is
    missing: then `profile_stages` is to be asked. CancelledError as from there."""
    query = pricing.query
    bounds, bound = dict.fromkeys(query.of_depths(pricing.num_layers), 0.0), 0.0
    try:
        while True:
            costs = pricing.costs(given_up=True)
            # The bound of a schedule only rises: the lowest one that is up to date is the lowest of all.
            known = set[tuple[PipelineQuery, bool]]()
            while (best := min(bounds, key=lambda asked: bounds[asked])) not in known:
                bounds[best] = best[0].least_seconds(costs, alone=best[1])
                known.add(best)
            bound = bounds[best] * (1.0 - PROVEN)
            if bound > below:
                return bound, None
            if not pricing.price(best[0].open_stages(costs.of_depth(alone=best[1]))):
                # Without a proof by a solver, leaner choices for turns: the fastest often do not fit together.
                pricing.price_turns(resolve_each(pricing, query), _first(query) if proven else Search.COMPOSED)
                if proven and pricing.gap() > TOLERANCE:
                    return bound, None
                costs = pricing.costs()
                warning = _INCOMPLETE.format(len(costs.candidates), query.num_microbatches)
                return bound, pricing.profile(costs, [warning])
    except NotComposableError:
        return bound, None
    except CancelledError as error:
        error.known = pricing.profile(pricing.known_costs())
        raise


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
    # In this process: few tasks, of milliseconds each.
    solving = SolveContext(solver="auto", executor=Executor("serial"), store=None, cancel=cancel)
    pricing = unpriced_stages((layered,), query, solving, layer_flops=layer_flops)
    try:
        costs = resolve(pricing, query, enough=lambda costs: query.best(costs).feasible)
    except (CancelledError, NotComposableError):
        return None
    if query.best(costs).feasible:
        return True
    return None if pricing.gap() == math.inf else False


def _first(query: PipelineQuery, every_b: bool | None = None) -> Search:
    """The choices that stages get first: those for this B alone where not `every_b` is asked for."""
    few = query.cluster.devices >= DEVICES_WORTH_BOUNDS if every_b is None else not every_b
    return Search.FASTEST_COMPOSED if few else Search.COMPOSED
