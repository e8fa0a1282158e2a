"""The first minutes with the explorer: what does not fit in memory comes with a button that makes it fit."""

import pytest
from playwright.sync_api import Locator

from tests.browser.harness.explorer import SMALL, explorer_of, first_explorer, seen_figure, show_again, show_tab
from tests.browser.harness.page import LabPage

pytestmark = [pytest.mark.browser, pytest.mark.slow]

TOO_LITTLE_MEMORY = """
from alpa_explore_widgets import explore
explore("gpt-tiny", cluster="1x1:v100", num_microbatches=8, num_layers=2, memory_bytes=5 * 2**20)
"""


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


def test_a_model_that_does_not_fit_comes_with_a_button_that_makes_it_fit(lab: LabPage) -> None:
    lab.show(TOO_LITTLE_MEMORY)
    explorer = explorer_of(lab)
    message = explorer.get_by_role("alert")
    message.get_by_text("Needs 2 × v100: 1 node of 2").wait_for()
    assert explorer.locator(".alpa-head").inner_text().strip() == "No plan: the reason is below."
    explorer.get_by_role("button", name="Plan on 1 × 2").press("Enter")
    first_explorer(lab)
    assert message.count() == 0
    assert explorer.get_by_label("devices", exact=True).input_value() == "2"
