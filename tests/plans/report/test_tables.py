"""The rows behind the figures."""

from dataclasses import replace

import pytest

from alpa_explore.errors import OptionError
from alpa_explore.plans.plan import Plan
from alpa_explore.plans.report.tables import (
    chosen_t_max,
    layers_table,
    sharding_table,
    stage_costs_table,
    stages_table,
    t_max_table,
)
from tests.plans.example import example_plan


@pytest.fixture(scope="module")
def plan() -> Plan:
    return example_plan()


def test_every_layer_has_a_row_with_its_stage(plan: Plan) -> None:
    rows = layers_table(plan)
    assert [row["stage"] for row in rows] == [0, 1, 2, 2, 2, 3]
    assert sum(row["operators"] for row in rows) == sum(len(layer.operators) for layer in plan.layers)


def test_the_parts_of_a_stages_memory_add_up(plan: Plan) -> None:
    for row in stages_table(plan):
        parts = row["weight_bytes"] + row["microbatches_held"] * row["activation_bytes"] + row["workspace_bytes"]
        assert row["peak_bytes"] == pytest.approx(parts)
        assert 0 < row["memory_fraction"] <= 1


def test_the_sweep_covers_every_candidate_once_and_names_the_chosen(plan: Plan) -> None:
    rows = t_max_table(plan)
    assert sum(row["candidates"] for row in rows) == len(plan.t_max_sweep)
    chosen = [row for row in rows if row["outcome"] == "chosen"]
    assert [row["iteration_seconds"] for row in chosen] == [plan.predicted.iteration_seconds]
    assert {row["outcome"] for row in rows} == {"chosen", "evaluated", "ruled out", "no partition"}
    for row in rows:
        if row["iteration_seconds"] is not None:
            parts = row["sum_latency_seconds"] + row["waiting_seconds"] + row["once_seconds"]
            assert parts == pytest.approx(row["iteration_seconds"])


def test_overhead_is_no_part_of_the_sum_of_latencies(plan: Plan) -> None:
    tied = replace(plan, stages=(replace(plan.stages[0], tied_seconds=0.25), *plan.stages[1:]))
    (before,), (after,) = ([r for r in t_max_table(p) if r["outcome"] == "chosen"] for p in (plan, tied))
    assert after["once_seconds"] == pytest.approx(before["once_seconds"] + 0.25)
    assert after["sum_latency_seconds"] == pytest.approx(before["sum_latency_seconds"] - 0.25)


def test_the_chosen_t_max_has_the_least_time(plan: Plan) -> None:
    at = chosen_t_max(plan)
    assert at is not None
    assert plan.t_max_sweep[at].t_max_seconds == plan.predicted.t_max_seconds


def test_an_operator_has_a_row_with_its_specs(plan: Plan) -> None:
    rows = sharding_table(plan, 2)
    assert len(rows) == len(plan.stages[2].operators)
    assert {row["phase"] for row in rows} == {"forward", "backward", "update"}


@pytest.mark.parametrize("stage", [-1, 4])
def test_a_stage_that_is_not_there_is_refused(stage: int, plan: Plan) -> None:
    with pytest.raises(OptionError, match="0 to 3"):
        sharding_table(plan, stage)


def test_stage_costs_mark_what_the_plan_uses_and_what_does_not_fit(plan: Plan) -> None:
    rows = stage_costs_table(plan)
    assert len(rows) == len(plan.costs.candidates)
    used = {row["stage"]: (row["layers"], row["submesh"]) for row in rows if row["stage"] is not None}
    assert used == {s.index: (s.layers, s.submesh) for s in plan.stages}
    whole_on_one = next(r for r in rows if r["layers"] == (0, 5) and r["submesh"] == (1, 1))
    assert whole_on_one["microbatches_fit"] == 0
    assert all(row["microbatches_fit"] for row in rows if row["stage"] is not None)
