"""The overview: four small figures of a plan, linked by keys, each with a line and a way to its tab."""

import re
from dataclasses import replace

import pytest
from alpa_explore_widgets.overview.cards import CARDS, overview_html, plan_svg, t_max_card
from alpa_explore_widgets.overview.drawing import HEIGHT
from alpa_explore_widgets.overview.parts import layers_card

from alpa_explore import units
from alpa_explore.figures.keys import read_key, valid_key
from alpa_explore.planner.replan import replan
from alpa_explore.plans.plan import Plan
from alpa_explore.questions.explain import mean_parts, time_parts
from tests.plans.example import example_plan

PLAN = example_plan()
PLANS = [PLAN, example_plan("1x1:a100"), replan(PLAN, num_microbatches=3)]


def keys(html: str) -> list[str]:
    return re.findall(r'data-key="([^"]*)"', html)


@pytest.mark.parametrize("plan", PLANS)
def test_every_mark_names_something_of_the_plan_and_every_stage_is_in_every_figure(plan: Plan) -> None:
    for card in (make(plan) for make in CARDS):
        assert all(valid_key(plan, key) == key for key in keys(card.drawing)), card.tab
        assert {int(read_key(key)["stage"]) for key in keys(card.drawing)} == set(range(len(plan.stages))), card.tab


def test_every_layer_and_every_device_has_a_mark() -> None:
    layers, cluster, _, _ = (make(PLAN) for make in CARDS)
    marked = {read_key(key).get("layer") for key in keys(layers.drawing)} - {None}
    assert marked == {str(layer.index) for layer in PLAN.layers}
    assert len(keys(cluster.drawing)) == PLAN.cluster.devices


def test_devices_are_filled_as_far_as_their_memory() -> None:
    cluster = CARDS[1](PLAN).drawing
    for stage in PLAN.stages:
        device = stage.devices[0]
        group = re.search(rf'data-key="stage:{stage.index}/device:{device}">.*?</g>', cluster)
        assert group is not None
        place, filled = (int(width) for width in re.findall(r' width="(\d+)"', group[0]))
        memory = PLAN.device_of(stage).memory_bytes
        assert filled / place == pytest.approx(stage.peak_bytes / memory, abs=0.01)


def test_the_bars_of_why_are_the_parts_of_the_time_and_the_largest_is_listed() -> None:
    why = CARDS[3](PLAN).drawing
    share, name = max((seconds, name) for name, seconds in mean_parts(time_parts(PLAN)).items())
    assert f"<b>{units.percent(share / PLAN.predicted.iteration_seconds)}</b> {name}" in why
    for row in re.findall(r"<g data-key=.*?</g>", why):
        widths = [int(width) for width in re.findall(r' width="(\d+)"', row)]
        assert sum(widths) == pytest.approx(10_000, abs=5), "the parts add up to T"


def test_nodes_with_the_same_stages_share_a_row_where_there_are_many() -> None:
    cluster = CARDS[1]
    assert cluster(PLAN).drawing.count("alpa-row-name") == PLAN.cluster.nodes
    devices = PLAN.cluster.devices_per_node
    many = PLAN.cluster.resized(40, devices)
    stage = replace(PLAN.stages[0], devices=tuple(range(40 * devices)))
    drawing = cluster(replace(PLAN, cluster=many, stages=(stage,))).drawing
    assert re.findall(r'alpa-row-name"[^>]*>([^<]*)<', drawing) == [f"{many.tiers[0].name}s 0–39"]


def test_names_from_a_plan_file_are_escaped() -> None:
    stranger = replace(PLAN, cluster=PLAN.cluster.with_changes(name="<img src=x>"))
    html = overview_html(stranger)
    assert "<img" not in html


def test_each_figure_leads_to_the_tab_of_its_name_and_all_fit_two_rows_of_a_window() -> None:
    html = overview_html(PLAN)
    assert re.findall(r'data-tab="([^"]*)"', html) == ["Layers", "Cluster", "Timeline", "Why"]
    assert html.count("<section") == 4
    assert HEIGHT <= 170


def test_another_b_changes_the_timeline_and_not_the_layers() -> None:
    other = replan(PLAN, num_microbatches=PLAN.options.num_microbatches + 1)
    assert [s.layers for s in other.stages] == [s.layers for s in PLAN.stages]
    before, after = (overview_html(plan) for plan in (PLAN, other))
    cards = [re.findall(r"<section.*?</section>", html) for html in (before, after)]
    assert cards[0][0] == cards[1][0], "the page keeps what is equal"
    assert cards[0][2] != cards[1][2]


def test_the_layers_are_named_all_in_words_or_all_by_numbers() -> None:
    for layers in (2, 8, 12):
        drawing = layers_card(example_plan("2x4:v100", num_layers=layers)).drawing
        words = [f">layer {layer}<" in drawing for layer in range(layers)]
        assert all(words) or not any(words)


def test_the_t_max_card_marks_the_chosen_candidate_alone() -> None:
    card = t_max_card(PLAN)
    assert card.drawing.count("chosen") == 1
    assert card.drawing.count("<rect") >= 1
    bare = t_max_card(replace(PLAN, t_max_sweep=()))
    assert "not recorded" in bare.drawing


def test_the_picture_is_one_drawing_without_a_style_sheet_of_the_page() -> None:
    svg = plan_svg(PLAN)
    shapes = sum(make(PLAN).drawing.count("<rect") for make in (*CARDS, t_max_card))
    assert svg.count("<rect") >= shapes + 1, "those of the cards, and the ground"
    assert "var(" not in svg
    assert len(svg) < 100_000
