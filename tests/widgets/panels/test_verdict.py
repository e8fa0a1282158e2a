import re
from dataclasses import replace

import pytest
from alpa_explore_widgets.export import plan_table
from alpa_explore_widgets.panels import verdict
from alpa_explore_widgets.session.asking.layouts import question_of
from alpa_explore_widgets.session.state import Answer, State
from alpa_explore_widgets.tabs.of_plan import TimelinePanel

import alpa_explore as ax
from alpa_explore import units
from alpa_explore.cluster.kernel_store import KernelStore
from alpa_explore.figures.page import page_html
from alpa_explore.figures.runs import steps_sentence
from alpa_explore.plans.file.document import to_document
from alpa_explore.plans.iteration_time import iteration_time
from alpa_explore.plans.plan import Plan
from alpa_explore.plans.report.summary import plan_report
from alpa_explore.plans.report.tables import plan_summary
from tests.figures.layouts.test_layout_figures import priced_layouts
from tests.plans.example import example_plan
from tests.widgets.conftest import SETTINGS


def test_the_verdict_says_layout_fit_time_and_rates_and_its_tooltips_where_they_come_from(plan: Plan) -> None:
    html = verdict.verdict_html(plan)
    for said in (
        "<b>122</b> ms <span>an iteration",
        "<span>PP 2</span> · ",
        "<b>fits</b>",
        'style="width:',
        "8.82 GiB to spare",
        "<b>13.1 %</b> MFU",
        "tokens/s a GPU",
        "bubble",
    ):
        assert said in html, said
    for hint in (
        'title="T, simulated, = ',
        "forward and backward passes",
        "expected error unknown: no run like this was measured",
        "without recomputation, and without masked parts of attention",
        "device-hours for a billion tokens",
        "a framework can use ",
    ):
        assert hint in html, hint
    assert "$" not in html
    assert "<b>7.28 $</b> a million tokens" in verdict.verdict_html(plan, prices={plan.cluster.device.name: 110.0})


def test_the_share_of_the_time_that_was_timed_on_the_device_stands_with_the_error() -> None:
    modelled = example_plan(paper=False)
    store = KernelStore(device="NVIDIA V100", driver="", software="torch 2.13", date="2026-11-29", kernels={})
    stages = tuple(
        replace(stage, operators=tuple(replace(o, measured_seconds=0.75 * o.compute_seconds) for o in stage.operators))
        for stage in modelled.stages
    )
    cluster = modelled.cluster.with_changes(measured=store)
    html = verdict.verdict_html(replace(modelled, cluster=cluster, stages=stages))
    assert ">no run like it · 75 % timed</p>" in html
    assert (
        "75 % of the computing time were timed on this kind of device, NVIDIA V100 (2026-11-29, torch 2.13); the"
        in html
    )
    html = verdict.verdict_html(modelled)
    assert "timed</p>" not in html
    assert "No kernel was timed on this device" in html


@pytest.mark.parametrize(
    ("peak", "tight", "said"),
    [
        (8.0, False, ("good", "fits", "7.82 GiB to spare")),
        (15.0, True, ("warn", "tight", "844 MiB to spare")),
        (15.9, True, ("warn", "tight", "77.8 MiB over what is usable")),
        (17.0, False, ("bad", "does not fit", "1 GiB too much")),
    ],
)
def test_what_is_spare_is_said_in_a_colour_and_a_word(peak: float, tight: bool, said: tuple[str, str, str]) -> None:
    assert verdict.spare_words(peak * 2**30, 16 * 2**30, is_tight=tight) == said


def test_names_of_strangers_cannot_act_on_the_page(plan: Plan) -> None:
    hostile = replace(plan, model=replace(plan.model, name="<img src=x onerror=alert(1)>", precision="<b>"))
    for html in (verdict.verdict_html(hostile), verdict.stages_html(hostile), plan_table(hostile, "<img src=x>")):
        assert "<img" not in html
        assert "in <b>" not in html


def test_every_stage_has_its_colour_and_its_layers_in_the_legend(plan: Plan) -> None:
    html = verdict.stages_html(plan)
    assert html.count("<li") == 2
    assert "layers 0–1" in html
    assert html.count("background:#") == 2


def test_each_figure_shows_its_change_against_the_pinned_plan(plan: Plan) -> None:
    faster = replace(plan, predicted=replace(plan.predicted, iteration_seconds=plan.predicted.iteration_seconds / 2))
    html = verdict.verdict_html(faster, plan)
    assert re.search(r'<em class="alpa-better" title="pinned: 122 ms">−50 % better</em>', html), "shorter"
    assert html.count("+100 % better</em>") == 2, "twice the samples a second, twice the MFU"
    assert "±0" in html, "memory is as it was"
    assert "alpa-worse" in verdict.verdict_html(plan, faster)
    assert "<em" not in verdict.verdict_html(plan)


def test_the_best_layouts_that_are_not_the_plan_can_be_opened(plan: Plan) -> None:
    layouts = priced_layouts()
    state = State(
        settings=SETTINGS,
        plan_settings=SETTINGS,
        plan=plan,
        layouts=Answer(question=question_of(SETTINGS), found=layouts),
    )
    panel = verdict.VerdictPanel()
    panel.show(state)
    opened = re.findall(r'data-alpa-key="layout:(\d+)"', panel.below.value)
    assert [layouts.ranked[int(rank) - 1] for rank in opened] == list(layouts.fitting[:3])
    other = replace(question_of(SETTINGS), nodes=7)
    panel.show(replace(state, layouts=Answer(question=other, found=layouts)))
    assert "layout:" not in panel.below.value, "they are those of other settings"


@pytest.mark.slow
def test_the_sends_are_the_same_number_in_verdict_timeline_report_file_and_page() -> None:
    plan = example_plan(num_layers=8, num_microbatches=64)
    time = iteration_time(plan)
    share, seconds = units.percent(time.sends_fraction), units.seconds(time.sends_seconds)
    phrase = f"{seconds} of sends between stages ({share})"
    tile = verdict.verdict_html(plan)
    assert f"<b>{units.seconds(plan.predicted.iteration_seconds).replace(' ', '</b> ')}" in tile
    assert ">ideal, as in the paper</p>" in tile
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
def test_t_is_one_number_in_verdict_timeline_report_file_and_page() -> None:
    plan = example_plan(num_layers=8, num_microbatches=64, paper=False)
    plan = ax.replan(plan, pipeline=ax.PipelineOptions(num_stages=4))
    total, end = units.seconds(plan.predicted.iteration_seconds), plan.timeline().makespan_seconds
    assert plan.predicted.iteration_seconds == end
    assert f"<b>{total.replace(' ', '</b> ')}" in verdict.verdict_html(plan)
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
