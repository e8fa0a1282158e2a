"""The Why figure: its bars are the parts of T, its sentence agrees with them."""

from dataclasses import replace

import pytest

from alpa_explore import units
from alpa_explore.figures.comparisons.why import why_figure, why_sentence
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


def test_collectives_are_named_by_where_they_are(plan: Plan) -> None:
    names = {name for time in time_parts(plan) for name, _ in time.parts}
    assert any(name == "collectives inside a node, axis 0" for name in names)
    assert "axis" not in why_sentence(plan)


def test_without_strategies_compute_and_collectives_are_one_part(plan: Plan) -> None:
    bare = replace(plan, details=None, stages=tuple(replace(s, operators=()) for s in plan.stages))
    assert "compute and collectives" in why_sentence(replan(bare))


def test_computing_is_never_named_as_the_limit(plan: Plan) -> None:
    """Free computing would make every plan faster, so it is no information."""
    sentence = why_sentence(plan)
    assert limits(plan)[0].name == COMPUTING
    assert "Besides computing, " in sentence or "Nothing but computing limits the plan" in sentence
    assert "limit is computing" not in sentence
