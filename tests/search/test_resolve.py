"""The loop of the search: when it ends, and which stages it has priced."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

import pytest

from alpa_explore.cluster import Cluster, Submesh, logical_meshes
from alpa_explore.inter_op.options import PipelineOptions
from alpa_explore.pricing.stage_costs import StageCandidate, StageCosts
from alpa_explore.search.pipeline_query import HeldStage, PipelineQuery
from alpa_explore.search.resolve import is_slower, resolve, resolve_each

CLUSTER = Cluster.parse("1x2:v100")
ONE = Submesh(1, 1)
(MESH,) = logical_meshes(CLUSTER, ONE)
B = 4


def candidate(seconds: float, activation_bytes: float) -> StageCandidate:
    return StageCandidate(
        logical_mesh=MESH,
        microbatch_seconds=seconds,
        iteration_seconds=0.0,
        weight_bytes=0.0,
        activation_bytes=activation_bytes,
        workspace_bytes=0.0,
        solution_key="",
    )


def costs_of(*, of_each: Sequence[StageCandidate], bound: float | None = None, least_held: int = 1) -> StageCosts:
    """Four layers, two to a stage on one device each; with a bound from so many microbatches held on."""
    stages = ((0, 1, 0), (2, 3, 0))
    return StageCosts(
        num_layers=4,
        submeshes=(ONE,),
        device_memory_bytes=100,
        candidates=dict.fromkeys(stages, tuple(of_each)),
        bounds={} if bound is None else {stage: dict.fromkeys(range(least_held, 5), bound) for stage in stages},
    )


class Priced:
    """Records what is asked, and proves it."""

    def __init__(self, costs: StageCosts) -> None:
        self.now, self.asked = costs, list[HeldStage]()

    def costs(self) -> StageCosts:
        return self.now

    def price(self, open_stages: Sequence[HeldStage], *, gap: Callable[[], float], within_memory: bool = True) -> bool:
        self.asked += open_stages
        if within_memory:
            self.now = replace(self.now, bounds={})
        return within_memory


def query(schedule: str = "1f1b") -> PipelineQuery:
    return PipelineQuery(cluster=CLUSTER, options=PipelineOptions(schedule=schedule), num_microbatches=B)


def test_stages_of_the_best_pipeline_by_the_bounds_are_priced_until_it_cannot_be_better_than_what_is_known() -> None:
    costs = costs_of(of_each=[candidate(2.0, 10.0)], bound=1.0)
    least = query().bound(costs)
    assert 0.0 < least < query().best(costs).total_seconds
    for below, asked in ((float("inf"), 2), (least * 1.001, 2), (least, 0)):
        pricing = Priced(costs)
        resolve(pricing, query(), enough=partial(is_slower, query(), below))
        assert len(pricing.asked) == asked


def test_pricing_of_a_part_ends_where_it_prices_nothing() -> None:
    pricing = Priced(costs_of(of_each=[candidate(2.0, 10.0)], bound=1.0))
    assert resolve(pricing, query(), within_memory=False).bounds
    assert len(pricing.asked) == 2, "they are asked for once"


@pytest.mark.parametrize("bound", [None, 2.0, 1.0])
def test_no_pipeline_is_better_than_the_bounds_where_a_stage_holds_a_part_of_a_microbatch(bound: float | None) -> None:
    """Interleaved with two turns, the first of two stages holds 2.5 microbatches: 100 bytes, where 3 would be 120."""
    asked = query("interleaved-1f1b")
    assert asked.options.terms(B).held(2, 2) == 2.5
    costs = costs_of(of_each=[candidate(2.0, 40.0), candidate(3.0, 1.0)], bound=bound, least_held=3)
    best = asked.best(costs)
    assert best.t_max_seconds == 2.0
    assert asked.bound(costs) <= best.total_seconds
    # A stage is open where its bound is below what fits, and not where it holds three.
    assert bool(asked.open_stages(costs)) == (bound == 1.0)


@pytest.mark.parametrize(("above", "compared"), [(1.03, True), (1.08, False)])
def test_a_schedule_whose_stages_take_turns_is_compared_where_its_objective_is_a_little_above_that_of_another(
    above: float, compared: bool
) -> None:
    """Fault of 0.1.0: T may be below the objective there, as each stage that takes a turn has a choice of its own."""
    asked = PipelineQuery(cluster=Cluster.parse("1x2:h100"), options=PipelineOptions(num_stages=2), num_microbatches=B)
    one, in_turns = asked.each(4)
    fits = candidate(2.0, 45.0)  # with two microbatches held, not with the three of stages that take turns
    known = one.best(costs_of(of_each=[fits])).total_seconds
    bounds = (costs_of(of_each=[fits], bound=0.01 * n, least_held=3) for n in range(1, 400))
    pricing = Priced(next(costs for costs in bounds if in_turns.bound(costs) >= above * known))
    resolve_each(pricing, asked)
    assert bool(pricing.asked) == compared
