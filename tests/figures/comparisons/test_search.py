"""The search figure: plans of one model, their Pareto frontier, and the plan that a click selects."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from alpa_explore import units
from alpa_explore.figures.comparisons.effort import effort_figure, effort_sentence, effort_table
from alpa_explore.figures.comparisons.search import pareto_frontier, search_figure, search_sentence, search_table
from alpa_explore.planner.replan import replan
from alpa_explore.plans.plan import Plan
from alpa_explore.plans.report.compare import NoPlan
from tests.figures.test_figures import trace_of
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
    marks = trace_of(figure, "plans of the planner")
    assert sorted(marks.y) == sorted(p.samples_per_second for p in plans)
    assert sorted(marks.customdata) == ["plan:0", "plan:1", "plan:2"]
    star = trace_of(figure, "this plan")
    assert (list(star.y), list(star.customdata)) == ([PLAN.samples_per_second], ["plan:2"])


def test_the_label_of_the_star_begins_where_its_tips_end() -> None:
    figure = search_figure(PLAN, tried=[PLAN])
    star, label = trace_of(figure, "this plan"), trace_of(figure, "label of this plan")
    assert (list(label.x), list(label.y), list(label.text)) == (list(star.x), list(star.y), ["this plan"])
    tips, written = 1.4 * star.marker.size / 2, label.marker.size / 2 / 0.8 + 1  # as plotly draws and writes
    assert written > tips + 2


def test_nearly_equal_plans_are_one_mark_with_their_number() -> None:
    near = [with_figures(1000, 4_000_000), with_figures(1001, 4_001_000), with_figures(1002, 4_000_500)]
    far = with_figures(700, 9_000_000)
    figure = search_figure(near[1], tried=[*near, far])
    marks = trace_of(figure, "plans of the planner")
    assert list(trace_of(figure, "label of this plan").text) == ["this plan and 2 more"]
    assert list(marks.text) == ["", ""]
    assert list(marks.customdata) == ["plan:1", "plan:3"], "the plan on screen keeps its own place"
    assert "within" not in marks.hovertext[0]
    assert "nearly equal to it" in marks.hovertext[0]
    assert "4 plans of gpt-example at 2 clearly different points" in search_sentence(near[1], tried=[*near, far])


def test_the_axes_fit_points_that_lie_close_together_and_say_so() -> None:
    close = [with_figures(1000 + 20 * i, 40_000_000 + i * 10**6) for i in range(4)]
    layout = search_figure(close[0], tried=close).layout
    assert layout.yaxis.range[0] > 0
    assert "axis not from 0" in layout.yaxis.title.text
    apart = [with_figures(100, 4_000_000), with_figures(1000, 400_000)]
    layout = search_figure(apart[0], tried=apart).layout
    assert (layout.xaxis.range[0], layout.yaxis.range[0]) == (0, 0)
    assert layout.yaxis.title.text == "samples/s"


def test_the_memory_of_a_device_is_named_in_the_plot() -> None:
    texts = [note.text for note in search_figure(PLAN, tried=[PLAN]).layout.annotations]
    assert any(text.startswith("16 GiB, one device") for text in texts)


def test_plans_of_another_model_are_left_out_and_baselines_are_named() -> None:
    stranger = replace(PLAN, model=replace(PLAN.model, name="another"))
    by_hand = replace(PLAN, options=replace(PLAN.options, baseline="zero-3 (dp 8)"))
    rows = search_table(PLAN, tried=[stranger, by_hand, PLAN])
    assert [row["plan_number"] for row in rows] == [1, 2]
    assert "zero-3" in rows[0]["baseline"]
    baselines = trace_of(search_figure(PLAN, tried=[stranger, by_hand, PLAN]), "baselines")
    assert (list(baselines.text), list(baselines.customdata)) == (["zero-3"], ["plan:1"])


def test_what_has_no_plan_is_named_with_its_reason_in_sentence_legend_and_table() -> None:
    failed = [NoPlan("data-parallel", "needs 24.5 GiB of 16 GiB", PLAN.model.name)]
    assert "No plan: data-parallel (needs 24.5 GiB of 16 GiB)." in search_sentence(PLAN, tried=[PLAN], failed=failed)
    assert trace_of(
        search_figure(PLAN, tried=[PLAN], failed=failed), "no plan: data-parallel: needs 24.5 GiB of 16 GiB"
    ).x == (None,)
    row = search_table(PLAN, tried=[PLAN], failed=failed)[-1]
    assert row["no_plan"] == "data-parallel: needs 24.5 GiB of 16 GiB"
    assert row["plan_number"] is None


def test_the_sentence_names_the_settings_of_the_fastest_plan() -> None:
    more = replan(PLAN, num_microbatches=256)
    assert "B 32 → 256" in search_sentence(PLAN, tried=[PLAN, more])
    assert "This plan is the fastest" in search_sentence(more, tried=[PLAN, more])
    assert "Only this plan has been made" in search_sentence(PLAN)


def test_plans_on_devices_of_unlike_memory_are_compared_by_its_share() -> None:
    plan = example_plan()
    small = plan.cluster.device
    large = replace(plan.cluster, device=replace(small, memory_bytes=2 * small.memory_bytes))
    figure = search_figure(plan, tried=[plan, replace(plan, cluster=large)])
    assert "% of the device" in figure.layout.xaxis.title.text
    line = trace_of(figure, "memory of a device")
    assert set(line.x) == {100.0}


def test_of_a_single_plan_the_stages_the_problems_and_the_seconds_are_counted() -> None:
    rows = {row["what"]: row["count"] for row in effort_table(PLAN)}
    costs, sweep = PLAN.costs, PLAN.t_max_sweep
    assert rows["possible stages"] == costs.num_layers * (costs.num_layers + 1) // 2 * len(costs.submeshes)
    assert rows["priced"] == sum(bool(found) for found in costs.candidates.values())
    assert rows["in the plan"] == len(PLAN.stages)
    assert (rows["sharding problems"], rows["distinct ones"]) == (
        PLAN.statistics.solves,
        PLAN.statistics.distinct_solves,
    )
    assert rows["evaluated"] == len([tried for tried in sweep if not tried.pruned]) < rows["t_max candidates"]
    figure = effort_figure(PLAN)
    drawn = {
        name: count
        for trace in figure.data
        if trace.type == "bar"
        for name, count in zip(trace.y, trace.x, strict=True)
    }
    assert drawn["priced"] == rows["priced"] / rows["possible stages"]
    scale, _ = units.seconds_axis(max(seconds for _, seconds in PLAN.statistics.seconds))
    assert [drawn[name] * scale for name, _ in PLAN.statistics.seconds] == [
        pytest.approx(seconds) for _, seconds in PLAN.statistics.seconds
    ]
    assert f"{rows['priced']:,} of {rows['possible stages']:,} stages priced" in figure.layout.title.text
    unknown = replace(PLAN, statistics=replace(PLAN.statistics, seconds=()))
    assert figure.layout.title.text.startswith(effort_sentence(unknown).removesuffix(".")), "an old file has no seconds"
