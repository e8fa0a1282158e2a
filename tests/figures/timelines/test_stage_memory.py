"""The figure of a stage's memory: stacked areas that reach the plan's peak, and the line of the device."""

import numpy as np
import pytest

from alpa_explore.figures.timelines.stage_memory import stage_memory_figure, stage_memory_sentence
from alpa_explore.plans.plan import Plan

GIB = 2.0**30


def test_the_stack_reaches_the_peak_of_the_plan_below_the_line_of_the_device(plan: Plan) -> None:
    figure = stage_memory_figure(plan, 1)
    areas = [trace for trace in figure.data if trace.type == "scatter" and trace.stackgroup]
    assert len({tuple(area.x) for area in areas}) == 1, "areas are stacked at the same moments"
    top = np.sum([area.y for area in areas], axis=0).max()
    assert top == pytest.approx(plan.stages[1].peak_bytes / GIB, rel=1e-4)
    (line,) = (trace for trace in figure.data if trace.name == "memory of a device")
    assert set(line.y) == {16.0}


def test_areas_of_microbatches_say_which_one_they_are(plan: Plan) -> None:
    areas = [trace for trace in stage_memory_figure(plan, 0).data if trace.name == "activations"]
    assert len(areas) == plan.stages[0].microbatches_held
    assert "activations of microbatch 0" in areas[0].text
    assert areas[0].fillcolor != areas[1].fillcolor, "neighbours are told apart"
    assert [bool(area.showlegend) for area in areas] == [True, *[False] * (len(areas) - 1)]


def test_the_sentence_says_how_full_a_device_is_and_of_what(plan: Plan) -> None:
    said = stage_memory_sentence(plan, 0)
    assert said.startswith("Stage 0: ")
    assert "a device holds at most " in said
    assert " of 16 GiB (" in said
    assert "activations " in said
