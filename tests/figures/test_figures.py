"""Each figure shows the numbers of its plan: asserted on the data of the figure, never on pixels."""

import json
import math
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from html import escape
from pathlib import Path
from typing import Any

import plotly.graph_objects as go
import pytest

from alpa_explore.accuracy.record import Record
from alpa_explore.figures.accuracy.layout_choices import layout_choices_figure
from alpa_explore.figures.accuracy.predictions import predictions_figure
from alpa_explore.figures.accuracy.sources import sources_figure
from alpa_explore.figures.accuracy.weak_spots import weak_spots_figure
from alpa_explore.figures.comparisons.baselines import baselines_figure
from alpa_explore.figures.comparisons.compare import compare_figure
from alpa_explore.figures.comparisons.effort import effort_figure
from alpa_explore.figures.comparisons.microbatches import microbatches_figure
from alpa_explore.figures.comparisons.search import search_figure
from alpa_explore.figures.comparisons.why import why_figure
from alpa_explore.figures.decisions.cluster import cluster_figure
from alpa_explore.figures.decisions.frontier import frontier_figure
from alpa_explore.figures.decisions.layers import layers_figure
from alpa_explore.figures.decisions.sharding import sharding_figure
from alpa_explore.figures.decisions.stage_costs import stage_costs_figure
from alpa_explore.figures.decisions.t_max import t_max_figure
from alpa_explore.figures.runs import steps_figure
from alpa_explore.figures.style import OKABE_ITO, ink_on, stage_color, stage_pattern, stage_swatch
from alpa_explore.figures.timelines.stage_memory import stage_memory_figure
from alpa_explore.figures.timelines.timeline import timeline_figure
from alpa_explore.plans.plan import Plan, load_plan
from alpa_explore.sharding.spec_constraint import constraints_of
from tests.accuracy.example import example_record
from tests.figures.conftest import HOSTILE
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
    effort_figure,
]
OF_RECORD = [predictions_figure, sources_figure, layout_choices_figure, weak_spots_figure]
OF_SEVERAL: dict[str, Callable[..., go.Figure]] = {
    "search": lambda plan, **theme: search_figure(plan, tried=[plan], **theme),
    "baselines": lambda plan, **theme: baselines_figure([plan, plan], **theme),
    "compare": lambda plan, **theme: compare_figure(plan, replace(plan, stages=plan.stages[:1]), **theme),
    "steps": lambda plan, **theme: steps_figure(plan, steps=(), total=9, predicted_seconds=0.2, **theme),
    "two timelines": lambda plan, **theme: timeline_figure(plan, ("1f1b", "gpipe"), brush=True, **theme),
}
ALL = [*FIGURES, stage_memory_figure, *OF_RECORD, *(pytest.param(d, id=name) for name, d in OF_SEVERAL.items())]
PLANS: dict[str, Callable[[], Plan]] = {
    "usual": example_plan,  # four stages on 2 × 4 devices, 172 forward operators
    "other": lambda: example_plan("1x4:v100", num_layers=12),
    "one device": lambda: example_plan("1x1:a100"),
    "large": lambda: example_plan("8x8:v100"),
    "deep": lambda: example_plan("2x8:v100", num_layers=12, num_microbatches=512),
    "long": lambda: example_plan("8x8:h100", blocks=360),
}


@cache
def plan_of(name: str) -> Plan:
    return PLANS[name]()


@cache
def drawn(draw: Callable[..., go.Figure], name: str = "usual", theme: str = "light") -> go.Figure:
    """The figure of a plan, or of measured runs; drawn once for all tests, which only read it."""
    return draw(example_record() if draw in OF_RECORD else plan_of(name), theme=theme)


def traces(figure: go.Figure, name: str) -> list[Any]:
    return [trace for trace in figure.data if trace.name == name]


def trace_of(figure: go.Figure, name: str) -> Any:
    (found,) = traces(figure, name)
    return found


def parsed(text: str | None) -> Any:
    """A figure without the empty parts, which plotly leaves out where it checks."""
    return json.loads(text or "", object_hook=lambda entry: {k: v for k, v in entry.items() if v not in ({}, [], None)})


def title_of(figure: go.Figure) -> str:
    return str(figure.layout.title.text).replace("<br>", " ")


@pytest.mark.parametrize("draw", FIGURES)
def test_a_title_is_one_sentence_about_its_plan(draw: Callable[..., go.Figure]) -> None:
    other = title_of(drawn(draw, "other"))
    for name in ("usual", "one device", "large"):
        title = title_of(drawn(draw, name))
        assert title.endswith(".")
        assert any(letter.isdigit() for letter in title) or "One stage" in title
        assert title != other


