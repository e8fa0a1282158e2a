"""Submeshes that are divided badly are not priced, and the plan is the best one all the same."""

from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

import alpa_explore as ax
from alpa_explore.errors import InfeasiblePlanError
from alpa_explore.execution.executors import Executor
from alpa_explore.intra_op.stage.layered_graph import assign_layers
from alpa_explore.layering import cluster_operators
from alpa_explore.planner.microbatch_graph import microbatch_graph
from alpa_explore.pricing.price_book import Search
from alpa_explore.pricing.stage_costs import Screened
from alpa_explore.search import tuning
from alpa_explore.search.library import SolveContext
from alpa_explore.search.pipeline_query import PipelineQuery
from alpa_explore.search.stage_pricing import StagePricing

B = 8


@cache
def planned(model: str, cluster: str, **options: object) -> ax.Plan:
    """Several tests look at the same plan; `planned.__wrapped__` makes one anew."""
    return ax.plan(model, cluster, num_microbatches=B, num_layers=4, cache=False, scheduler="serial", **options)


CASES = (
    ("gpt-tiny", "4x2:v100", {}),
    ("gpt-tiny", "3x2:v100", {}),
    ("gpt-tiny", "6x1:v100", {"pipeline": ax.PipelineOptions(schedule="interleaved-1f1b")}),
    ("mlp-tiny", "5x2:a100", {"delta": 0.6}),
    ("gpt-tiny", "3x2:v100", {"rematerialization": "auto"}),
    ("moe-tiny", "3x2:v100", {}),
)


@pytest.mark.sweep(kept=1)
@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "cluster", "options"),
    CASES,
    ids=["four nodes", "three nodes", "interleaved", "five nodes", "recomputed", "experts"],
)
def test_the_plan_is_as_fast_as_with_everything_priced_and_no_bound_is_above_a_stage(
    model: str, cluster: str, options: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    screened = planned(model, cluster, **options)
    monkeypatch.setattr(tuning, "WELL_DIVIDED", 0.0)
    full = planned.__wrapped__(model, cluster, **options)
    assert not full.costs.screened
    assert screened.predicted.iteration_seconds == pytest.approx(full.predicted.iteration_seconds, rel=1e-9)
    _no_bound_is_above_a_stage(screened, full)
    waiting = screened.costs.screened.keys() - screened.costs.candidates.keys()
    assert len(waiting) > len(screened.costs.screened) / 2


def _no_bound_is_above_a_stage(screened: ax.Plan, full: ax.Plan) -> None:
    for cell, bounds in screened.costs.screened.items():
        known = [c.latency_seconds(1024) for c in screened.costs.candidates.get(cell, ())]
        least = min([bound.at(1 / 1024) for bound in bounds] + known)
        for candidate in full.costs.candidates.get(cell, ()):
            assert least <= candidate.latency_seconds(1024) * (1 + 1e-9)


@pytest.mark.slow
def test_bounds_of_composition_are_below_every_stage_and_above_those_of_flops(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = ax.Cluster.parse("7x2:v100")
    graph = microbatch_graph("gpt-tiny", B)
    layered = assign_layers(graph, cluster_operators(graph, 4, delta=0.5).layer_of_forward)
    query = PipelineQuery(cluster=cluster, options=ax.PipelineOptions(), num_microbatches=B)
    solving = SolveContext(solver="auto", executor=Executor("serial"), store=None)
    pricing = StagePricing((layered,), query, solving, layer_flops=(), first=Search.COMPOSED)
    pricing.begin()
    pricing.costs()
    by_flops = pricing.screened()
    assert by_flops.keys().isdisjoint(pricing.known_costs().candidates)
    library = pricing.library
    waiting = {key: library.read(key).unsampled for key in library.tasks if not library.is_sampled(key)}
    assert pricing.price([(cell, 1) for cell in by_flops])
    priced = {key: library.read(key).at_every_b() for key in waiting if library.is_sampled(key)}
    assert 0 < len(priced) < len(waiting), "of each stage the mesh with the lowest bound"
    assert all(bound.seconds > 1.1 * waiting[key].seconds for key, bound in priced.items())
    monkeypatch.setattr(tuning, "WELL_DIVIDED", 0.0)
    every = StagePricing((layered,), query, solving, layer_flops=(), first=Search.COMPOSED)
    every.begin()
    for key, bound in priced.items():
        for b in (1, B, 10**6):
            least = min(choice.totals.latency_at(1 / b) for choice in every.library.read(key).choices())
            assert bound.at(1 / b) <= least * (1 + 1e-9)


@pytest.mark.sweep(kept=0)
@pytest.mark.slow
def test_a_plan_with_a_cache_of_other_layers_is_the_plan_without_a_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ALPA_EXPLORE_CACHE", str(tmp_path))
    for layers in (4, 6, 4):
        known, alone = (
            ax.plan("gpt-tiny", "7x2:v100", num_microbatches=B, num_layers=layers, cache=cache, scheduler="serial")
            for cache in (True, False)
        )
        assert known.costs.screened
        assert (known.predicted, known.stages) == (alone.predicted, alone.stages)
        _no_bound_is_above_a_stage(known, alone)


@pytest.mark.slow
def test_a_submesh_that_every_pipeline_needs_is_priced() -> None:
    plan = planned("gpt-tiny", "3x1:v100", pipeline=ax.PipelineOptions(num_stages=1))
    assert [s.submesh for s in plan.stages] == [(3, 1)]
    assert not plan.costs.screened


@pytest.mark.slow
def test_another_b_warns_where_bounds_no_longer_exclude_what_was_not_priced() -> None:
    plan = planned("gpt-tiny", "4x2:v100")
    assert plan.costs.screened
    assert not ax.replan(plan, num_microbatches=16).warnings
    cheap = {cell: (Screened(1e-9, bound.most_held),) for cell, (bound, *_) in plan.costs.screened.items()}
    doubtful = ax.replan(replace(plan, costs=replace(plan.costs, screened=cheap)), num_microbatches=16)
    assert any("Plan anew" in warning for warning in doubtful.warnings)
    certain = ax.replan(replace(doubtful, costs=plan.costs), num_microbatches=12)
    assert not any("Plan anew" in warning for warning in certain.warnings)


@pytest.mark.slow
def test_options_that_only_stages_without_a_price_can_meet_are_planned_anew() -> None:
    plan = planned("gpt-tiny", "3x1:v100")
    one_stage = ax.PipelineOptions(num_stages=1)
    with pytest.raises(InfeasiblePlanError):
        ax.replan(plan, pipeline=one_stage, known_alone=True)
    expected = planned("gpt-tiny", "3x1:v100", pipeline=ax.PipelineOptions(num_stages=1))
    found = ax.replan(plan, pipeline=one_stage, scheduler="serial", cache=False)
    assert found.predicted.iteration_seconds == pytest.approx(expected.predicted.iteration_seconds, rel=1e-9)


@pytest.mark.slow
def test_a_file_keeps_what_was_not_priced(tmp_path: Path) -> None:
    plan = planned("gpt-tiny", "4x2:v100")
    plan.save(tmp_path / "plan.json")
    assert ax.load_plan(tmp_path / "plan.json").costs.screened == plan.costs.screened
