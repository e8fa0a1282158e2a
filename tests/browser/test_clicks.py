"""Clicks at real places of a figure in JupyterLab: Why, whose bars are stages."""

import pytest
from playwright.sync_api import Locator

from tests.browser.harness.explorer import SMALL, finding, seen_figure, show_again, show_tab
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


def test_why_a_click_on_a_bar_selects_its_stage_and_what_is_not_computing_can_be_seen(small: LabPage) -> None:
    explorer = small.page.locator(".alpa-explorer").first
    show_tab(explorer, "Why")
    small.wait_until(lambda: finding(explorer).startswith("Devices spend "), "the figure is drawn")
    figure = seen_figure(small, explorer)
    (sums,) = (t for t in figure["data"] if t["type"] == "scatter" and t.get("xaxis") == "x2")
    assert len(sums["text"]) == 2
    assert all(text.endswith(" %") for text in sums["text"])
    selected = explorer.locator(".alpa-selected")
    for place, name in ((1, "stage 1"), (0, "stage 0")):
        click_mark(small, explorer, ".xy .barlayer .trace:first-child .point path", place)
        selected.filter(has_text=name).wait_for()
    small.page.keyboard.press("Escape")
    small.wait_until(lambda: selected.filter(has_text="stage").count() == 0, "nothing is selected")


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
    explorer = small.page.locator(".alpa-explorer").first
    show_tab(explorer, "Why")
    small.wait_until(lambda: finding(explorer).startswith("Devices spend "), "the figure is drawn")
    plot = small.figure(explorer.locator(".alpa-panel:visible"))
    small.page.mouse.move(5, 5)
    plot.evaluate(_PRESS_BEFORE_PLOTLY_LOOKS)
    explorer.locator(".alpa-selected", has_text="stage 0").wait_for()
