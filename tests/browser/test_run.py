"""A run in the browser: what differs from the prediction is said, and one button goes on under the better plan."""

from __future__ import annotations

from pathlib import Path

import pytest

import alpa_explore as ax
from tests.browser.harness.explorer import show_tab, type_number
from tests.browser.harness.page import LabPage

pytestmark = [pytest.mark.browser, pytest.mark.slow]

CELL = """
import alpa_explore as ax
from alpa_explore_widgets import explore
explore(ax.load_plan("zero.plan.json"))
"""
DRIFT_MILLISECONDS = 120_000
"""Until ranks are started, have done some steps, and another plan is made."""


def test_drift_is_shown_and_a_button_changes_the_plan_and_goes_on(lab: LabPage) -> None:
    # Parameters are gathered in each microbatch, over a link that was planned to be far faster than it is.
    plan = ax.baseline("gpt-tiny", "2x1:v100", "zero-3", num_microbatches=8, num_layers=4, precision="float32")
    plan.save(Path(lab.server.root) / "zero.plan.json")
    lab.open(lab.server.write_notebook("run.ipynb", CELL))
    lab.run_all()
    explorer = lab.page.locator(".alpa-explorer").first
    show_tab(explorer, "Run")
    change = explorer.get_by_role("button", name="Checkpoint, change the plan, go on")
    type_number(explorer, "Steps", "90000", "Tab")
    explorer.get_by_label("On", exact=True).select_option("cpu")
    assert not change.is_visible()
    explorer.get_by_role("button", name="Start 90,000 steps").click()
    said = explorer.locator(".alpa-drift")
    said.get_by_text("% faster").wait_for(timeout=DRIFT_MILLISECONDS)
    assert "compute of stage 0 takes" in said.inner_text().lower()
    assert "times the predicted" in said.inner_text()

    change.click(timeout=DRIFT_MILLISECONDS)
    explorer.get_by_text("This plan took over after step").wait_for(timeout=DRIFT_MILLISECONDS)
    explorer.get_by_role("button", name="Stop", exact=True).click()
    explorer.get_by_text("Stopped after").wait_for(timeout=DRIFT_MILLISECONDS)
    lab.guard.check()
