from dataclasses import replace

import pytest
from alpa_explore_widgets.export.saved import plan_table
from alpa_explore_widgets.panels import headline
from alpa_explore_widgets.session.state import State
from alpa_explore_widgets.tabs.timeline import TimelinePanel

import alpa_explore as ax
from alpa_explore import units
from alpa_explore.figures.page import page_html
from alpa_explore.figures.runs.steps import steps_sentence
from alpa_explore.plans.file.document import to_document
from alpa_explore.plans.iteration_time import iteration_time
from alpa_explore.plans.plan import Plan
from alpa_explore.plans.report.summary import plan_report
from alpa_explore.plans.report.tables import plan_summary
from tests.plans.example import example_plan
from tests.widgets.conftest import SETTINGS


def test_the_sentence_begins_with_how_the_model_is_divided(plan: Plan) -> None:
    html = headline.sentence_html(plan)
    assert html.startswith("<b>2 stages</b> on 2 devices each")
    assert "122 ms" in html, "24 ms + 7 × 14 ms"
    assert headline.sentence_html(replace(plan, stages=plan.stages[:1])).startswith("<b>One stage</b>")


def test_every_figure_at_the_top_says_where_it_comes_from(plan: Plan) -> None:
    html = headline.tiles_html(plan)
    assert html.count('alpa-tile"') == 8
    assert 'title="T, simulated, = ' in html
    assert "forward and backward passes" in html
    assert 'expected error unknown: no run like this was measured"' in html
    assert "without recomputation, and without masked parts of attention" in html
    assert "<b>122 <small>ms</small></b>" in html
    assert "<i>13.1 % of peak</i>" in html
    assert "<i>of 16 GiB</i>" in html
    assert 'style="width:43.8%"' in html, "peak memory, (4 + 2 × 1 + 1) of 16 GiB"


def test_names_of_strangers_cannot_act_on_the_page(plan: Plan) -> None:
    hostile = replace(plan, model=replace(plan.model, name="<img src=x onerror=alert(1)>", precision="<b>"))
    for html in (headline.sentence_html(hostile), headline.tiles_html(hostile), plan_table(hostile, SETTINGS)):
        assert "<img" not in html
        assert "in <b>" not in html


def test_every_stage_has_its_colour_and_its_layers_in_the_legend(plan: Plan) -> None:
    html = headline.stages_html(plan, "light")
    assert html.count("<li") == 2
    assert "layers 0–1" in html
    assert html.count("background:#") == 2


def test_each_figure_shows_its_change_against_the_pinned_plan(plan: Plan) -> None:
    faster = replace(plan, predicted=replace(plan.predicted, iteration_seconds=plan.predicted.iteration_seconds / 2))
    html = headline.tiles_html(faster, plan)
    assert '<em class="alpa-better">−50 % better</em>' in html, "the iteration is shorter"
    assert '<em class="alpa-better">+1e+02 % better</em>' not in html
    assert '<em class="alpa-better">+100 % better</em>' in html, "twice the samples a second"
    assert "±0" in html, "memory is as it was"
    assert "alpa-worse" in headline.tiles_html(plan, faster)
    assert "<em" not in headline.tiles_html(plan)


@pytest.mark.slow
def test_the_sends_are_the_same_number_in_tile_timeline_report_file_and_page() -> None:
    plan = example_plan(num_layers=8, num_microbatches=64)
    time = iteration_time(plan)
    share, seconds = units.percent(time.sends_fraction), units.seconds(time.sends_seconds)
    phrase = f"{seconds} of sends between stages ({share})"
    tile = headline.tiles_html(plan).split("</div>")[0]
    assert f"<b>{units.seconds(plan.predicted.iteration_seconds).replace(' ', ' <small>')}</small></b>" in tile
    assert f"<i>ideal, as in the paper, + {share} sends</i>" in tile
    assert f"{phrase} = {units.seconds(time.simulated_seconds)} simulated with sends − " in tile
    panel = TimelinePanel()
    panel.show(State(settings=SETTINGS, plan=plan), "light")
    whole = f"{units.seconds(plan.predicted.iteration_seconds)} (ideal, as in the paper) + {phrase}"
    assert f"One iteration: {whole}" in panel.finding.value
    assert panel.finding.value.count(units.seconds(time.simulated_seconds)) == 2
    line = next(line for line in plan_report(plan).splitlines() if line.startswith("sends"))
    assert line.split()[1:7] == [*seconds.split(), *share.split(), "of", "T"]
    assert whole in line
    assert plan_summary(plan)["predicted"]["sends_seconds"] == time.sends_seconds
    assert to_document(plan)["predicted"]["sends_seconds"] == time.sends_seconds
    page = page_html(plan)
    assert f"+ {share} sends</dd>" in page
    assert f"{phrase} = " in page
    assert whole in steps_sentence(plan, (), 20, plan.timeline().makespan_seconds)


@pytest.mark.slow
def test_t_is_one_number_in_tile_timeline_report_file_and_page() -> None:
    plan = example_plan(num_layers=8, num_microbatches=64, paper=False)
    plan = ax.replan(plan, pipeline=ax.PipelineOptions(num_stages=4))
    total, end = units.seconds(plan.predicted.iteration_seconds), plan.timeline().makespan_seconds
    assert plan.predicted.iteration_seconds == end
    tile = headline.tiles_html(plan).split("</div>")[0]
    assert f"<b>{total.replace(' ', ' <small>')}</small></b>" in tile
    assert "<i>of which " in tile
    panel = TimelinePanel()
    panel.show(State(settings=SETTINGS, plan=plan), "light")
    assert f"One iteration: {total}, of which " in panel.finding.value
    line = next(line for line in plan_report(plan).splitlines() if line.startswith("iteration"))
    assert " ".join(line.split()).startswith(f"iteration {total} of which ")
    for document in (plan_summary(plan), to_document(plan)):
        assert document["predicted"]["iteration_seconds"] == end
    page = page_html(plan)
    assert "ideal, as in the paper" not in page
    assert " of which " in page
