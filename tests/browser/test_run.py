"""A run in the browser: what differs from the prediction is said, and one button goes on under the better plan."""

from __future__ import annotations

import pytest

import alpa_explore as ax
from tests.browser.harness.explorer import show_plan, show_tab, type_number
from tests.browser.harness.page import LabPage

pytestmark = [pytest.mark.browser, pytest.mark.slow]


def test_drift_is_shown_and_a_button_changes_the_plan_and_goes_on(lab: LabPage) -> None:
    # Parameters are gathered in each microbatch, over a link that was planned to be far faster than it is.
    plan = ax.baseline("gpt-tiny", "2x1:v100", "zero-3", num_microbatches=8, num_layers=4, precision="float32")
    explorer = show_plan(lab, plan)
    show_tab(explorer, "Run")
    change = explorer.get_by_role("button", name="Checkpoint, change the plan, go on")
    type_number(explorer, "Steps", "90000", "Tab")
    explorer.get_by_label("On", exact=True).select_option("cpu")
    assert not change.is_visible()
    explorer.get_by_role("button", name="Start 90,000 steps").click()
    said = explorer.locator(".alpa-drift")
    said.get_by_text("% faster").wait_for()
    assert "compute of stage 0 takes" in said.inner_text().lower()
    assert "times the predicted" in said.inner_text()

    change.click()
    explorer.get_by_text("This plan took over after step").wait_for()
    explorer.get_by_role("button", name="Stop", exact=True).click()
    explorer.get_by_text("Stopped after").wait_for()
