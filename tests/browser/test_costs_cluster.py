"""The figures of the stage costs and the cluster, pressed with a mouse.

The plan has four stages on 2 × 4 devices; its stage 2 has layers 2 to 4 on 1×4.
"""

from typing import Any

import pytest

from tests.browser.harness.explorer import show_again, show_plan, show_tab
from tests.browser.harness.page import LabPage
from tests.plans.example import example_plan

pytestmark = [pytest.mark.browser, pytest.mark.slow]

_PIXEL = """(graph, [x, y]) => {
  graph.scrollIntoView({ block: "center" });
  const box = graph.getBoundingClientRect(), [xs, ys] = [graph._fullLayout.xaxis, graph._fullLayout.yaxis];
  return [box.left + xs._offset + xs.l2p(x), box.top + ys._offset + ys.l2p(y)];
}"""
"""Where a place of a figure, in units of its axes, is on the screen."""


@pytest.fixture
def shown(lab_as_left: LabPage) -> LabPage:
    """An explorer of the plan, with nothing selected."""
    show_plan(lab_as_left, example_plan(), show_again)
    return lab_as_left


def selected(lab: LabPage) -> str:
    """The line that says what is selected; '' for nothing."""
    return " ".join(lab.page.locator(".alpa-selected:visible").all_inner_texts())


def figure_of(lab: LabPage, title: str) -> tuple[Any, dict[str, Any]]:
    """The figure of a tab, once it is drawn, and its data and layout."""
    show_tab(lab.page.locator(".alpa-explorer").first, title)
    plot = lab.figure(lab.page.locator(f".alpa-panel:visible:has(.js-plotly-plot[aria-label^='{title} of '])"))
    return plot, lab.read_figure(plot)


def press(lab: LabPage, plot: Any, x: float, y: float) -> str:
    """Move the mouse to a place of a figure, press it, and return what the strip below it said."""
    left, top = plot.evaluate(_PIXEL, [x, y])
    strip = lab.page.locator(".alpa-strip.alpa-saying")
    lab.page.mouse.move(5, 5)
    strip.wait_for(state="detached")
    lab.page.mouse.move(left - 3, top - 3)
    lab.page.mouse.move(left, top)
    strip.wait_for()
    text = strip.inner_text()
    lab.page.mouse.click(left, top)
    return text


def trace(figure: dict[str, Any], name: str) -> dict[str, Any]:
    return next(trace for trace in figure["data"] if trace.get("name") == name)


def test_a_device_is_selected_by_its_empty_part_too(shown: LabPage) -> None:
    plot, figure = figure_of(shown, "Cluster")
    memory = trace(figure, "memory of a device")
    # At the right edge of the box, which the contents do not reach.
    x, y = memory["x"][0] + 0.46 * memory["width"], memory["base"][0] + memory["y"][0] / 2
    text = press(shown, plot, x, y)
    assert "click: selects device 4 and its stage, 2" in text
    shown.wait_until(lambda: "device 4 (" in selected(shown), "device 4 is selected")
    assert "stage 2:" in selected(shown)


def test_the_heading_above_devices_selects_their_stage(shown: LabPage) -> None:
    plot, figure = figure_of(shown, "Cluster")
    regions = trace(figure, "stages")
    number = next(i for i, text in enumerate(regions["text"]) if "stage 2" in text)
    text = press(shown, plot, regions["x"][number], regions["base"][number] + 0.96 * regions["y"][number])
    assert text.endswith("click: selects stage 2")
    shown.wait_until(lambda: "stage 2:" in selected(shown), "stage 2 is selected")


def cell_named(figure: dict[str, Any], name: str) -> tuple[int, int]:
    """The cell of a range of layers on a submesh: (across, down)."""
    for one in figure["data"]:
        for y, row in enumerate(one.get("hovertext", []) if one["type"] == "heatmap" else []):
            for x, text in enumerate(row):
                if text.startswith(f"<b>{name}</b>"):
                    return x, y
    raise AssertionError(f"no cell {name!r}")


def test_a_cost_of_the_plan_selects_its_stage(shown: LabPage) -> None:
    plot, figure = figure_of(shown, "Costs")
    x, y = cell_named(figure, "layers 2–4 on 1×4")
    assert "click: selects stage 2" in press(shown, plot, x, y)
    shown.wait_until(lambda: "stage 2:" in selected(shown), "stage 2 is selected")