@pytest.mark.parametrize("draw", [*FIGURES, stage_memory_figure, *OF_RECORD])
def test_the_title_of_a_figure_is_its_sentence(draw: Callable[..., go.Figure]) -> None:
    sentence = getattr(sys.modules[draw.__module__], draw.__name__.replace("_figure", "_sentence"))
    title = title_of(drawn(draw))
    assert title == escape(sentence(example_record() if draw in OF_RECORD else plan_of("usual")), quote=False)
    assert title.endswith(".")


@pytest.mark.parametrize("draw", ALL)
def test_themes_change_the_background_and_not_the_data(draw: Callable[..., go.Figure]) -> None:
    figures = [drawn(draw), drawn(draw, theme="dark")]
    assert [figure.layout.paper_bgcolor for figure in figures] == ["#ffffff", "#111111"]
    light, dark = ([(t.name, t.type, len(t.x) if t.x is not None else 0) for t in f.data] for f in figures)
    assert light == dark
    assert "#ffffff" not in json.dumps(figures[1].layout.to_plotly_json(), default=str)


@pytest.mark.parametrize("draw", FIGURES)
def test_nothing_is_drawn_with_shapes_or_many_annotations(draw: Callable[..., go.Figure]) -> None:
    figure = drawn(draw, "deep")
    assert len(figure.layout.shapes) == 0
    assert len(figure.layout.annotations) <= 12  # headings of panels
    assert len(figure.data) <= 60


@pytest.mark.parametrize("draw", FIGURES)
def test_a_plan_from_a_file_draws_the_same(draw: Callable[..., go.Figure], tmp_path: Path) -> None:
    plan_of("usual").save(tmp_path / "a")
    assert draw(load_plan(tmp_path / "a")).to_json() == drawn(draw).to_json()


@pytest.mark.parametrize("draw", ALL)
def test_a_name_cannot_inject_a_tag_into_a_figure(draw: Callable[..., go.Figure], hostile_plan: Plan) -> None:
    record = example_record()
    runs = tuple(replace(r, model=HOSTILE, software=HOSTILE, precision=HOSTILE) for r in record.runs)
    hostile = Record(runs=runs, sources=tuple(replace(s, label=HOSTILE) for s in record.sources))
    text = draw(hostile if draw in OF_RECORD else hostile_plan).to_json() or ""
    plain = text.replace("\\u003c", "<").replace("\\u003e", ">").replace("\\u002f", "/")
    for tag in ("<script", "<img", "<a "):
        assert tag not in plain


@pytest.mark.parametrize("draw", ALL)
@pytest.mark.parametrize(("name", "theme"), [("one device", "light"), ("large", "dark")])
def test_plotly_accepts_what_it_did_not_check(draw: Callable[..., go.Figure], name: str, theme: str) -> None:
    figure = drawn(draw, name, theme)
    checked = go.Figure(figure.to_dict())
    assert parsed(checked.to_json()) == parsed(figure.to_json(validate=False))
    assert len(checked.data) > 0
    points = [t for t in checked.data if t.type in ("bar", "scatter") and t.x is not None and t.y is not None]
    assert all(len(trace.x) == len(trace.y) for trace in points)
    assert checked.layout.template.layout.font.color, "the template is there"


def flops_of(figure: go.Figure) -> float:
    """FLOPs of one unit of the axis of Layers."""
    return {"PFLOP": 1e15, "TFLOP": 1e12, "GFLOP": 1e9, "MFLOP": 1e6}[figure.layout.yaxis2.title.text]


def test_layers_shows_every_forward_operator_in_the_colour_of_its_stage(plan: Plan) -> None:
    figure = layers_figure(plan)
    for stage in plan.stages:
        strip, bars = traces(figure, f"stage {stage.index}")
        layers = plan.layers[stage.layers[0] : stage.layers[1] + 1]
        assert [y * flops_of(figure) for y in bars.y] == pytest.approx(
            [f for layer in layers for f in layer.operator_flops]
        )
        assert bars.marker.color == strip.marker.color == stage_color(stage.index)
    assert len(traces(figure, "cuts")[0].x) == len(plan.layers) - 1


@pytest.mark.parametrize("draw", FIGURES)
def test_a_figure_of_ten_thousand_operators_has_no_more_marks_than_a_browser_draws_at_once(
    draw: Callable[..., go.Figure],
) -> None:
    assert sum(len(stage.operators) for stage in plan_of("long").stages) > 10_000
    figure = drawn(draw, "long")
    marks = sum(max(len(getattr(trace, axis, None) or ()) for axis in "xy") for trace in figure.data)
    assert marks <= 5000
    assert len(figure.to_json(validate=False) or "") < 1e6


