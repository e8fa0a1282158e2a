"""Clicks at real places in JupyterLab: on the bars of a figure, and on the levers of Why."""

import pytest
from playwright.sync_api import Locator

from tests.browser.harness.explorer import SMALL, show_again, show_explorer, show_tab
from tests.browser.harness.page import LabPage

pytestmark = [pytest.mark.browser, pytest.mark.slow]


@pytest.fixture
def small(lab_as_left: LabPage) -> LabPage:
    """An explorer of two stages."""
    show_again(lab_as_left, SMALL)
    return lab_as_left


def click_mark(lab: LabPage, explorer: Locator, marks: str, index: int = 0) -> None:
    """A click with the mouse in the middle of a mark of the visible figure, once its hover text is there."""
    plot = lab.figure(explorer.locator(".alpa-panel:visible"))
    plot.scroll_into_view_if_needed()

    def hovered() -> bool:
        box = plot.locator(marks).nth(index).bounding_box()
        lab.page.mouse.move(box["x"] + box["width"] / 2 - 1, box["y"] + box["height"] / 2)
        lab.page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
        return plot.locator(".hoverlayer .hovertext").count() > 0

    lab.wait_until(hovered, "the mark has its hover text")
    lab.page.mouse.down()
    lab.page.mouse.up()


def show_cluster(lab: LabPage) -> Locator:
    """The explorer with the Cluster figure drawn, whose first bars are the stages."""
    explorer = lab.page.locator(".alpa-explorer").first
    show_tab(explorer, "Cluster")
    explorer.locator(".alpa-panel:visible .js-plotly-plot[aria-label^='Cluster of'] .trace").first.wait_for()
    return explorer


def test_a_click_on_a_bar_selects_its_stage(small: LabPage) -> None:
    explorer = show_cluster(small)
    selected = explorer.locator(".alpa-selected")
    for place, name in ((1, "stage 1"), (0, "stage 0")):
        click_mark(small, explorer, ".xy .barlayer .trace:first-child .point path", place)
        selected.filter(has_text=name).wait_for()
    small.page.keyboard.press("Escape")
    small.wait_until(lambda: selected.filter(has_text="stage").count() == 0, "nothing is selected")


def test_why_lists_every_cost_and_a_lever_is_tried_and_opened_by_click_and_key(lab: LabPage) -> None:
    explorer = show_explorer(lab, SMALL)
    show_tab(explorer, "Why")
    why = explorer.locator(".alpa-why")
    why.locator(".alpa-legend", has_text="compute").wait_for()
    for cost in ("waits (bubble)", "gradient sync and update"):
        assert why.locator(".alpa-legend", has_text=cost).count() == 1, cost
    top = explorer.bounding_box()["y"]
    assert why.locator(".alpa-stack").first.bounding_box()["y"] - top < 200
    lever = why.locator("li", has_text="layers 2 → 1")
    assert "not asked yet · about" in lever.inner_text()
    lever.get_by_role("button", name="Try").click()
    opened = lever.get_by_role("button", name="Open")
    opened.wait_for()
    assert "not asked" not in lever.inner_text()
    assert why.get_by_role("button", name="Open").count() == 1, "no other lever was asked"
    opened.press("Enter")
    explorer.get_by_text("Back to number 2 of the 2 plans").wait_for()
    assert explorer.get_by_role("spinbutton", name="Layers").input_value() == "1"


_PRESS_BEFORE_PLOTLY_LOOKS = """async (plot) => {
  const centre = (bar) => {
    const { x, y, width, height } = bar.getBoundingClientRect();
    return { clientX: x + width / 2, clientY: y + height / 2, bubbles: true, view: window };
  };
  const bars = [...plot.querySelectorAll('.xy .barlayer .trace:first-child .point path')].map(centre);
  const area = plot.querySelector('.nsewdrag[data-subplot="xy"]');
  const send = (kind, bar, target = area) => target.dispatchEvent(new MouseEvent(kind, bars[bar]));
  const seen = new Promise((resolve) => plot.once('plotly_hover', resolve));
  send('mousemove', 1);
  await seen;
  const forgotten = new Promise((resolve) => plot.once('plotly_unhover', resolve));
  send('mousemove', 0);
  send('mousedown', 0);
  await forgotten;
  send('mouseup', 0, document.querySelector('.dragcover') ?? document);
}"""
"""The mouse moves from one bar to another and is pressed at once, before plotly has looked what is under it: it
looks during the press, and then reports no click."""


def test_a_press_right_after_a_movement_selects_what_is_under_the_mouse(small: LabPage) -> None:
    explorer = show_cluster(small)
    plot = small.figure(explorer.locator(".alpa-panel:visible"))
    small.page.mouse.move(5, 5)
    plot.evaluate(_PRESS_BEFORE_PLOTLY_LOOKS)
    explorer.locator(".alpa-selected", has_text="stage 0").wait_for()
