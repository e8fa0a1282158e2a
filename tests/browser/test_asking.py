"""Layouts and Fit & scale in JupyterLab at the size that people have, with real keys and clicks."""

import pytest
from playwright.sync_api import Locator

from tests.browser.harness.explorer import (
    explorer_of,
    finding,
    first_explorer,
    note_of,
    seen_figure,
    show_tab,
    type_number,
    type_text,
    wait_for_finding,
)
from tests.browser.harness.page import WIDE, LabPage
from tests.browser.test_layout import SHOW_TOP, check_places

pytestmark = [pytest.mark.browser, pytest.mark.slow]

TINY = """
from alpa_explore_widgets import explore
explore("llama-tiny", cluster="1x4:h100", num_microbatches=8, num_layers=2)
"""
ON_TOP = """(cell) => {
  const { x, y, width, height } = cell.getBoundingClientRect();
  return document.elementFromPoint(x + width / 2, y + height / 2) === cell;
}"""


def panel_of(lab: LabPage) -> Locator:
    return explorer_of(lab).locator(".alpa-panel:visible")


def test_layouts_are_priced_when_the_tab_is_opened_filtered_and_opened_as_a_plan_by_keyboard(lab: LabPage) -> None:
    lab.show(TINY)
    explorer = first_explorer(lab)
    show_tab(explorer, "Layouts")
    wait_for_finding(lab, "uniform layouts of llama-tiny on 1x4:h100 fit")
    assert "The plan (" in finding(explorer), "the plan is named in the same words"
    figure = seen_figure(lab, explorer)
    check_places(lab, "Layouts")
    assert {"PP 1", "PP 2", "the plan"} <= {trace.get("name") for trace in figure["data"]}
    panel = panel_of(lab)
    rows = panel.get_by_role("table", name="Layouts").locator("tbody tr")
    chip = panel.get_by_role("combobox", name="recomputation")
    chip.press("f")  # as in any list: the choice that begins so
    lab.wait_until(
        lambda: all("full recomputation" in text for text in rows.all_inner_texts()[:5]), "the table is of the filter"
    )
    chip.press("Home")
    lab.wait_until(lambda: "full recomputation" not in rows.first.inner_text(), "any again")
    _check_heading_stays(lab, panel)
    lab.page.set_viewport_size({"width": 900, "height": 900})
    lab.rest()
    explorer.evaluate(SHOW_TOP)
    lab.rest()
    strip, third = explorer.locator(".alpa-strip").bounding_box(), rows.nth(2).bounding_box()
    assert third["y"] + third["height"] < strip["y"], "rows are in sight in a narrow window"
    button, side = rows.first.get_by_role("button", name="Open").bounding_box(), panel.bounding_box()
    assert button["x"] + button["width"] < side["x"] + side["width"], "and what opens them"
    columns = [cell.bounding_box() for cell in rows.first.locator("td").all()[:-1]]
    assert all(box["x"] + box["width"] <= button["x"] for box in columns), "which covers no number and no reason"
    assert columns[-1]["width"] > 40, "of which the beginning is seen"
    lab.page.set_viewport_size({"width": WIDE[0], "height": WIDE[1]})
    panel.get_by_role("combobox", name="Columns").select_option("degrees")
    panel.get_by_role("columnheader", name="TP", exact=True).wait_for()
    best = explorer.locator(".alpa-best li")
    assert best.count() == 0, "what the table lists stands once on the page"
    show_tab(explorer, "Layers")
    lab.wait_until(lambda: best.count() == 3, "in other tabs the best of them stand in the verdict")
    show_tab(explorer, "Layouts")
    lab.wait_until(lambda: best.count() == 0, "the table alone again")

    row = rows.nth(2)
    words = row.locator("td").first.inner_text()
    assert words != rows.first.locator("td").first.inner_text()
    row.get_by_role("button", name="Open").press("Enter")
    lab.wait_until(lambda: explorer.locator(".alpa-words").inner_text().startswith(words), f"{words} is the plan")
    current = explorer.locator(".alpa-layouts tr.alpa-current", has_text=words)
    current.wait_for()
    time = explorer.locator(".alpa-time").inner_text().removesuffix(" an iteration")
    assert " ".join(time.split()) in current.inner_text(), "the layout and its plan have one price"


def _check_heading_stays(lab: LabPage, panel: Locator) -> None:
    """While the table is scrolled by the wheel, what its columns are stays at its top."""
    table, heading = panel.locator(".alpa-layouts"), panel.get_by_role("columnheader", name="time", exact=True)
    table.hover()
    lab.page.mouse.wheel(0, 300)
    lab.wait_until(lambda: table.evaluate("(table) => table.scrollTop") > 100, "the table is scrolled")
    assert abs(heading.bounding_box()["y"] - table.bounding_box()["y"]) < 3
    assert heading.evaluate(ON_TOP), "no row lies on it"
    table.evaluate("(table) => (table.scrollTop = 0)")


def test_fit_and_scale_says_what_is_typed_wrong_prices_in_dollars_and_plans_there(lab: LabPage) -> None:
    lab.show(TINY)
    explorer = first_explorer(lab)
    show_tab(explorer, "Fit & scale")
    panel = panel_of(lab)
    nodes = panel.get_by_role("textbox", name="Nodes")
    type_text(nodes, "1, two")
    panel.get_by_role("button", name="Find out").press("Enter")
    lab.wait_until(lambda: "no list of numbers" in note_of(nodes), "said in its field")
    type_text(nodes, "1")
    lab.wait_until(lambda: note_of(nodes) == "", "it is a list again")
    type_text(panel.get_by_role("textbox", name="Devices"), "h100")
    panel.get_by_role("button", name="Find out").press("Enter")
    wait_for_finding(lab, "llama-tiny fits from 8 H100 on")
    assert note_of(nodes) == ""
    check_places(lab, "Fit & scale")

    price = type_number(explorer, "H100", "-2")
    lab.wait_until(lambda: note_of(price) != "", "what is possible is said in the field")
    assert "dollars" not in finding(explorer)
    type_number(explorer, "H100", "2.5")
    wait_for_finding(lab, "dollars for a billion tokens")
    price.focus()
    for pressed in ("Control+a", *"abc", "Enter"):
        lab.page.keyboard.press(pressed)
    assert price.input_value() == "2.5"
    assert "“abc” is not part of a number; still 2.5 $/h" in note_of(price)
    type_number(explorer, "H100", "abc")
    assert "“abc” is not part of a number; still 2.5 $/h" in note_of(price), "letters are no empty box"
    assert "dollars" in finding(explorer)
    type_number(explorer, "H100", "2.5")
    lab.wait_until(lambda: note_of(price) == "", "it is a number again")

    lab.figure(panel).press("ArrowRight")
    strip = explorer.locator(".alpa-strip")
    lab.wait_until(lambda: "plans here" in strip.inner_text(), "the keyboard is on a cluster")
    lab.page.keyboard.press("Enter")
    show_tab(explorer, "Layers")
    lab.wait_until(lambda: "1x8:h100" in (explorer.get_attribute("aria-label") or ""), "the explorer is of 1x8:h100")
