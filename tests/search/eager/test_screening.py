"""Submeshes that are divided badly are not priced, and the plan is the best one all the same."""

from collections.abc import Collection
from dataclasses import replace
from pathlib import Path

import pytest

import alpa_explore as ax
from alpa_explore.errors import InfeasiblePlanError
from alpa_explore.pricing.stage_costs import RangeKey, Screened
from alpa_explore.search import tuning
from alpa_explore.search.eager.eager_pricing import EagerPricing

B = 8


def planned(model: str, cluster: str, **options: object) -> ax.Plan:
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
    full = planned(model, cluster, **options)
    assert not full.costs.screened
    assert screened.predicted.iteration_seconds == pytest.approx(full.predicted.iteration_seconds, rel=1e-9)
    for cell, bound in screened.costs.screened.items():
        assert cell not in screened.costs.candidates
        for candidate in full.costs.candidates.get(cell, ()):
            assert bound.seconds <= candidate.latency_seconds(1024) * (1 + 1e-9)


@pytest.mark.slow
def test_bounds_of_composition_are_below_every_stage_and_above_those_of_flops(monkeypatch: pytest.MonkeyPatch) -> None:
    flops: dict[RangeKey, Screened] = {}
    raise_bounds = EagerPricing.raise_bounds

    def raised(pricing: EagerPricing, submeshes: Collection[int]) -> None:
        flops.update(pricing.screened)
        raise_bounds(pricing, {submesh for _, _, submesh in flops})

    monkeypatch.setattr(EagerPricing, "raise_bounds", raised)
    bounded = planned("gpt-tiny", "7x2:v100").costs
    monkeypatch.setattr(tuning, "WELL_DIVIDED", 0.0)
    full = planned("gpt-tiny", "7x2:v100").costs
    assert bounded.screened
    assert all(bound.seconds > 1.1 * flops[cell].seconds for cell, bound in bounded.screened.items())
    for cell, bound in bounded.screened.items():
        for b in (1, B, 10**6):
            assert bound.seconds <= min(c.latency_seconds(b) for c in full.candidates[cell]) * (1 + 1e-9)


@pytest.mark.sweep(kept=0)
@pytest.mark.slow
def test_bounds_in_the_cache_are_those_of_the_same_layers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALPA_EXPLORE_CACHE", str(tmp_path))
    for layers in (4, 6, 4):
        known, alone = (
            ax.plan("gpt-tiny", "7x2:v100", num_microbatches=B, num_layers=layers, cache=cache, scheduler="serial")
            for cache in (True, False)
        )
        assert known.costs.screened
        assert known.costs.screened == alone.costs.screened
        assert known.predicted == alone.predicted


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
    cheap = {cell: Screened(1e-9, bound.most_held) for cell, bound in plan.costs.screened.items()}
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
