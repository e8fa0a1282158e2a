"""The memory figure: the choices fill it, each has a plain name, and its bars add up."""

from dataclasses import replace

import pytest

from alpa_explore.figures.decisions.frontier import (
    ALMOST,
    FASTEST,
    SLOWER,
    TOO_LARGE,
    choice_names,
    frontier_figure,
    frontier_sentence,
    frontier_table,
)
from alpa_explore.plans.plan import Plan
from alpa_explore.pricing.stage_costs import Provenance
from alpa_explore.questions.frontier import FrontierPoint, StageFrontier

GIB = 2.0**30


def frontier(*figures: tuple[float, float], chosen: int = 0, complete: bool = False) -> StageFrontier:
    """(seconds, GiB) of each choice, on devices of 16 GiB."""
    points = tuple(
        FrontierPoint(
            seconds=seconds,
            weight_bytes=0.5 * size * GIB,
            held_bytes=0.75 * size * GIB,
            peak_bytes=size * GIB,
            logical_mesh=(2, 2),
            provenance=Provenance.CONVEX,
            fits=size <= 16,
            chosen=place == chosen,
        )
        for place, (seconds, size) in enumerate(figures)
    )
    return StageFrontier(
        stage=0, layers=(0, 1), microbatches_held=2, memory_bytes=16 * 2**30, complete=complete, points=points
    )


FOUND = frontier((0.075, 18.0), (0.076, 14.0), (0.0765, 12.0), (0.080, 10.0), chosen=1)


def test_choices_are_named_by_what_they_mean(plan: Plan) -> None:
    assert choice_names(FOUND) == [TOO_LARGE, FASTEST, ALMOST, SLOWER]
    assert [row["choice"] for row in frontier_table(plan, 0, frontier=FOUND)] == choice_names(FOUND)
    figure = frontier_figure(plan, 0, frontier=FOUND)
    shown = " ".join(str(t.name) + str(t.hovertext) for t in figure.data) + figure.layout.title.text
    for riddle in ("provenance", "near", "computed so far"):
        assert f" {riddle}" not in shown, riddle


def test_the_choices_fill_the_plot_and_the_memory_of_a_device_is_named_in_it(plan: Plan) -> None:
    layout = frontier_figure(plan, 0, frontier=FOUND).layout
    low, high = layout.yaxis.range
    assert (80 - 75) / (high - low) > 0.5, "latencies from 75 to 80 ms take more than half of the axis"
    assert "not from 0" in layout.yaxis.title.text
    (note,) = (note for note in layout.annotations if "one device" in note.text)
    assert note.text == "16 GiB, one device"
    far = frontier((0.075, 4.0), (0.076, 3.5), (0.080, 3.0))
    layout = frontier_figure(plan, 0, frontier=far).layout
    assert layout.xaxis.range[1] < 16
    assert any(note.text == "16 GiB, one device →" for note in layout.annotations)


def test_the_parts_of_each_bar_add_up_to_the_peak(plan: Plan) -> None:
    figure = frontier_figure(plan, 0, frontier=FOUND)
    bars = [t for t in figure.data if t.type == "bar"]
    sums = [sum(bar.x[place] for bar in bars) for place in range(4)]
    assert sums == pytest.approx([18, 14, 12, 10])
    assert "<b>the plan</b>: 76 ms" in figure.layout.yaxis2.ticktext


def test_the_sentence_says_what_the_plan_takes_and_what_less_memory_would_cost(plan: Plan) -> None:
    said = frontier_sentence(plan, 0, frontier=FOUND)
    assert "3 of 4 choices fit in 16 GiB" in said
    assert "The plan takes 76 ms and 14 GiB: the fastest that fits." in said
    assert "needs 28.6 % less and would be 5.26 % slower." in said
    assert "exact" not in said
    assert "exact frontier" in frontier_sentence(plan, 0, frontier=replace(FOUND, complete=True))
    alone = frontier_sentence(plan, 0, frontier=frontier((0.075, 4.0)))
    assert "a single choice is known" in alone


def test_many_choices_are_all_marks_and_some_of_them_bars(plan: Plan) -> None:
    many = frontier(*((0.075 + 0.001 * i, 15 - 0.1 * i) for i in range(50)), chosen=17)
    figure = frontier_figure(plan, 0, frontier=many)
    marks = [t for t in figure.data if t.type == "scatter" and t.mode == "markers"]
    assert sum(len(t.x) for t in marks) == 50
    assert len(figure.layout.yaxis2.ticktext) == 11
    assert sum("the plan" in label for label in figure.layout.yaxis2.ticktext) == 1
