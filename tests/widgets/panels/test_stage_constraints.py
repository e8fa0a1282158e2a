"""Constraints on stages that no control shows are kept, listed, and can be removed; an explorer opens at a tab."""

from typing import Any

import pytest
from alpa_explore_widgets import explore
from alpa_explore_widgets.export import plan_code
from alpa_explore_widgets.panels.actions import changed_settings
from alpa_explore_widgets.session.settings import settings_of

import alpa_explore as ax
from alpa_explore.errors import OptionError
from alpa_explore.plans.plan import Plan
from tests.widgets.conftest import set_and_wait

OPTIONS = ax.PipelineOptions(
    cuts=(1,), num_stages=2, stage_submeshes=((0, 1, 2),), imbalance_tolerance=3.0, tied_weights=False, schedule="gpipe"
)


@pytest.fixture(scope="module")
def planned() -> Plan:
    return ax.plan("mlp-tiny", "1x4:v100", num_microbatches=4, num_layers=2, scheduler="serial", pipeline=OPTIONS)


def test_every_pipeline_option_of_a_plan_is_a_setting(planned: Plan) -> None:
    settings = settings_of(planned)
    assert ax.PipelineOptions(**settings.pipeline) == OPTIONS
    assert ax.PipelineOptions(**settings.plan_options["pipeline"]) == OPTIONS
    for explores in (False, True):
        code = plan_code(settings, planned.cluster, reference=settings.model, explores=explores)
        assert "num_stages=2" in code
        assert "cuts=(1,)" in code


def test_planning_again_keeps_them_until_they_are_removed(planned: Plan, drawn: list[Any]) -> None:
    explorer = explore(planned)
    buttons = {button.description: button for button in explorer.spec_constraints.widget.children[1:]}
    assert list(buttons) == [
        "✕ stages begin at layer 1",
        "✕ 2 stages",
        "✕ stage 0 on 1×2",
        "✕ FLOP imbalance of at most 3",
        "✕ gradient sums of tied weights not in the objective",
    ]
    set_and_wait(explorer.session, num_microbatches=8)
    assert explorer.plan.options.pipeline == OPTIONS
    for text in list(buttons)[:3]:
        buttons[text].click()
    after = explorer.settings
    assert (after.cuts, after.num_stages, after.stage_submeshes, after.tied_weights) == ((), None, (), False)
    assert changed_settings(settings_of(explorer.plan), after) != []
    assert len(explorer.spec_constraints.widget.children) == 3
    explorer.close()


def test_boundaries_that_were_set_by_hand_are_kept(drawn: list[Any]) -> None:
    plan = ax.plan("mlp-tiny", "1x2:v100", num_microbatches=4, boundaries=("2",), scheduler="serial")
    settings = settings_of(plan)
    assert settings.boundaries == ("2",)
    assert settings.plan_options["boundaries"] == ("2",)
    assert settings.plan_options["num_layers"] is None
    assert "boundaries=('2',)" in plan_code(settings, plan.cluster, reference=settings.model)
    explorer = explore(plan)
    assert [b.description for b in explorer.spec_constraints.widget.children[1:]] == ["✕ layers begin at 2"]
    explorer.close()


def test_an_explorer_opens_at_a_tab_with_its_lesson(planned: Plan, drawn: list[Any]) -> None:
    explorer = explore(planned, tab="T_MAX", teach=True)
    assert explorer.panels[explorer.tabs.selected].title == "t_max"
    assert explorer.lesson.on
    assert "t_max" in explorer.lesson.text.value
    explorer.close()
    plain = explore(planned, tab="Sharding")
    assert plain.panels[plain.tabs.selected].title == "Sharding"
    assert not plain.lesson.on
    plain.close()
    with pytest.raises(OptionError, match=r"no such tab.*'Timeline'"):
        explore(planned, tab="timelin")


def test_a_value_that_an_option_cannot_have_is_refused_at_once() -> None:
    with pytest.raises(OptionError, match="pipeline option cuts must be"):
        explore("mlp-tiny", cuts="abc")
