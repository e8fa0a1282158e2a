"""The search figure: plans of one model, their Pareto frontier, and the plan that a click selects."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from alpa_explore.figures.comparisons.search import pareto_frontier, search_figure, search_sentence, search_table
from alpa_explore.planner.replan import replan
from alpa_explore.plans.plan import Plan
from tests.plans.example import example_plan

PLAN = example_plan()


def with_figures(seconds: int, memory: int) -> Plan:
    predicted = replace(PLAN.predicted, iteration_seconds=float(seconds), peak_bytes_per_device=float(memory))
    return replace(PLAN, predicted=predicted)


@given(st.lists(st.tuples(st.integers(1, 6), st.integers(1, 6)), min_size=1, max_size=12))
def test_the_pareto_frontier_is_the_plans_that_none_dominates(figures: list[tuple[int, int]]) -> None:
    frontier = pareto_frontier([with_figures(*pair) for pair in figures])
    for place, (seconds, memory) in enumerate(figures):
        dominated = any(s <= seconds and m <= memory and (s, m) != (seconds, memory) for s, m in figures)
        assert (place in frontier) is not dominated


def test_each_mark_is_at_the_figures_of_its_plan_and_has_its_index() -> None:
    plans = [replan(PLAN, num_microbatches=b) for b in (8, 16)] + [PLAN]
    figure = search_figure(PLAN, tried=plans)
    marks = next(trace for trace in figure.data if trace.name == "planned")
    assert list(marks.y) == [p.samples_per_second for p in plans]
    assert list(marks.customdata) == ["plan:0", "plan:1", "plan:2"]
    star = next(trace for trace in figure.data if trace.name == "the plan")
    assert (list(star.y), list(star.customdata)) == ([PLAN.samples_per_second], ["plan:2"])


def test_plans_of_another_model_are_left_out_and_baselines_are_named() -> None:
    stranger = replace(PLAN, model=replace(PLAN.model, name="another"))
    by_hand = replace(PLAN, options=replace(PLAN.options, baseline="zero-3 (dp 8)"))
    rows = search_table(PLAN, tried=[stranger, by_hand, PLAN])
    assert [row["plan_number"] for row in rows] == [1, 2]
    assert "zero-3" in rows[0]["differs_in"]
    figure = search_figure(PLAN, tried=[stranger, by_hand, PLAN])
    assert list(next(t for t in figure.data if t.name == "zero-3").customdata) == ["plan:1"]


def test_the_sentence_names_the_settings_of_the_fastest_plan() -> None:
    more = replan(PLAN, num_microbatches=256)
    assert "B 32 → 256" in search_sentence(PLAN, tried=[PLAN, more])
    assert "this one is the fastest" in search_sentence(more, tried=[PLAN, more])
    assert "Only this plan has been tried" in search_sentence(PLAN)
