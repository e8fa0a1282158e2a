"""The Accuracy tab shows the record in five views, and the bands of the plan on screen."""

from dataclasses import replace

import pytest
from alpa_explore_widgets.panels.verdict import verdict_html
from alpa_explore_widgets.session.state import State
from alpa_explore_widgets.tabs.accuracy import AccuracyPanel

from alpa_explore.plans.plan import Plan
from tests.accuracy.example import example_record, use_record
from tests.plans.example import example_plan
from tests.widgets.conftest import SETTINGS


def measured_plan() -> Plan:
    """Of a kind that the example record has measured."""
    plan = example_plan("2x4:h100")
    return replace(plan, cluster=plan.cluster.with_changes(software="megatron"))


def test_each_view_has_its_figure_and_its_table(monkeypatch: pytest.MonkeyPatch) -> None:
    use_record(monkeypatch, example_record())
    panel, state = AccuracyPanel(), State(settings=SETTINGS, plan=measured_plan())
    panel.show(state, "light")
    findings = {}
    for view in ("time", "memory", "sources", "choices", "weak spots"):
        panel.view.value = view
        findings[view] = panel.finding.value
        assert "alpa-message" not in panel.finding.value
        assert panel.rows(state)
    assert len(set(findings.values())) == 5
    panel.view.value = "sources"
    assert "<table>" in panel.details.value


def test_the_bands_of_the_plan_on_screen_stand_below_the_figure(monkeypatch: pytest.MonkeyPatch) -> None:
    use_record(monkeypatch, example_record())
    panel = AccuracyPanel()
    panel.show(State(settings=SETTINGS, plan=measured_plan()), "light")
    assert "mean error of 6 runs of Megatron-Core in 16 bits on several nodes of H100" in panel.bands.value
    panel.show(State(settings=SETTINGS, plan=example_plan()), "light")
    assert "no run like this was measured" in panel.bands.value


def test_the_figure_is_drawn_once_for_all_plans(monkeypatch: pytest.MonkeyPatch) -> None:
    use_record(monkeypatch, example_record())
    panel, drawn = AccuracyPanel(), []
    monkeypatch.setattr(panel.figure, "draw", lambda figure, label: drawn.append(label))
    for plan in (measured_plan(), example_plan()):
        panel.show(State(settings=SETTINGS, plan=plan), "light")
    assert len(drawn) == 1, "thousands of points are not sent again while a slider moves"
    panel.view.value = "memory"
    assert len(drawn) == 2


def test_the_verdict_carries_the_band_and_its_tooltips_say_where_it_is_from(monkeypatch: pytest.MonkeyPatch) -> None:
    use_record(monkeypatch, example_record())
    html = verdict_html(measured_plan())
    assert "± 20 % · 6 runs like it" in html
    assert html.count("mean error of 6 runs of Megatron-Core") == 3, "time, memory, FLOP/s"
    assert "no run like it was measured" in verdict_html(example_plan(paper=False))
