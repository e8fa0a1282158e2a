"""The figure of the t_max sweep: the parts of T add up, and the optimum and what surrounds it are in view."""

from dataclasses import replace

import pytest

from alpa_explore.figures.decisions.t_max import t_max_figure, t_max_sentence
from alpa_explore.figures.keys import link, read_key
from alpa_explore.plans.plan import Plan
from alpa_explore.plans.report.tables import outcome
from tests.figures.test_figures import traces
from tests.plans.example import example_plan

MILLISECONDS = 1e3


def test_the_parts_of_t_add_up_and_a_star_marks_the_plan(plan: Plan) -> None:
    figure = t_max_figure(plan)
    (totals,), (sums,) = traces(figure, "T of the candidates"), traces(figure, "Σt of the candidates")
    unit = MILLISECONDS if "ms" in figure.layout.yaxis2.title.text else 1.0
    rounds = plan.options.num_microbatches - 1
    expected = [s / unit + rounds * t / MILLISECONDS for s, t in zip(sums.y, sums.x, strict=True)]
    assert list(totals.y) == pytest.approx(expected)
    (star,) = traces(figure, "the plan")
    assert star.y[0] == pytest.approx(plan.predicted.iteration_seconds)
    assert star.x[0] == pytest.approx(plan.predicted.t_max_seconds * MILLISECONDS)


def test_the_outcome_of_every_candidate_is_shown(plan: Plan) -> None:
    figure = t_max_figure(plan)
    shown = {name: len(traces(figure, name)[0].x) for name in ("evaluated", "ruled out", "no partition")}
    assert sum(shown.values()) == len(plan.t_max_sweep)
    assert all(shown.values())


@pytest.mark.parametrize("microbatches", [8, 128, 1024])
def test_sigma_t_is_seen_at_any_number_of_microbatches(microbatches: int) -> None:
    plan = example_plan("2x4:v100", num_microbatches=microbatches)
    figure = t_max_figure(plan)
    low, high = figure.layout.yaxis.range
    (band,) = traces(figure, "Σt, the first microbatch")
    height = max(band.y) - min(band.y)
    assert height > 0.02 * (high - low), "the band beside T"
    (star,) = traces(figure, "the plan")
    assert low < star.y[0] < high
    left, right = figure.layout.xaxis.range
    assert left < star.x[0] < right < 2 * star.x[0]
    (sums,) = traces(figure, "Σt of the candidates")
    assert figure.layout.yaxis2.range[0] == 0 < 0.5 * figure.layout.yaxis2.range[1] < max(sums.y)


def test_what_is_too_small_is_shaded_up_to_the_first_partition(plan: Plan) -> None:
    figure = t_max_figure(plan)
    (shade,) = traces(figure, "t_max too small")
    none = [p.t_max_seconds for p in plan.t_max_sweep if outcome(p) == "no partition"]
    first = min(p.t_max_seconds for p in plan.t_max_sweep if p.iteration_seconds is not None)
    assert max(none) * MILLISECONDS < max(shade.x) <= first * MILLISECONDS


def test_the_plan_selects_its_slowest_stage_and_every_other_partition_opens_as_a_plan(plan: Plan) -> None:
    figure = t_max_figure(plan)
    slowest = max(plan.stages, key=lambda stage: stage.latency_seconds).index
    (star,), (evaluated,) = traces(figure, "the plan"), traces(figure, "evaluated")
    assert list(star.customdata) == [link(stage=slowest)]
    assert star.hovertext[0].endswith(f"click: selects stage {slowest}, the slowest of the plan")
    for name in ("evaluated", "T of the candidates", "Σt of the candidates"):
        (marks,) = traces(figure, name)
        assert [bool(target) for target in marks.customdata] == ["click:" in text for text in marks.hovertext]
    others = [read_key(text)["change"] for text in evaluated.customdata if not text.startswith("select")]
    found = [p.t_max_seconds for p in plan.t_max_sweep if p.iteration_seconds is not None]
    assert {float(change.removeprefix("t_max=")) for change in others} == {*found} - {plan.predicted.t_max_seconds}


def test_what_is_added_once_to_an_iteration_is_neither_waiting_nor_a_stage(plan: Plan) -> None:
    software = replace(plan.cluster.software, iteration_seconds=0.5)
    predicted = replace(plan.predicted, iteration_seconds=plan.predicted.iteration_seconds + 0.5)
    sweep = tuple(
        p if p.iteration_seconds is None else replace(p, iteration_seconds=p.iteration_seconds + 0.5)
        for p in plan.t_max_sweep
    )
    cluster = plan.cluster.with_changes(software=software)
    slower = replace(plan, cluster=cluster, predicted=predicted, t_max_sweep=sweep)
    (before,), (after,) = (traces(t_max_figure(p), "Σt of the candidates") for p in (plan, slower))
    assert list(after.y) == pytest.approx(list(before.y))
    assert "+ 500 ms overhead" in t_max_sentence(slower)
    assert "overhead" not in t_max_sentence(plan)
