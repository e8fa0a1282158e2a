"""Two plans beside each other, by the figure's data."""

from __future__ import annotations

from itertools import pairwise

import pytest

from alpa_explore.figures.comparisons.compare import compare_figure, compare_sentence, compare_table
from alpa_explore.planner.replan import replan
from alpa_explore.plans.plan import Plan
from tests.plans.example import example_plan


@pytest.fixture(scope="module")
def other() -> Plan:
    return example_plan(num_layers=4)


def bars(figure, row):
    return [t for t in figure.data if t.y[0] == row]


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_the_stages_of_both_plans_cover_the_model_once(plan, other, theme) -> None:
    figure = compare_figure(plan, other, theme, other_name="pinned <b>")
    for shown, name in ((other, "pinned &lt;b&gt;"), (plan, "this plan")):
        stages = [t for t in bars(figure, name) if t.base is not None]
        assert len(stages) == len(shown.stages)
        assert stages[0].base[0] == 0
        for before, after in pairwise(stages):
            assert after.base[0] == pytest.approx(before.base[0] + before.x[0])
        assert stages[-1].base[0] + stages[-1].x[0] == pytest.approx(100)


def test_parts_of_the_time_add_up_to_an_iteration_or_where_batches_differ_to_a_sample(plan, other) -> None:
    for beside in (other, replan(plan, num_microbatches=64)):
        figure = compare_figure(plan, beside)
        unit = figure.layout.xaxis2.title.text
        scale = {"s": 1.0, "ms": 1e-3}[unit.partition("(")[2].rstrip(")")]
        of = 1 if beside is other else plan.global_batch
        assert ("a sample" in unit) == (beside is not other)
        parts = [t for t in bars(figure, "the other plan") if t.base is None]
        assert sum(t.x[1] for t in parts) * scale == pytest.approx(plan.predicted.iteration_seconds / of)


def test_the_sentence_names_the_settings_that_differ_and_the_change_of_the_time(plan) -> None:
    twice = replan(plan, num_microbatches=2 * plan.options.num_microbatches)
    sentence = compare_sentence(plan, twice, other_name="the pinned plan")
    assert "B 64 → 32" in sentence
    assert "A sample takes" in sentence
    assert "more than the" in sentence
    same = compare_sentence(plan, plan)
    assert "as long as" in same
    assert "Both have the same settings" in same
    assert "have the same layers and submeshes in both; 0 of" in same


def test_the_table_has_both_sides_of_everything(plan, other) -> None:
    rows = compare_table(plan, other)
    by = {about: [r for r in rows if r["about"] == about] for about in ("setting", "result", "stage", "time")}
    assert {"layers"} <= {r["what"] for r in by["setting"]}
    assert len(by["stage"]) == max(len(plan.stages), len(other.stages))
    assert all(by.values())
    assert compare_table(plan, plan)[-1]["about"] == "time", "no operator of a plan and itself differs"
