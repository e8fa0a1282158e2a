"""A press that arrives before an earlier edit waits for it."""

from typing import Any

import pytest
from alpa_explore_widgets.explorer import Explorer
from traitlets import TraitError

from tests.waiting import LIMIT_SECONDS
from tests.widgets.conftest import HeldPlanner, plan_and_wait


def press(explorer: Explorer, edits: int) -> None:
    explorer.plan_button.plan._handle_custom_msg({"kind": "press", "edits": edits}, [])


def typed(explorer: Explorer, name: str, edits: int, value: Any) -> None:
    """An edit as the page sends it: one message."""
    explorer.controls[name].set_state({"value": value, "edits": edits})


def test_a_press_waits_for_every_value_that_was_typed_before_it(explorer: Explorer, planner: HeldPlanner) -> None:
    press(explorer, 3)
    typed(explorer, "delta", 2, 0.25)
    assert explorer.session.wait(LIMIT_SECONDS)
    assert planner.plans == []
    typed(explorer, "num_layers", 1, 3.0)
    assert explorer.session.wait(LIMIT_SECONDS)
    assert [(call["delta"], call["num_layers"]) for call in planner.plans] == [(0.25, 3)]


@pytest.mark.parametrize("names", [("value", "edits"), ("edits", "value")])
def test_a_press_uses_the_value_whichever_part_of_its_message_arrives_first(
    explorer: Explorer, planner: HeldPlanner, names: tuple[str, str]
) -> None:
    press(explorer, 1)
    given = {"value": 0.25, "edits": 1}
    explorer.controls["delta"].set_state({name: given[name] for name in names})
    assert explorer.session.wait(LIMIT_SECONDS)
    assert [call["delta"] for call in planner.plans] == [0.25]


def test_a_value_that_its_trait_refuses_does_not_block_a_press(explorer: Explorer, planner: HeldPlanner) -> None:
    with pytest.raises(TraitError):
        typed(explorer, "delta", 1, "much")
    press(explorer, 1)
    assert explorer.session.wait(LIMIT_SECONDS)
    assert [call["delta"] for call in planner.plans] == [0.5]


def test_a_value_that_ends_in_an_error_still_releases_the_presses_that_waited_for_it(
    explorer: Explorer, planner: HeldPlanner
) -> None:
    def refuse(_change: object) -> None:
        raise ValueError("refused")

    explorer.controls["num_layers"].observe(refuse, "value")
    press(explorer, 2)
    with pytest.raises(ValueError, match="refused"):
        typed(explorer, "num_layers", 1, 3.0)
    assert explorer.session.wait(LIMIT_SECONDS)
    assert planner.plans == []
    typed(explorer, "delta", 1, 0.25)
    assert explorer.session.wait(LIMIT_SECONDS)
    assert [call["delta"] for call in planner.plans] == [0.25]


def test_a_press_takes_effect_at_once_when_no_edit_is_missing(explorer: Explorer, planner: HeldPlanner) -> None:
    press(explorer, 0)
    assert explorer.session.wait(LIMIT_SECONDS)
    typed(explorer, "delta", 1, 0.25)
    press(explorer, 1)
    assert explorer.session.wait(LIMIT_SECONDS)
    assert [call["delta"] for call in planner.plans] == [0.5, 0.25]


def test_the_buttons_of_the_tabs_wait_as_well(explorer: Explorer) -> None:
    plan_and_wait(explorer.session)
    panel = next(p for p in explorer.panels if p.title == "Run")
    explorer.tabs.selected = explorer.panels.index(panel)
    started: list[int] = []
    explorer.session.runs.start = lambda settings: started.append(settings.steps)
    panel.start._handle_custom_msg({"kind": "press", "edits": 1}, [])
    assert started == []
    panel.steps.set_state({"value": 7.0, "edits": 1})
    assert started == [7]
