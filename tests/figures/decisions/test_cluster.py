"""The figure of the cluster: every device is in the region of its stage, and filled to its peak."""

from dataclasses import replace

import pytest

from alpa_explore.figures.decisions.cluster import cluster_figure
from alpa_explore.figures.keys import key, read_key
from alpa_explore.figures.style import stage_color
from alpa_explore.plans.plan import Plan
from tests.figures.test_figures import title_of, traces
from tests.plans.example import example_plan

PARTS = ("weights, gradients, optimizer state", "activations held", "workspace")


def test_every_device_is_in_a_region_of_its_stage_and_anywhere_in_its_box_it_selects_itself(plan: Plan) -> None:
    figure = cluster_figure(plan)
    (regions,), (memory,) = traces(figure, "stages"), traces(figure, "memory of a device")
    devices = [int(read_key(k)["device"]) for k in memory.customdata]
    places = dict(zip(devices, zip(memory.x, memory.base, strict=True), strict=True))
    assert len(places) == len(memory.x) == plan.cluster.devices
    for stage in plan.stages:
        of_stage = [i for i, k in enumerate(regions.customdata) if k == key(stage=stage.index)]
        inside = {
            device
            for device, (x, base) in places.items()
            for i in of_stage
            if abs(x - regions.x[i]) < regions.width[i] / 2 and 0 < base - regions.base[i] < regions.y[i]
        }
        assert inside == set(stage.devices)
        assert all(regions.marker.line.color[i] == stage_color(stage.index) for i in of_stage)
        assert all(f"stage {stage.index}" in regions.text[i] for i in of_stage)
        assert all(regions.hovertext[i].endswith(f"click: selects stage {stage.index}") for i in of_stage)
    for device, text in zip(places, memory.hovertext, strict=True):
        assert f"click: selects device {device} and its stage" in text


def test_a_device_is_filled_to_its_peak(plan: Plan) -> None:
    figure = cluster_figure(plan)
    (memory,) = traces(figure, "memory of a device")
    contents = [traces(figure, part)[0] for part in PARTS]
    filled = [sum(widths) for widths in zip(*(trace.width for trace in contents), strict=True)]
    devices = [int(read_key(k)["device"]) for k in memory.customdata]
    peak = {d: s.peak_bytes for s in plan.stages for d in s.devices}
    assert filled == pytest.approx([memory.width * peak[d] / plan.cluster.device.memory_bytes for d in devices])
    left = [x - width / 2 for x, width in zip(contents[0].x, contents[0].width, strict=True)]
    assert left == pytest.approx([x - memory.width / 2 for x in memory.x])
    assert {trace.hoverinfo for trace in contents} == {"skip"}, "the box answers, filled or not"


def test_the_heading_of_a_region_is_not_as_solid_as_its_memory() -> None:
    plan = example_plan("8x8:v100", num_layers=12)
    for theme in ("light", "dark"):
        figure = cluster_figure(plan, theme=theme)
        (regions,), weights = traces(figure, "stages"), traces(figure, PARTS[0])[0]
        assert not set(regions.marker.color) & set(weights.marker.color)
    assert figure.layout.height <= 560, "all nodes are on the screen"


def test_some_nodes_of_a_large_cluster() -> None:
    figure = cluster_figure(example_plan("8x8:v100"), start=2, count=3)
    assert list(figure.layout.yaxis.ticktext) == ["node 4", "node 3", "node 2"]
    assert "Nodes 2 to 4 of 8" in title_of(figure)


def test_a_device_that_no_stage_uses_says_so_and_selects_nothing(plan: Plan) -> None:
    last = plan.stages[-1]
    figure = cluster_figure(replace(plan, stages=plan.stages[:-1]))
    (memory,) = traces(figure, "memory of a device")
    unused = [text for k, text in zip(memory.customdata, memory.hovertext, strict=True) if not k]
    assert len(unused) == len(last.devices)
    assert all(text.endswith("not used") for text in unused)
