"""Fit & scale in JupyterLab at the size that people have, with real keys and clicks."""

from __future__ import annotations

import pytest

from tests.browser.harness.explorer import (
    explorer_of,
    finding,
    first_explorer,
    note_of,
    show_tab,
    type_number,
    type_text,
    wait_for_finding,
)
from tests.browser.harness.page import LabPage

pytestmark = [pytest.mark.browser, pytest.mark.slow]

TINY = """
from alpa_explore_widgets import explore
explore("llama-tiny", cluster="1x4:h100", num_microbatches=8, num_layers=2)
"""


@pytest.fixture
def tiny(lab: LabPage) -> LabPage:
    """An explorer with the tab on screen, in the default window."""
    lab.show(TINY)
    show_tab(first_explorer(lab), "Fit & scale")
    return lab


def find_out(lab: LabPage) -> None:
    panel = explorer_of(lab).locator(".alpa-panel:visible")
    type_text(panel.get_by_role("textbox", name="Devices"), "h100")
    panel.get_by_role("button", name="Find out").press("Enter")
    wait_for_finding(lab, "llama-tiny fits from 8 H100 on")


def test_fit_and_scale_says_what_is_typed_wrong_in_the_field(tiny: LabPage) -> None:
    explorer = explorer_of(tiny)
    panel = explorer.locator(".alpa-panel:visible")
    type_text(panel.get_by_role("textbox", name="Nodes"), "1, two")
    panel.get_by_role("button", name="Find out").press("Enter")
    tiny.wait_until(
        lambda: "no list of numbers" in note_of(panel.get_by_role("textbox", name="Nodes")), "said in its field"
    )
    type_text(panel.get_by_role("textbox", name="Nodes"), "1")
    tiny.wait_until(lambda: note_of(panel.get_by_role("textbox", name="Nodes")) == "", "it is a list again")
    find_out(tiny)
    assert note_of(panel.get_by_role("textbox", name="Nodes")) == ""


def test_dollars_appear_with_a_price_one_that_is_no_number_is_refused_and_plan_there_plans(tiny: LabPage) -> None:
    explorer = explorer_of(tiny)
    find_out(tiny)
    price = type_number(explorer, "H100", "-2")
    tiny.wait_until(lambda: note_of(price) != "", "what is possible is said in the field")
    assert "dollars" not in finding(explorer)
    type_number(explorer, "H100", "2.5")
    wait_for_finding(tiny, "dollars for a billion tokens")
    price.focus()
    for pressed in ("Control+a", *"abc", "Enter"):
        tiny.page.keyboard.press(pressed)
    assert price.input_value() == "2.5"
    assert "“c” is not part of a number; still 2.5 $/h" in note_of(price)
    assert "dollars" in finding(explorer)
    type_number(explorer, "H100", "2.5")
    tiny.wait_until(lambda: note_of(price) == "", "it is a number again")

    explorer.locator(".alpa-panel:visible").get_by_role("button", name="Plan there").press("Enter")
    show_tab(explorer, "Layers")
    tiny.wait_until(lambda: "1x8:h100" in (explorer.get_attribute("aria-label") or ""), "the explorer is of 1x8:h100")
