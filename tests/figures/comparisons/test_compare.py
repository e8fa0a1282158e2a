"""Two plans beside each other, by the figure's data."""

import re
from dataclasses import replace
from itertools import pairwise

import pytest

from alpa_explore import units
from alpa_explore.figures.comparisons.compare import (
    both_parts,
    compare_figure,
    compare_sentence,
    compare_table,
    results,
)
from alpa_explore.planner.replan import replan
from alpa_explore.plans.plan import Plan
from alpa_explore.plans.report.compare import compare_plans
from tests.plans.example import example_plan


@pytest.fixture(scope="module")
def other() -> Plan:
    return example_plan(num_layers=4)


def bars(figure, row):
    return [t for t in figure.data if t.type == "bar" and t.y[0] == row]


def test_the_stages_of_both_plans_cover_the_model_once(plan, other) -> None:
    figure = compare_figure(plan, other, other_name="pinned <b>")
    for shown, name in ((other, "pinned &lt;b&gt;"), (plan, "this plan")):
        stages = [t for t in bars(figure, name) if t.base is not None]
        assert len(stages) == len(shown.stages)
        assert stages[0].base[0] == 0
        for before, after in pairwise(stages):
            assert after.base[0] == pytest.approx(before.base[0] + before.x[0])
        assert stages[-1].base[0] + stages[-1].x[0] == pytest.approx(100)


def test_the_parts_add_up_to_an_iteration_or_where_batches_differ_to_a_sample(plan, other) -> None:
    for beside in (other, replan(plan, num_microbatches=64)):
        of = 1 if beside is other else plan.global_batch
        _, parts = both_parts(compare_plans(beside, plan))
        assert sum(parts.values()) == pytest.approx(plan.predicted.iteration_seconds / of)


def test_the_figure_lists_every_result_and_part_with_its_change_in_words(plan, other) -> None:
    figure = compare_figure(plan, other)
    columns = [trace for trace in figure.data if trace.type == "scatter"]
    names, before, now, changes = (list(trace.text) for trace in columns)
    rows = results(compare_plans(other, plan))
    assert names[1:] == [row[0] for row in rows if row[0] != "tokens/s"]
    place = names.index("iteration")
    assert before[place] == units.seconds(other.predicted.iteration_seconds)
    assert now[place] == units.seconds(plan.predicted.iteration_seconds)
    assert changes[place].endswith(("better", "worse"))


def test_the_latency_of_each_stage_of_both_plans_is_drawn_and_selects_the_stage_of_this_one(plan, other) -> None:
    figure = compare_figure(plan, other, other_name="the pinned plan")
    old, new = (next(t for t in figure.data if t.name == name) for name in ("the pinned plan", "this plan"))
    assert [len(t.y) for t in (old, new)] == [len(other.stages), len(plan.stages)]
    assert list(new.customdata) == [f"stage:{i}" for i in range(len(plan.stages))]
    assert old.customdata is None


def test_equal_words_are_the_same_and_a_small_change_is_neither_better_nor_worse(plan) -> None:
    old = compare_plans(plan, plan)
    assert {(change, tone) for _, _, _, change, tone in results(old)} <= {("", 0), ("same", 0)}
    first = plan.stages[0]
    a_bit = replace(first, latency_seconds=1.0001 * first.latency_seconds)
    rows = results(compare_plans(plan, replace(plan, stages=(a_bit, *plan.stages[1:]))))
    for name, before, now, change, tone in rows:
        assert (before == now) <= (tone == 0), name
        assert (change in ("", "same")) or before != now, name


def test_another_number_of_microbatches_is_no_slower_iteration(plan) -> None:
    """Twice the batch takes twice the time: that is not worse."""
    twice = replan(plan, num_microbatches=2 * plan.options.num_microbatches)
    changes = {name: change for name, _, _, change, _ in results(compare_plans(plan, twice))}
    assert changes["iteration"] == "2 × the samples"
    assert changes["a sample, on average"].endswith("better")


def test_a_stage_without_strategies_is_compared_as_far_as_it_is_known(plan, other) -> None:
    """As after `replan` of a plan from a file: no part of the time appears or vanishes only because it has no name."""
    first = replace(plan.stages[2], operators=())
    partly = replace(plan, details=None, stages=(*plan.stages[:2], first, *plan.stages[3:]))
    sentence = compare_sentence(plan, partly)
    assert "as long as" in sentence
    assert "operators that can be compared is cut differently" in sentence


def test_the_sentence_counts_what_is_cut_differently_by_kind(plan, other) -> None:
    assert re.search(r"\d+ of \d+ operators .*are cut differently: \d+ mm, ", compare_sentence(plan, other))


def test_the_sentence_names_the_settings_that_differ_and_the_change_of_the_time(plan) -> None:
    twice = replan(plan, num_microbatches=2 * plan.options.num_microbatches)
    sentence = compare_sentence(plan, twice, other_name="the pinned plan")
    assert "B 64 → 32" in sentence
    assert "A sample takes" in sentence
    assert "more than with the pinned plan (" in sentence
    same = compare_sentence(plan, plan)
    assert "as long as" in same
    assert "The settings are the same. 4 stages as before, on the same submeshes. None of the " in same


def test_the_table_has_both_sides_of_everything(plan, other) -> None:
    rows = compare_table(plan, other)
    by = {about: [r for r in rows if r["about"] == about] for about in ("setting", "result", "stage", "time")}
    assert {"layers"} <= {r["what"] for r in by["setting"]}
    assert len(by["stage"]) == max(len(plan.stages), len(other.stages))
    assert all(by.values())
    assert {r["about"] for r in compare_table(plan, plan)} == {"result", "time", "stage"}, "a plan is like itself"
    groups, operators = ([r for r in rows if r["about"] == about] for about in ("cut", "operator"))
    assert sum(int(r["what"].split(" ")[0]) for r in groups) == len(operators) > len(groups) > 0
