"""The figure of a stage's memory: stacked areas that reach the plan's peak, and the line of the device."""

from itertools import combinations

import numpy as np
import pytest

from alpa_explore.figures.timelines.stage_memory import (
    held_memory,
    rectangles,
    stage_memory_figure,
    stage_memory_sentence,
)
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


@pytest.mark.parametrize("sides", [(1.0, 1.0), (190.0, 30.0), (20.0, 300.0)])
@pytest.mark.parametrize("shares", [[1.0], [0.5, 0.3, 0.2], [0.9, 0.05, 0.05], [0.25] * 4, [0.7, 0.2, 0.06, 0.04]])
def test_the_areas_of_a_device_fill_it_in_proportion_and_overlap_nowhere(
    shares: list[float], sides: tuple[float, float]
) -> None:
    areas, whole = rectangles(shares, *sides), sides[0] * sides[1]
    for (x, y, width, height), share in zip(areas, shares, strict=True):
        assert width * height == pytest.approx(share * whole)
        assert min(x, y) >= -1e-9
        assert x + width <= sides[0] * (1 + 1e-9)
        assert y + height <= sides[1] * (1 + 1e-9)
    for (ax, ay, aw, ah), (bx, by, bw, bh) in combinations(areas, 2):
        across, down = min(ax + aw, bx + bw) - max(ax, bx), min(ay + ah, by + bh) - max(ay, by)
        assert min(across, down) <= 1e-9 * sides[0] * sides[1]


def test_a_device_at_its_peak_stands_beside_the_areas_on_their_scale_with_what_is_free_above(plan: Plan) -> None:
    figure, held = stage_memory_figure(plan, 0), held_memory(plan, 0)
    layout = figure.layout
    (device,) = (trace for trace in figure.data if trace.name == "a device at the peak")
    assert layout.yaxis3.domain == layout.yaxis2.domain
    width, gib = layout.xaxis2.range[1], layout.yaxis3.range[1] / layout.yaxis2.range[1]
    names = [text.split("</b>")[0][3:] for text in device.hovertext]
    shown = dict(zip(names, zip(device.width, device.y, device.base, strict=True), strict=True))
    sizes = {name: size for name, size in held.at_peak().items() if size}
    assert list(shown) == [*sorted(sizes, key=lambda name: -sizes[name]), "free"]
    for name, size in sizes.items():
        across, height, base = shown[name]
        assert across * height / width / gib == pytest.approx(size / GIB), name
        assert base + height <= (held.peak_bytes / GIB + 1e-9) * gib
    across, height, base = shown["free"]
    peak = held.peak_bytes / GIB * gib
    assert (across, base, base + height) == (width, pytest.approx(peak), pytest.approx(16.0 * gib))
