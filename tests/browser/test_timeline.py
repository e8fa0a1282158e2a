"""The Timeline tab in a browser: its legend in windows of any width, and the strip to drag over."""

from typing import Any

import pytest
from playwright.sync_api import Locator

from tests.browser.harness.explorer import explorer_of, seen_figure, show_again, show_plan, show_tab
from tests.browser.harness.page import LabPage
from tests.plans.example import example_plan, without_describe

pytestmark = [pytest.mark.browser, pytest.mark.slow]

MICROBATCHES = 512
_BOXES = """(graph) => {
  const box = (element) => { const { top, bottom } = element.getBoundingClientRect(); return [top, bottom]; };
  return { legend: box(graph.querySelector('.legend')), rows: box(graph.querySelector('.cartesianlayer .barlayer')) };
}"""
_PLACE = """(graph, share) => {
  const [axis, rows] = [graph._fullLayout.xaxis2, graph._fullLayout.yaxis3], box = graph.getBoundingClientRect();
  return [box.left + axis._offset + share * axis._length, box.top + rows._offset + rows._length / 2];
}"""


@pytest.fixture
def timeline(lab_as_left: LabPage) -> LabPage:
    """The tab of an explorer with nothing selected; each test leaves its default choice of what is shown."""
    explorer = show_plan(lab_as_left, without_describe(example_plan(num_microbatches=MICROBATCHES)), show_again)
    show_tab(explorer, "Timeline")
    explorer.locator(".alpa-finding:visible", has_text="B = 512").wait_for()
    return lab_as_left


def graph_of(lab: LabPage) -> Locator:
    return lab.figure(explorer_of(lab).locator(".alpa-panel:visible"))


def layout_of(lab: LabPage) -> dict[str, Any]:
    layout: dict[str, Any] = seen_figure(lab, explorer_of(lab))["layout"]
    return layout


def shown(lab: LabPage) -> Locator:
    return explorer_of(lab).locator(".alpa-panel:visible").get_by_label("Shown")


def test_the_legend_never_covers_a_row_whatever_the_width_of_the_window(timeline: LabPage) -> None:
    graph = graph_of(timeline)
    for width in (1400, 900, 1100, 1400):
        timeline.page.set_viewport_size({"width": width, "height": 900})
        timeline.wait_until(
            lambda: bool(graph.evaluate("(g) => Math.abs(g.offsetWidth - g._fullLayout.width) < 2")),
            f"the figure has the width of a window of {width} pixels",
        )
        boxes = graph.evaluate(_BOXES)
        assert boxes["legend"][1] <= boxes["rows"][0], f"at {width} pixels: {boxes}"


def test_dragging_across_the_strip_shows_that_part_and_a_double_click_the_parts_again(timeline: LabPage) -> None:
    page, graph = timeline.page, graph_of(timeline)
    graph.scroll_into_view_if_needed()
    total = layout_of(timeline)["xaxis2"]["range"][1]
    (x0, y), (x1, _) = graph.evaluate(_PLACE, 0.2), graph.evaluate(_PLACE, 0.3)
    page.mouse.move(x0, y)
    page.mouse.down()
    page.mouse.move((x0 + x1) / 2, y, steps=3)
    page.mouse.move(x1, y, steps=3)
    page.mouse.up()

    timeline.wait_until(lambda: shown(timeline).input_value() == "dragged", "the part that was dragged over is shown")
    timeline.wait_until(
        lambda: layout_of(timeline)["xaxis"]["range"] == pytest.approx([0.2 * total, 0.3 * total], abs=0.01 * total),
        "the axis has that part",
    )
    assert layout_of(timeline)["xaxis2"]["range"] == pytest.approx([0, total]), "the strip stays whole"

    page.mouse.dblclick(x0, y)
    timeline.wait_until(lambda: shown(timeline).input_value() == "parts", "the default is shown again")
    timeline.wait_until(lambda: layout_of(timeline)["xaxis"]["range"][0] == 0, "the axis begins at 0")


def test_shown_is_chosen_by_keyboard(timeline: LabPage) -> None:
    shown(timeline).focus()
    timeline.page.keyboard.press("ArrowDown")
    timeline.wait_until(lambda: "tickvals" not in layout_of(timeline)["xaxis"], "the whole iteration is shown")
    assert shown(timeline).input_value() == "whole"
    timeline.page.keyboard.press("ArrowUp")
    timeline.wait_until(lambda: "tickvals" in layout_of(timeline)["xaxis"], "the parts are shown")


def test_ctrl_and_the_wheel_zoom_and_w_a_s_d_move_as_in_perfetto(timeline: LabPage) -> None:
    graph = graph_of(timeline)
    graph.scroll_into_view_if_needed()

    def shown() -> tuple[float, float]:
        start, end = graph.evaluate("(graph) => graph._fullLayout.xaxis.range")
        return float(start), float(end)

    first, last = shown()
    box = graph.bounding_box()
    timeline.page.mouse.move(box["x"] + box["width"] / 2, box["y"] + 150)
    timeline.page.keyboard.down("Control")
    timeline.page.mouse.wheel(0, -200)
    timeline.page.keyboard.up("Control")
    timeline.wait_until(lambda: shown()[1] - shown()[0] < 0.7 * (last - first), lambda: f"zoomed, not {shown()}")
    zoomed = shown()
    graph.focus()
    graph.press("d")
    timeline.wait_until(lambda: shown()[0] > zoomed[0], lambda: f"moved to the right of {zoomed}: {shown()}")
    for _ in range(3):
        graph.press("s")
    timeline.wait_until(lambda: shown() == (first, last), lambda: f"all of it again, not {shown()}")
    timeline.page.mouse.wheel(0, 200)
    assert shown() == (first, last), "without Ctrl the wheel scrolls the page"
