"""Compare, Search, Memory, Why and Microbatches in JupyterLab, with real keys and clicks at real places."""

from __future__ import annotations

from typing import Any

import pytest
from playwright.sync_api import Locator

from tests.browser.harness.explorer import (
    SMALL,
    finding,
    first_explorer,
    seen_figure,
    show_again,
    show_tab,
    slider,
    wait_for_finding,
)
from tests.browser.harness.page import LabPage

pytestmark = [pytest.mark.browser, pytest.mark.slow]


@pytest.fixture
def small(lab_as_left: LabPage) -> LabPage:
    """An explorer of two stages, B = 8 and then 12, with the plan of B = 8 pinned."""
    show_again(lab_as_left, SMALL, pin_and_move)
    return lab_as_left


def pin_and_move(lab: LabPage) -> None:
    explorer = first_explorer(lab)
    explorer.get_by_role("button", name="Pin", exact=True).press("Enter")
    explorer.get_by_role("button", name="Pin", exact=True, pressed=True).wait_for()
    slider(explorer, "B, microbatches").focus()
    lab.page.keyboard.press("ArrowRight")
    explorer.get_by_text("12 × 8").wait_for()


def click_mark(lab: LabPage, explorer: Locator, marks: str, index: int = 0) -> None:
    """A click with the mouse in the middle of a mark of the visible figure, once its hover text is there."""
    plot = lab.figure(explorer.locator(".alpa-panel:visible"))
    plot.scroll_into_view_if_needed()

    def hovered() -> bool:
        box = plot.locator(marks).nth(index).bounding_box()
        assert box is not None
        lab.page.mouse.move(box["x"] + box["width"] / 2 - 1, box["y"] + box["height"] / 2)
        lab.page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
        return plot.locator(".hoverlayer .hovertext").count() > 0

    lab.wait_until(hovered, "the mark has its hover text")
    lab.page.mouse.down()
    lab.page.mouse.up()


def texts(figure: dict[str, Any]) -> list[str]:
    """Every text drawn at a mark."""
    return [str(text) for trace in figure["data"] for text in (trace.get("text") or [])]


def test_compare_shows_what_changed_and_what_it_did(small: LabPage) -> None:
    explorer = small.page.locator(".alpa-explorer").first
    show_tab(explorer, "Compare")
    wait_for_finding(small, "Changed: B 8 → 12.")
    assert "None of the " in finding(explorer)
    assert "operators is cut differently" in finding(explorer)
    figure = seen_figure(small, explorer)
    shown = texts(figure)
    for name in ("iteration", "samples/s", "bubble", "peak memory", "stages", "compute"):
        assert name in shown, name
    assert any(text.endswith(" better") for text in shown)
    latencies = [t for t in figure["data"] if t["type"] == "bar" and t.get("showlegend") is not False]
    assert [(t["name"], len(t["y"])) for t in latencies] == [("the pinned plan", 2), ("this plan", 2)]
    click_mark(small, explorer, ".barlayer .trace:nth-child(2) .point path", 1)
    explorer.locator(".alpa-selected", has_text="stage 1").wait_for()


def test_search_names_the_baselines_that_have_no_plan_and_why(small: LabPage) -> None:
    explorer = small.page.locator(".alpa-explorer").first
    show_tab(explorer, "Search")
    small.wait_until(lambda: "Pareto frontier" in finding(explorer), "both plans are drawn")
    button = explorer.get_by_role("button", name="Try baselines")
    button.focus()
    small.page.keyboard.press("Enter")
    small.wait_until(lambda: "No plan: " in finding(explorer), "the baselines were tried")
    reason = "a pipeline of single devices needs a layer for each: 2 layers on 1x4:v100"
    assert f"inter-only ({reason})" in finding(explorer)
    figure = seen_figure(small, explorer)
    names = [trace["name"] for trace in figure["data"]]
    assert f"no plan: inter-only: {reason}" in names
    assert {"plans of the planner", "baselines", "this plan"} <= set(names)
    assert "zero-3" in " ".join(texts(figure))
    explorer.get_by_role("button", name="Tables").press("Enter")
    explorer.locator(".alpa-table:visible td", has_text=reason).wait_for()


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


def test_memory_names_its_choices_in_plain_words_and_they_fill_the_plot(small: LabPage) -> None:
    explorer = small.page.locator(".alpa-explorer").first
    show_tab(explorer, "Memory")
    explorer.locator(".alpa-panel:visible").get_by_role("combobox", name="View").select_option("choices")
    small.wait_until(lambda: "choice" in finding(explorer), "the figure is drawn")
    assert "computed so far" not in finding(explorer)
    figure = seen_figure(small, explorer)
    names = {trace["name"] for trace in figure["data"]}
    assert "the fastest that fits" in names
    assert not names & {"convex", "fitting", "near"}
    assert any("one device" in note["text"] for note in figure["layout"]["annotations"])
    marks = [t for t in figure["data"] if t["type"] == "scatter" and t["mode"] == "markers"]
    values = [y for trace in marks for y in trace["y"]]
    low, high = figure["layout"]["yaxis"]["range"]
    if max(values) > min(values):
        assert (max(values) - min(values)) / (high - low) > 0.4


def test_microbatches_writes_its_values_and_its_legend_covers_nothing(small: LabPage) -> None:
    explorer = small.page.locator(".alpa-explorer").first
    show_tab(explorer, "Microbatches")
    small.wait_until(lambda: finding(explorer).startswith("B = 12 microbatches"), "the figure is drawn")
    figure = seen_figure(small, explorer)
    times = next(t for t in figure["data"] if t["name"] == "T")
    assert all(times["text"])
    assert figure["layout"]["yaxis"]["type"] == "log"
    plot = small.figure(explorer.locator(".alpa-panel:visible"))
    legend = plot.locator(".legend").bounding_box()
    assert legend is not None
    lowest = max(box["y"] + box["height"] for box in (b.bounding_box() for b in plot.locator(".nsewdrag").all()) if box)
    assert legend["y"] > lowest, "the legend is below the panels"