def test_in_a_long_model_neighbouring_operators_of_one_layer_share_a_mark() -> None:
    plan, figure = plan_of("long"), drawn(layers_figure, "long")
    count = sum(len(layer.operators) for layer in plan.layers)
    bars = [traces(figure, f"stage {stage.index}")[1] for stage in plan.stages]
    assert sum(len(trace.x) for trace in bars) <= 700 < 5000 < count
    assert sum(sum(trace.width) for trace in bars) == count
    assert sum(sum(trace.y) for trace in bars) * flops_of(figure) == pytest.approx(
        sum(layer.flops for layer in plan.layers)
    )
    assert f"Each mark stands for up to {-(-count // 600)} operators" in title_of(figure)


def test_sharding_colours_a_spec_by_its_number_of_shards(plan: Plan) -> None:
    figure = sharding_figure(plan, 2, start=0, count=6)
    (specs,) = traces(figure, "specs")
    first = plan.stages[2].operators[0]
    assert specs.text[0][-1] == first.output == "S0RR"
    assert specs.z[0][-1] == math.log2(4)
    assert "0–5 of the 171" in title_of(figure)


def test_sharding_of_a_long_stage_joins_equal_operators_and_keeps_their_time(plan: Plan) -> None:
    figure = sharding_figure(plan, 2)
    rows = len(traces(figure, "specs")[0].y)
    assert rows <= 48 < len(plan.stages[2].operators)
    labels = list(figure.layout.yaxis.ticktext)
    assert any("× " in label for label in labels)
    assert labels[0].startswith("<b>forward</b>")
    shown = sum(sum(t.x) for name in ("compute", "collectives") for t in traces(figure, name)) * 1e-3
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


def test_sharding_says_what_a_spec_means_in_the_title_and_at_every_tensor(plan: Plan) -> None:
    figure = sharding_figure(plan, 2, start=0, count=40)
    assert "S0: this dim is divided over mesh axis 0 (4 devices), R: whole, +P0: pending sum over axis 0" in title_of(
        figure
    )
    (specs,) = traces(figure, "specs")
    hovers = {
        text: hover
        for line, over in zip(specs.text, specs.hovertext, strict=True)
        for text, hover in zip(line, over, strict=True)
    }
    assert "dim 0 (8) over axis 0 → 2 each<br>every device holds 2×1,024×2,560 of 8×1,024×2,560" in hovers["S0RR"]
    assert "pending sum over axis 0: every device holds an addend" in hovers["RRR+P0"]
    assert hovers[""] == "", "no text where there is no tensor"


def test_sharding_writes_the_time_beside_every_bar(plan: Plan) -> None:
    figure = sharding_figure(plan, 2)
    (values,), (collectives,) = traces(figure, "values"), traces(figure, "collectives")
    assert len(values.text) == len(collectives.x)
    assert all((" + " in text) == (x > 0) for text, x in zip(values.text, collectives.x, strict=True))
    assert figure.layout.xaxis2.title.text.startswith("ms per microbatch")


def test_specs_are_black_or_white_on_their_colour(plan: Plan) -> None:
    (names,) = traces(sharding_figure(plan, 2), "names of specs")
    assert set(names.textfont.color) == {"#000000", "#ffffff"}


def test_sharding_without_strategies_says_so(plan: Plan) -> None:
    bare = replace(plan, stages=tuple(replace(s, operators=()) for s in plan.stages))
    assert "not in the plan" in title_of(sharding_figure(bare))


def test_more_stages_than_colours_differ_by_shade_and_hatching() -> None:
    looks = [(stage_color(i), stage_pattern(i)) for i in range(64)]
    assert len(set(looks)) == 64
    assert len({color for color, _ in looks[:24]}) == 24, "stages 8 to 23 have colours of their own"
    assert len({stage_swatch(i) for i in range(24)}) == 24
    assert [stage_pattern(i) for i in range(8)] == [""] * 8


def test_text_on_the_colour_of_a_stage_has_the_better_contrast() -> None:
    assert [ink_on(color) for color in OKABE_ITO] == ["#ffffff"] + ["#000000"] * 7


def test_the_boxes_of_layers_have_the_labels_that_fit() -> None:
    deep_plan, figure = plan_of("deep"), drawn(layers_figure, "deep")
    labels = [label for stage in deep_plan.stages for label in traces(figure, f"stage {stage.index}")[0].text]
    assert "stage 0" not in labels, "a twelfth of the width has no room for it"
    assert {str(stage.index) for stage in deep_plan.stages} <= set(labels)
