"""The first minutes with the explorer: a chosen model waits for Plan, and what does not fit in memory comes with a
button that makes it fit."""

from __future__ import annotations

import pytest
from playwright.sync_api import Locator

from tests.browser.harness.explorer import SMALL, explorer_of, first_explorer, seen_figure, show_again, show_tab, slider
from tests.browser.harness.page import LabPage

pytestmark = [pytest.mark.browser, pytest.mark.slow]

TOO_LITTLE_MEMORY = """
from alpa_explore_widgets import explore
explore("gpt-tiny", cluster="1x1:v100", num_microbatches=8, num_layers=2, memory_bytes=5 * 2**20)
"""
SLOW_COMPARISON = """
import threading
from alpa_explore_widgets import explore
from alpa_explore_widgets.session.library.backend import Backend, _compare

gate = threading.Event()

def compare(plan, stage, *, progress, partial, cancel):
    def held(name):
        progress(name)
        if name == "factor":
            cancel.wait(60)
    return _compare(plan, stage, progress=held, partial=partial, cancel=cancel)

explore("mlp-tiny", cluster="1x4:v100", num_microbatches=8, num_layers=2, backend=Backend(compare=compare))
"""


@pytest.fixture
def shown(lab: LabPage) -> LabPage:
    """A page on which SMALL has its plan."""
    lab.show(SMALL)
    first_explorer(lab)
    return lab


def shown_in_place_of_a_figure(lab: LabPage, explorer: Locator) -> str | None:
    # The panel of the tab before is hidden a moment after the new one is shown.
    figure = explorer.locator(".alpa-panel:visible .alpa-figure")
    lab.wait_until(lambda: figure.count() == 1, "one panel is shown")
    return figure.get_attribute("data-waiting")


def test_where_there_is_a_plan_no_figure_waits_for_the_first_one(lab_as_left: LabPage) -> None:
    shown, explorer = lab_as_left, show_again(lab_as_left, SMALL)
    for name in ("Layers", "Timeline", "t_max"):
        show_tab(explorer, name)
        shown.wait_until(lambda: bool(seen_figure(shown, explorer)["data"]), "it is drawn")
        assert shown_in_place_of_a_figure(shown, explorer) == "Drawing the figure…"


def test_another_model_and_what_is_set_for_it_wait_for_plan_and_undo_takes_them_back(shown: LabPage) -> None:
    explorer = first_explorer(shown)
    show_tab(explorer, "t_max")
    before, tiles = seen_figure(shown, explorer)["data"], explorer.locator(".alpa-tiles").inner_text()
    explorer.get_by_label("Model", exact=True).select_option("gpt-1.3b")
    pending = explorer.locator(".alpa-plan-button")
    pending.get_by_text("Out of date").wait_for()
    for line in ("model mlp-tiny → gpt-1.3b", "B 8 → 128 (the model's default)", "The figures show mlp-tiny"):
        assert line in pending.inner_text()

    slider(explorer, "B, microbatches").focus()
    shown.page.keyboard.press("ArrowRight")
    pending.get_by_text("B 8 → 192").wait_for()
    shown.wait_idle()
    assert seen_figure(shown, explorer)["data"] == before
    assert explorer.locator(".alpa-tiles").inner_text() == tiles

    undo = explorer.get_by_role("button", name="Undo")
    undo.focus()
    shown.page.keyboard.press("Enter")
    shown.wait_until(lambda: explorer.locator(".alpa-old").count() == 0, "nothing waits for Plan")
    assert explorer.get_by_label("Model", exact=True).input_value() == "mlp-tiny"
    assert slider(explorer, "B, microbatches").get_attribute("aria-valuetext") == "8"
    assert seen_figure(shown, explorer)["data"] == before


def test_a_comparison_of_solvers_is_cancelled_and_keeps_its_rows(lab: LabPage) -> None:
    lab.show(SLOW_COMPARISON)
    explorer = first_explorer(lab)
    show_tab(explorer, "Solvers")
    panel = explorer.locator(".alpa-panel:visible")
    panel.get_by_role("button", name="Compare").press("Enter")
    panel.get_by_text("Comparing, factor").wait_for()
    panel.get_by_role("button", name="Cancel").press("Enter")
    lab.wait_until(lambda: panel.get_by_text("Comparing").count() == 0, "the comparison ends")
    lab.wait_until(lambda: "auto" in str(seen_figure(lab, explorer)["data"]), "its rows are drawn")


def test_a_model_that_does_not_fit_comes_with_a_button_that_makes_it_fit(lab: LabPage) -> None:
    lab.show(TOO_LITTLE_MEMORY)
    explorer = explorer_of(lab)
    message = explorer.get_by_role("alert")
    message.get_by_text("Needs 2 × v100: 1 node of 2").wait_for()
    explorer.get_by_role("button", name="Plan on 1 × 2").press("Enter")
    first_explorer(lab)
    assert message.count() == 0
    assert explorer.get_by_label("devices", exact=True).input_value() == "2"
