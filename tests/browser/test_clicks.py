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


def point_at(lab: LabPage, explorer: Locator, marks: str, index: int = 0) -> None:
    """Move the mouse to the middle of a mark of the visible figure, until the strip explains it."""
    plot = lab.figure(explorer.locator(".alpa-panel:visible"))
    plot.scroll_into_view_if_needed()

    def hovered() -> bool:
        box = plot.locator(marks).nth(index).bounding_box()
        lab.page.mouse.move(box["x"] + box["width"] / 2 - 1, box["y"] + box["height"] / 2)
        lab.page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
        return explorer.locator(".alpa-strip.alpa-saying").count() > 0

    lab.wait_until(hovered, "the strip explains the mark")


def click_mark(lab: LabPage, explorer: Locator, marks: str, index: int = 0) -> None:
    """A click with the mouse in the middle of a mark of the visible figure."""
    point_at(lab, explorer, marks, index)
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


def test_the_strip_explains_what_is_under_the_pointer_and_no_box_covers_the_data(small: LabPage) -> None:
    explorer = show_cluster(small)
    plot = small.figure(explorer.locator(".alpa-panel:visible"))
    strip, ring = explorer.locator(".alpa-strip"), plot.locator(".alpa-ring")
    bars = ".xy .barlayer .trace:first-child .point path"
    point_at(small, explorer, bars)
    strip.filter(has_text="stage 0").filter(has_text="click: selects stage 0").wait_for()
    around, inside = ring.bounding_box(), plot.locator(bars).first.bounding_box()
    assert abs(around["x"] - inside["x"]) < 6
    assert abs(around["width"] - inside["width"]) < 12
    assert plot.locator(".hovertext:visible").count() == 0
    assert strip.bounding_box()["y"] >= plot.bounding_box()["y"] + 100
    small.page.mouse.move(5, 5)
    ring.wait_for(state="detached")
    explorer.locator(".alpa-strip:not(.alpa-saying)").wait_for()


def test_arrow_keys_step_through_the_marks_and_enter_selects_one(small: LabPage) -> None:
    explorer = show_cluster(small)
    plot, strip = small.figure(explorer.locator(".alpa-panel:visible")), explorer.locator(".alpa-strip")
    small.wait_guarded()
    plot.focus()
    said = []
    for key in ("ArrowRight", "ArrowRight", "ArrowRight"):
        plot.press(key)
        strip.and_(explorer.locator(".alpa-saying")).wait_for()
        small.wait_until(lambda: strip.inner_text() not in said, lambda: f"another mark than {said}")
        said.append(strip.inner_text())
    plot.press("Enter")
    explorer.locator(".alpa-selected", has_text="stage").wait_for()
    assert "selects" in said[-1]


def test_the_marks_of_the_overview_are_reached_by_keys(small: LabPage) -> None:
    explorer = small.page.locator(".alpa-explorer").first
    show_tab(explorer, "Overview")
    first = explorer.locator('.alpa-linked [data-key][tabindex="0"]')
    first.focus()
    strip = explorer.locator(".alpa-strip.alpa-saying")
    strip.wait_for()
    before = strip.inner_text()
    small.page.keyboard.press("ArrowRight")
    small.wait_until(lambda: strip.inner_text() != before, "the next mark")
    small.page.keyboard.press("Enter")
    explorer.locator(".alpa-selected", has_text="stage").wait_for()


def test_a_click_on_another_b_and_on_another_cell_of_the_costs_opens_those_plans(lab: LabPage) -> None:
    explorer = show_explorer(lab, SMALL)
    show_tab(explorer, "Microbatches")
    field = explorer.get_by_role("spinbutton", name="B, microbatches")
    click_mark(lab, explorer, ".xy .scatterlayer .trace .point", 2)
    lab.wait_until(lambda: field.input_value() == "4", lambda: f"B = 4, not {field.input_value()}")
    show_tab(explorer, "Costs")
    lab.wait_drawn()
    plot = lab.figure(explorer.locator(".alpa-panel:visible"))
    plot.focus()
    strip = explorer.locator(".alpa-strip")
    for key in ("ArrowRight", "ArrowDown", "ArrowRight", "ArrowUp") * 8:
        if "opens" in strip.inner_text():
            break
        plot.press(key)
        strip.and_(explorer.locator(".alpa-saying")).wait_for()
    assert "opens the best plan with this stage" in strip.inner_text()
    plot.press("Enter")
    constraints = explorer.locator(".alpa-constraints")
    lab.wait_until(
        lambda: "on 1×" in constraints.inner_text(),
        lambda: f"its stages, not {constraints.inner_text()!r}, in {explorer.inner_text()[:1000]!r}",
    )


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
