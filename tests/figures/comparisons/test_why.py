"""The Why figure: its bars are the parts of T, its sentence agrees with them."""

from dataclasses import replace

import pytest

from alpa_explore import units
from alpa_explore.figures.comparisons.why import why_figure, why_sentence, why_table
from alpa_explore.planner.replan import replan
from alpa_explore.plans.plan import Plan
from alpa_explore.questions.explain import COMPUTE, COMPUTING, limits, time_parts


def test_the_bars_of_every_stage_end_at_the_time_of_an_iteration_and_select_the_stage(plan: Plan) -> None:
    bars = [t for t in why_figure(plan).data if t.type == "bar" and t.xaxis == "x"]
    for place in range(len(plan.stages)):
        assert sum(bar.x[place] for bar in bars) == pytest.approx(plan.predicted.iteration_seconds)
    for bar in bars:
        assert list(bar.customdata) == [f"stage:{i}" for i in range(len(plan.stages))]


def test_all_but_computing_is_drawn_on_a_scale_of_its_own_with_its_share(plan: Plan) -> None:
    figure = why_figure(plan)
    bars = [t for t in figure.data if t.type == "bar" and t.xaxis == "x2"]
    (sums,) = (t for t in figure.data if t.type == "scatter" and t.xaxis == "x2")
    assert COMPUTE not in {bar.name for bar in bars}
    total = plan.predicted.iteration_seconds
    for place, time in enumerate(time_parts(plan)):
        share = 1 - dict(time.parts)[COMPUTE] / total
        assert sum(bar.x[place] for bar in bars) == pytest.approx(100 * share)
        assert sums.text[place].strip() == units.percent(share)
        assert bars[0].customdata[place] == f"stage:{place}"
    assert not any(bar.showlegend for bar in bars), "each part is once in the legend"


def test_the_figure_draws_what_the_table_lists_except_free_computing(plan: Plan) -> None:
    rows = why_table(plan)
    for name in ("limits", "changes"):
        drawn = next(trace for trace in why_figure(plan).data if trace.name == name)
        listed = [row for row in rows if row["about"] == name[:-1] and row["what"] != COMPUTING]
        assert [text.replace("<br>", " ") for text in drawn.y] == [row["what"] for row in listed][: len(drawn.y)]
        assert list(drawn.x) == pytest.approx([100 * row["share_fraction"] for row in listed][: len(drawn.y)])


def test_a_click_on_a_change_that_was_made_shows_its_plan(plan: Plan) -> None:
    other = replace(plan, options=replace(plan.options, delta=0.1))
    drawn = next(t for t in why_figure(plan, tried=[plan, other]).data if t.name == "changes")
    keys = dict(zip(drawn.y, drawn.customdata, strict=True))
    assert keys["δ 0.6 → 0.1"] == "plan:1"
    assert keys["B 32 → 64"] == ""


def test_collectives_are_named_by_where_they_are(plan: Plan) -> None:
    names = {name for time in time_parts(plan) for name, _ in time.parts}
    assert any(name == "collectives inside a node, axis 0" for name in names)
    assert "axis" not in why_sentence(plan)


def test_a_plan_that_was_tried_can_be_the_best_change(plan: Plan) -> None:
    faster = replace(plan.predicted, iteration_seconds=plan.predicted.iteration_seconds / 2)
    other = replace(plan, predicted=faster, options=replace(plan.options, delta=0.1))
    assert "δ 0.6 → 0.1, 50 % less time a sample" in why_sentence(plan, tried=[other])
    unlike = replace(other, options=replace(other.options, num_layers=3))
    assert "δ" not in why_sentence(plan, tried=[unlike]), "two settings changed at once are no single change"


def test_without_strategies_compute_and_collectives_are_one_part(plan: Plan) -> None:
    bare = replace(plan, details=None, stages=tuple(replace(s, operators=()) for s in plan.stages))
    assert "compute and collectives" in why_sentence(replan(bare))


def test_computing_is_never_named_as_the_limit(plan: Plan) -> None:
    """Free computing would make every plan faster, so it is no information."""
    sentence = why_sentence(plan)
    assert limits(plan)[0].name == COMPUTING
    assert "Besides computing, " in sentence or "Nothing but computing limits the plan" in sentence
    assert "limit is computing" not in sentence
