"""The figure of a plan beside its baselines, by its data."""

from dataclasses import replace

import pytest

from alpa_explore.figures.comparisons.baselines import baselines_figure, comparison_table
from alpa_explore.plans.plan import Plan
from tests.plans.example import example_plan


@pytest.fixture(scope="module")
def plans() -> list[Plan]:
    plan = example_plan()
    slower = replace(plan.predicted, iteration_seconds=1.5 * plan.predicted.iteration_seconds)
    named = replace(plan.options, baseline="zero-3 (<b>all</b>)")
    return [plan, replace(plan, predicted=slower, options=named)]


def test_bars_show_both_parts_of_the_iteration_and_the_memory(plans: list[Plan]) -> None:
    figure = baselines_figure(plans)
    once, waiting, memory = figure.data
    first = plans[0].predicted
    unit = figure.layout.xaxis.title.text
    scale = {"s": 1.0, "ms": 1e-3}[unit]
    assert (once.x[0] + waiting.x[0]) * scale == pytest.approx(first.iteration_seconds)
    assert memory.x[0] == pytest.approx(first.peak_bytes_per_device / 2**30)
    assert once.marker.pattern.shape == "/", "colour is not the only sign"


def test_the_title_names_the_best_baseline_and_names_are_escaped(plans: list[Plan]) -> None:
    figure = baselines_figure(plans)
    assert "takes 50 % longer than the automatic plan" in figure.layout.title.text
    assert figure.data[0].y[1] == "zero-3 (&lt;b&gt;all&lt;/b&gt;)"
    assert "as long as" in baselines_figure([plans[0], plans[0]]).layout.title.text
    assert "no other plan" in baselines_figure(plans[:1]).layout.title.text


def test_the_table_compares_with_the_first_plan(plans: list[Plan]) -> None:
    assert [row["times_first"] for row in comparison_table(plans)] == [1.0, 1.5]
