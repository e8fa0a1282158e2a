"""Each figure shows the numbers of its plan: asserted on the data of the figure, never on pixels."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from dataclasses import replace
from html import escape
from pathlib import Path
from typing import Any

import plotly.graph_objects as go
import pytest

from alpa_explore.errors import OptionError
from alpa_explore.figures.comparisons.microbatches import microbatches_figure
from alpa_explore.figures.comparisons.why import why_figure
from alpa_explore.figures.decisions.cluster import cluster_figure
from alpa_explore.figures.decisions.frontier import frontier_figure
from alpa_explore.figures.decisions.layers import layers_figure
from alpa_explore.figures.decisions.sharding import sharding_figure
from alpa_explore.figures.decisions.stage_costs import stage_costs_figure, stage_costs_table
from alpa_explore.figures.decisions.t_max import t_max_figure
from alpa_explore.figures.style import OKABE_ITO, ink_on, stage_color, stage_pattern
from alpa_explore.figures.timelines.timeline import timeline_figure
from alpa_explore.plans.plan import Plan, load_plan
from alpa_explore.sharding.spec_constraint import constraints_of
from tests.plans.example import example_plan

FIGURES: list[Callable[..., go.Figure]] = [
    layers_figure,
    cluster_figure,
    t_max_figure,
    stage_costs_figure,
    sharding_figure,
    frontier_figure,
    timeline_figure,
    why_figure,
    microbatches_figure,
]
CLUSTERS = ["2x4:v100", "1x1:a100", "8x8:v100"]


def traces(figure: go.Figure, name: str) -> list[Any]:
    return [trace for trace in figure.data if trace.name == name]


def title_of(figure: go.Figure) -> str:
    return str(figure.layout.title.text).replace("<br>", " ")


@pytest.mark.parametrize("draw", FIGURES)
@pytest.mark.parametrize("cluster", CLUSTERS)
def test_a_title_is_one_sentence_about_this_plan(draw: Callable[..., go.Figure], cluster: str) -> None:
    title = title_of(draw(example_plan(cluster)))
    assert title.endswith(".")
    assert any(letter.isdigit() for letter in title) or "One stage" in title
    assert title != title_of(draw(example_plan("1x4:v100", num_layers=12)))


@pytest.mark.parametrize("draw", FIGURES)
def test_the_title_of_a_figure_is_its_sentence(draw: Callable[..., go.Figure], plan: Plan) -> None:
    sentence = getattr(sys.modules[draw.__module__], draw.__name__.replace("_figure", "_sentence"))
    assert title_of(draw(plan)) == escape(sentence(plan), quote=False)


@pytest.mark.parametrize("draw", FIGURES)
def test_themes_change_the_background_and_not_the_data(draw: Callable[..., go.Figure], plan: Plan) -> None:
    light, dark = draw(plan, theme="light"), draw(plan, theme="dark")
    assert light.layout.paper_bgcolor == "#ffffff"
    assert dark.layout.paper_bgcolor == "#111111"
    assert [t.name for t in light.data] == [t.name for t in dark.data]


@pytest.mark.parametrize("draw", FIGURES)
def test_nothing_is_drawn_with_shapes_or_many_annotations(draw: Callable[..., go.Figure], deep_plan: Plan) -> None:
    figure = draw(deep_plan)
    assert len(figure.layout.shapes) == 0
    assert len(figure.layout.annotations) <= 12  # headings of panels
    assert len(figure.data) <= 60


@pytest.mark.parametrize("draw", FIGURES)
def test_a_plan_from_a_file_draws_the_same(draw: Callable[..., go.Figure], plan: Plan, tmp_path: Path) -> None:
    plan.save(tmp_path / "a")
    assert draw(load_plan(tmp_path / "a")).to_json() == draw(plan).to_json()


@pytest.mark.parametrize("draw", FIGURES)
def test_a_name_cannot_inject_a_tag_into_a_figure(draw: Callable[..., go.Figure], hostile_plan: Plan) -> None:
    text = draw(hostile_plan).to_json()
    assert text is not None
    plain = text.replace("\\u003c", "<").replace("\\u003e", ">").replace("\\u002f", "/")
    for tag in ("<script", "<img", "<a "):
        assert tag not in plain


def test_layers_shows_every_forward_operator_in_the_colour_of_its_stage(plan: Plan) -> None:
    figure = layers_figure(plan)
    for stage in plan.stages:
        strip, bars = traces(figure, f"stage {stage.index}")
        layers = plan.layers[stage.layers[0] : stage.layers[1] + 1]
        assert [y * 1e12 for y in bars.y] == pytest.approx([f for layer in layers for f in layer.operator_flops])
        assert bars.marker.color == strip.marker.color == stage_color(stage.index)
    assert len(traces(figure, "cuts")[0].x) == len(plan.layers) - 1


@pytest.mark.parametrize("draw", FIGURES)
def test_a_figure_of_ten_thousand_operators_has_no_more_marks_than_a_browser_draws_at_once(
    draw: Callable[..., go.Figure], long_plan: Plan
) -> None:
    assert sum(len(stage.operators) for stage in long_plan.stages) > 10_000
    figure = draw(long_plan)
    marks = sum(max(len(getattr(trace, axis, None) or ()) for axis in "xy") for trace in figure.data)
    assert marks <= 5000
    assert len(figure.to_json(validate=False) or "") < 1e6


def test_in_a_long_model_neighbouring_operators_of_one_layer_share_a_mark(long_plan: Plan) -> None:
    count = sum(len(layer.operators) for layer in long_plan.layers)
    figure = layers_figure(long_plan)
    bars = [traces(figure, f"stage {stage.index}")[1] for stage in long_plan.stages]
    assert sum(len(trace.x) for trace in bars) <= 2100 < 5000 < count
    assert sum(sum(trace.width) for trace in bars) == count
    assert sum(sum(trace.y) for trace in bars) * 1e12 == pytest.approx(sum(layer.flops for layer in long_plan.layers))
    assert "Each mark stands for up to 3 operators" in title_of(figure)


def test_cluster_places_every_device_of_a_stage(plan: Plan) -> None:
    figure = cluster_figure(plan)
    for stage in plan.stages:
        (heading,) = traces(figure, f"stage {stage.index}")
        columns = sorted(zip([-b for b in heading.base], heading.x, strict=True))
        nodes = {round(-b): None for b, _ in columns}
        assert [x for _, x in columns] == [d % 4 for d in stage.devices]
        assert len(nodes) == len({d // 4 for d in stage.devices})
        assert heading.marker.color == stage_color(stage.index)


def test_cluster_fills_a_device_to_its_peak(plan: Plan) -> None:
    figure = cluster_figure(plan)
    memory = traces(figure, "memory of a device")[0]
    parts = ["weights, gradients, optimizer state", "activations held", "workspace"]
    filled = [sum(heights) for heights in zip(*(traces(figure, part)[0].y for part in parts), strict=True)]
    shown = [d for node in (1, 0) for d in range(4 * node, 4 * node + 4)]
    peak = {d: s.peak_bytes for s in plan.stages for d in s.devices}
    expected = [memory.y[0] * peak[d] / plan.cluster.device.memory_bytes for d in shown]
    assert filled == pytest.approx(expected)


def test_cluster_shows_some_nodes_of_a_large_cluster() -> None:
    figure = cluster_figure(example_plan("8x8:v100"), start=2, count=3)
    assert list(figure.layout.yaxis.ticktext) == ["node 4", "node 3", "node 2"]
    assert "Nodes 2 to 4 of 8" in title_of(figure)


def test_the_terms_of_t_max_add_up_and_a_star_marks_the_plan(plan: Plan) -> None:
    figure = t_max_figure(plan)
    total, sums, waiting = (
        next(t for t in traces(figure, name) if t.mode == "markers")
        for name in ("T = Σt + (B−1)·t_max", "Σt, the first microbatch", "(B−1)·t_max, the others")
    )
    assert list(total.y) == pytest.approx([a + b for a, b in zip(sums.y, waiting.y, strict=True)])
    (star,) = traces(figure, "the plan")
    assert star.y[0] == pytest.approx(plan.predicted.iteration_seconds)
    assert star.x[0] == pytest.approx(plan.predicted.t_max_seconds * 1e3)


def test_t_max_shows_the_outcome_of_every_candidate(plan: Plan) -> None:
    figure = t_max_figure(plan)
    shown = {name: len(traces(figure, name)[0].x) for name in ("evaluated", "ruled out", "no partition")}
    assert sum(shown.values()) == len(plan.t_max_sweep)
    assert all(shown.values())


def panels_of(figure: go.Figure) -> list[str]:
    (headings,) = traces(figure, "submeshes")
    return [text.removeprefix("<b>").removesuffix("</b>") for text in headings.text]


def cell_of(figure: go.Figure, panel: int, first: int, last: int) -> tuple[int, int]:
    """The cell of a range of layers in a panel, according to the ticks of the axes: (down, across)."""
    (headings,) = traces(figure, "submeshes")
    y, x = math.ceil(headings.y[panel]), math.ceil(headings.x[panel])

    def find(axis: go.layout.XAxis, layer: int, start: int) -> int:
        ticks = zip(axis.tickvals, axis.ticktext, strict=True)
        return layer + next(at for at, text in ticks if at >= start and text == "0")

    return find(figure.layout.yaxis, first, y), find(figure.layout.xaxis, last, x)


def test_stage_costs_frames_the_stages_of_the_plan_and_crosses_out_what_does_not_fit(plan: Plan) -> None:
    figure = stage_costs_figure(plan)
    (fits,), (over,) = traces(figure, "fits"), traces(figure, "does not fit")
    assert len(panels_of(figure)) == len(plan.costs.submeshes)
    stage = plan.stages[2]
    y, x = cell_of(figure, panels_of(figure).index("1 × 4 devices"), 2, 4)
    assert 10 ** fits.z[y][x] == pytest.approx(stage.latency_seconds)
    assert "layers 2–4" in fits.hovertext[y][x]
    (frame,) = traces(figure, "stage 2")
    assert (min(frame.x) + max(frame.x), min(frame.y) + max(frame.y)) == pytest.approx((2 * x, 2 * y))
    y, x = cell_of(figure, 0, 0, 5)
    assert over.z[y][x] == 1.0
    assert "does not fit" in over.hovertext[y][x]
    assert over.texttemplate == "✕"
    assert fits.hovertext[y][x] == ""
    assert math.isnan(fits.z[y][x])
    assert {f"stage {s.index}" for s in plan.stages} <= {t.name for t in figure.data}


@pytest.mark.parametrize(("cluster", "layers"), [("1x1:a100", 3), ("2x4:v100", 6), ("2x4:v100", 12)])
def test_every_pair_of_a_range_of_layers_and_a_submesh_has_a_cell_of_its_own_that_names_it(
    cluster: str, layers: int
) -> None:
    plan = example_plan(cluster, num_layers=layers)
    figure = stage_costs_figure(plan, submeshes=range(len(plan.costs.submeshes)))
    named = {
        (y, x): text
        for trace in (*traces(figure, "fits"), *traces(figure, "does not fit"))
        for y, row in enumerate(trace.hovertext)
        for x, text in enumerate(row)
        if text
    }
    rows = stage_costs_table(plan)
    shapes = [(m.nodes, m.devices_per_node) for m in plan.costs.submeshes]
    places = {cell_of(figure, shapes.index(row["submesh"]), *row["layers"]): row for row in rows}
    assert len(places) == len(rows) == len(named)
    assert all(f"on submesh {row['submesh']}" in named[at] for at, row in places.items())


def test_stage_costs_of_many_layers_draws_some_submeshes_including_those_of_the_plan() -> None:
    plan = example_plan("8x8:v100", num_layers=12)
    figure = stage_costs_figure(plan)
    assert len(panels_of(figure)) == 6 < len(plan.costs.submeshes)
    assert "6 of the 11 submeshes are drawn" in title_of(figure)
    assert "Small and grey: does not fit." in title_of(figure)
    (over,) = traces(figure, "does not fit")
    assert over.xgap > 5 > traces(figure, "fits")[0].xgap, "colour is not the only sign"
    assert {f"stage {s.index}" for s in plan.stages} <= {t.name for t in figure.data}
    assert len(panels_of(stage_costs_figure(plan, submeshes=range(11)))) == 11


def test_stage_costs_shows_the_requested_panels(plan: Plan) -> None:
    assert panels_of(stage_costs_figure(plan, submeshes=[1])) == ["1 × 2 devices"]


def test_sharding_colours_a_spec_by_its_number_of_shards(plan: Plan) -> None:
    figure = sharding_figure(plan, 2, start=0, count=6)
    (specs,) = traces(figure, "specs")
    first = plan.stages[2].operators[0]
    assert specs.text[0][-1] == first.output == "S0RR"
    assert specs.z[0][-1] == math.log2(4)
    assert "0–5 of 171" in title_of(figure)


def test_sharding_of_a_long_stage_joins_equal_operators_and_keeps_their_time(plan: Plan) -> None:
    figure = sharding_figure(plan, 2)
    rows = len(traces(figure, "specs")[0].y)
    assert rows <= 48 < len(plan.stages[2].operators)
    labels = list(figure.layout.yaxis.ticktext)
    assert any("× " in label for label in labels)
    assert labels[0].startswith("<b>forward</b>")
    shown = sum(sum(t.x) for name in ("compute", "communication") for t in traces(figure, name)) * 1e-3
    time = sum(o.compute_seconds + o.communication_seconds for o in plan.stages[2].operators)
    assert 0.95 * time <= shown <= time * (1 + 1e-9)


def test_sharding_selects_a_layer_and_a_phase(plan: Plan) -> None:
    figure = sharding_figure(plan, 2, layer=3, phase="backward", start=0, count=500)
    expected = [o for o in plan.stages[2].operators if o.layer == 3 and o.phase == "backward"]
    assert len(traces(figure, "specs")[0].y) == len(expected) > 0


def test_sharding_names_the_spec_constraints_on_the_operators_of_its_stage(plan: Plan) -> None:
    first, other = plan.stages[2].operators[0], plan.stages[0].operators[0]
    spec_constraints = constraints_of({first.name: first.output, other.name: other.output})
    title = title_of(
        sharding_figure(replace(plan, options=replace(plan.options, spec_constraints=spec_constraints)), 2)
    )
    assert f"Spec constraints: {first.name} is {first.output}." in title
    assert other.name not in title
    assert "Spec constraints" not in title_of(sharding_figure(plan, 2))


def test_sharding_without_strategies_says_so(plan: Plan) -> None:
    bare = replace(plan, stages=tuple(replace(s, operators=()) for s in plan.stages))
    assert "not in the plan" in title_of(sharding_figure(bare))


def test_sharding_refuses_a_stage_that_does_not_exist(plan: Plan) -> None:
    with pytest.raises(OptionError, match="no such stage"):
        sharding_figure(plan, 9)


def test_more_stages_than_colours_differ_by_hatching() -> None:
    looks = [(stage_color(i), stage_pattern(i)) for i in range(64)]
    assert len(set(looks)) == 64
    assert [stage_pattern(i) for i in range(8)] == [""] * 8


def test_text_on_the_colour_of_a_stage_has_the_better_contrast() -> None:
    assert [ink_on(color) for color in OKABE_ITO] == ["#ffffff"] + ["#000000"] * 7
