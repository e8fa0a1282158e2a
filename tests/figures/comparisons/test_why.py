"""The Why figure: its bars are the parts of T, its sentence agrees with them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from alpa_explore.figures.comparisons.why import why_figure, why_sentence, why_table
from alpa_explore.planner.replan import replan
from alpa_explore.plans.plan import Plan
from alpa_explore.questions.explain import COMPUTING, limits


def test_the_bars_of_every_stage_end_at_the_time_of_an_iteration(plan: Plan) -> None:
    figure = why_figure(plan)
    bars = [trace for trace in figure.data if trace.customdata is not None]
    for place in range(len(plan.stages)):
        assert sum(trace.x[place] for trace in bars) == pytest.approx(plan.predicted.iteration_seconds)


def test_the_table_holds_what_the_figure_draws(plan: Plan) -> None:
    rows = why_table(plan)
    for name in ("limits", "changes"):
        drawn = next(trace for trace in why_figure(plan).data if trace.name == name)
        listed = [row for row in rows if row["about"] == name[:-1]]
        assert list(drawn.y) == [row["what"] for row in listed][: len(drawn.y)]
        assert list(drawn.x) == pytest.approx([100 * row["share_fraction"] for row in listed][: len(drawn.y)])


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
