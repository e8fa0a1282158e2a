from __future__ import annotations

from alpa_explore.planner.replan import replan
from alpa_explore.plans.report.tried import tried_table
from tests.plans.example import example_plan

PLAN = example_plan()


def test_settings_that_are_equal_have_no_column_and_those_that_differ_one_each() -> None:
    rows = tried_table(PLAN, [PLAN, replan(PLAN, num_microbatches=3), example_plan("1x1:a100")])
    assert [row["plan_number"] for row in rows] == [0, 1, 2]
    assert len({row["B"] for row in rows}) > 1
    assert len({row["cluster"] for row in rows}) == 2
    assert "model" not in rows[0]
    assert len({tuple(row) for row in rows}) == 1, "every row has every column"


def test_the_time_of_a_sample_is_against_the_plan_on_screen() -> None:
    other = replan(PLAN, num_microbatches=3)
    own, changed = tried_table(PLAN, [PLAN, other])
    assert own["time_fraction"] == 0
    per_sample = [plan.predicted.iteration_seconds / plan.global_batch for plan in (PLAN, other)]
    assert abs((1 + changed["time_fraction"]) * per_sample[0] - per_sample[1]) < 1e-12 * per_sample[1]


def test_one_plan_alone_has_figures_only() -> None:
    (row,) = tried_table(PLAN, [PLAN])
    assert next(iter(row)) == "plan_number"
    assert "B" not in row
    assert row["iteration_seconds"] == PLAN.predicted.iteration_seconds
