"""A stage as a graph, and the playback of an iteration, by keyboard and pointer."""

import pytest
from alpa_explore_widgets.elements.page_widget import module_with_helpers
from playwright.sync_api import Locator

from tests.browser.harness.explorer import explorer_of, show_again, show_baseline, show_tab
from tests.browser.harness.page import LabPage

pytestmark = [pytest.mark.browser, pytest.mark.slow]

FOCUSED = "document.activeElement?.getAttribute('aria-label') ?? ''"


@pytest.fixture
def page(lab_as_left: LabPage) -> LabPage:
    """An explorer of two stages."""
    show_baseline(lab_as_left, show_again, tp=4, dp=1, pp=2, num_microbatches=64, num_layers=4)
    return lab_as_left


def panel(lab: LabPage) -> Locator:
    return explorer_of(lab).locator(".alpa-panel:visible")


def show_graph(lab: LabPage) -> Locator:
    """The graph, whose blocks are all folded in a new explorer, and are folded here after another test."""
    is_new = not explorer_of(lab).locator(".alpa-flow-canvas").count()
    show_tab(explorer_of(lab), "Sharding")
    canvas = panel(lab).locator(".alpa-flow-canvas")
    canvas.wait_for()
    opened = panel(lab).locator(".alpa-flow-head[aria-expanded='true']")
    while not is_new and opened.count():
        opened.first.press("Enter")
    assert not panel(lab).locator(".alpa-flow-node").count()
    return canvas


def head(lab: LabPage, name: str) -> Locator:
    return panel(lab).locator(f".alpa-flow-head[aria-label^='{name}']")


def focused(lab: LabPage) -> str:
    return str(lab.page.evaluate(FOCUSED))


def test_blocks_are_folded_in_the_order_of_the_data_and_have_names(page: LabPage) -> None:
    canvas = show_graph(page)
    assert (canvas.get_attribute("aria-label") or "").startswith("Sharding of gpt-tiny on 2x4:v100 as a graph. Stage 0")
    heads = panel(page).locator(".alpa-flow-head")
    names = [one.get_attribute("aria-label") or "" for one in heads.all()]
    assert names[0].startswith("embedding, block: forward ")
    assert names[1].startswith("h.0, block: ")
    assert {one.get_attribute("aria-expanded") for one in heads.all()} == {"false"}
    tops = [box["y"] for box in (one.bounding_box() for one in heads.all()) if box]
    assert tops == sorted(tops)


def test_enter_opens_a_block_arrows_walk_its_operators_and_enter_selects_one_everywhere(page: LabPage) -> None:
    show_graph(page)
    keyboard = page.page.keyboard
    heads = panel(page).locator(".alpa-flow-head[tabindex='0']")
    heads.focus()
    while not focused(page).startswith("h.0, block"):
        before = focused(page)
        keyboard.press("ArrowDown")
        assert focused(page) != before, "an arrow moves to a neighbour"
    keyboard.press("Enter")
    head(page, "h.0").and_(page.page.locator("[aria-expanded='true']")).wait_for()
    assert focused(page).startswith("h.0, block"), "the focus stays"
    keyboard.press("ArrowDown")
    assert ", forward, " in focused(page) or ", backward, " in focused(page)
    operator = focused(page).split(" ")[0]
    keyboard.press("Enter")
    explorer_of(page).locator(".alpa-selected", has_text=operator).wait_for()
    chosen = panel(page).locator(".alpa-flow-node[aria-pressed='true']")
    page.wait_until(lambda: chosen.count() == 1, "the operator is marked")
    assert operator in panel(page).locator(".alpa-flow-words").inner_text()
    assert panel(page).locator(".alpa-flow-tensor svg .alpa-tile-cut").count() >= 8, "its tensors on four devices"
    explorer_of(page).get_by_role("button", name="Pin spec").wait_for()
    keyboard.press("Escape")
    page.wait_until(lambda: chosen.count() == 0, "Escape clears the selection")


def test_collectives_stand_on_the_edges_with_their_kind_and_time_wide_as_they_are_long(page: LabPage) -> None:
    show_graph(page)
    head(page, "h.0").click()
    labels = panel(page).locator(".alpa-flow-edge-label")
    labels.first.wait_for()
    assert any(text.startswith("all-reduce ") and text.endswith(" µs") for text in labels.all_text_contents())
    widths = "(all) => all.map((path) => parseFloat(getComputedStyle(path).strokeWidth))"
    moving = panel(page).locator(".alpa-flow-edge.alpa-moves path").evaluate_all(widths)
    others = panel(page).locator(".alpa-flow-edge:not(.alpa-moves) path").evaluate_all(widths)
    assert max(moving) > 5
    assert set(others) == {1}


def test_a_selection_in_another_tab_opens_its_block(page: LabPage) -> None:
    show_graph(page)
    explorer_of(page).get_by_role("button", name="Tables").click()
    row = panel(page).locator("tr[data-alpa-key*='operator:addmm']").first
    row.click()
    explorer_of(page).get_by_role("button", name="Tables").click()
    chosen = panel(page).locator(".alpa-flow-node.alpa-chosen")
    page.wait_until(lambda: chosen.count() == 1, "the selected operator is drawn")
    assert (chosen.get_attribute("aria-label") or "").startswith("addmm")


def test_data_that_also_goes_through_the_blocks_between_has_no_line_of_its_own(page: LabPage) -> None:
    groups = [{"id": name, "label": name} for name in ("tables", "h.0", "h.1", "h.2", "branch")]
    nodes = [{"id": g["id"], "group": g["id"], "phase": "forward", "label": g["id"], "tiles": []} for g in groups]
    lines = [("tables", b, 0.0) for b in ("h.0", "h.1", "h.2", "branch")]
    lines += [("h.0", "h.1", 0.0), ("h.1", "h.2", 0.0), ("h.0", "h.2", 1e-3)]
    edges = [{"a": a, "b": b, "seconds": seconds} for a, b, seconds in lines]
    drawn = page.page.evaluate(
        "([code, doc]) => new Function(`${code}; return layoutDataflow`)()(doc, new Set())"
        ".edges.flatMap(({ edges }) => edges.map(({ a, b }) => `${a} ${b}`))",
        [
            module_with_helpers("dagre.min.js", "dataflow_layout.js").replace("export ", ""),
            {"groups": groups, "nodes": nodes, "edges": edges},
        ],
    )
    assert sorted(drawn) == ["h.0 h.1", "h.0 h.2", "h.1 h.2", "tables branch", "tables h.0"]


def test_it_zooms_by_key_and_button_and_is_dragged(page: LabPage) -> None:
    canvas = show_graph(page)
    head(page, "h.0").click()
    width = lambda: float(canvas.get_attribute("width") or 0)  # noqa: E731  # read again each time
    canvas = panel(page).locator(".alpa-flow-canvas")
    before = width()
    panel(page).locator("[data-id][tabindex='0']").focus()
    page.page.keyboard.press("+")
    assert width() > before
    page.page.keyboard.press("0")
    view = panel(page).locator(".alpa-flow-view")
    inside = view.evaluate("(v) => v.scrollWidth <= v.clientWidth + 1 && v.scrollHeight <= v.clientHeight + 1")
    assert inside or width() <= before, "the whole graph fits, or is as small as it gets"
    for _ in range(5):
        panel(page).get_by_role("button", name="Larger").click()
    view.scroll_into_view_if_needed()
    view.evaluate("(v) => v.scrollTo(0, 0)")
    box = view.bounding_box()
    x, y = box["x"] + box["width"] - 60, box["y"] + 100
    page.page.mouse.move(x, y)
    page.page.mouse.down()
    page.page.mouse.move(x - 80, y - 60, steps=4)
    page.page.mouse.up()
    assert view.evaluate("(v) => [v.scrollLeft, v.scrollTop]") == [80, 60]


def test_an_iteration_is_stepped_through_and_played_by_keyboard(page: LabPage) -> None:
    show_tab(explorer_of(page), "Timeline")
    page.figure(panel(page))
    slider = panel(page).get_by_role("slider", name="Moment of the iteration")
    readout = panel(page).locator(".alpa-player-readout li")
    page.wait_until(lambda: readout.count() == 2, "one line for each stage")
    assert readout.all_inner_texts() == ["stage 0\nforward, microbatch 0", "stage 1\nidle"]
    slider.focus()
    keyboard = page.page.keyboard
    keyboard.press("ArrowRight")
    first = slider.get_attribute("aria-valuetext") or ""
    assert "stage 0: forward, microbatch 1" in first
    keyboard.press("ArrowRight")
    assert "stage 1: forward, microbatch 0" in (slider.get_attribute("aria-valuetext") or "")
    cursors = panel(page).locator(".alpa-player-cursor:visible")
    page.wait_until(lambda: cursors.count() == 2, "a cursor in the chart and one in the strip")
    keyboard.press("Home")
    assert float(slider.input_value()) == 0
    keyboard.press(" ")
    panel(page).get_by_role("button", name="Pause").wait_for()
    page.wait_until(lambda: float(slider.input_value()) > 0, "it plays")
    keyboard.press(" ")
    panel(page).get_by_role("button", name="Play").wait_for()
    stopped = slider.input_value()
    keyboard.press("ArrowLeft")
    assert float(slider.input_value()) < float(stopped)
    keyboard.press("End")
    assert float(slider.input_value()) == pytest.approx(float(slider.get_attribute("max") or 0))
    assert set(readout.locator("span").all_inner_texts()) == {"idle"}


def test_an_operator_is_found_by_its_letters_and_its_block_opens(page: LabPage) -> None:
    show_graph(page)
    find = panel(page).get_by_role("searchbox", name="Find an operator")
    find.focus()
    page.page.keyboard.type("softmax")
    said = panel(page).locator(".alpa-flow-found")
    said.filter(has_text="found").wait_for()
    count = int(said.inner_text().split(" ")[0])
    assert count > 1
    for number in (1, 2):
        find.press("Enter")
        said.filter(has_text=f"{number} of {count}").wait_for()
    node, view = panel(page).locator(".alpa-flow-node.alpa-found"), panel(page).locator(".alpa-flow-view")
    assert "softmax" in (node.text_content() or "").lower()
    inner, outer = node.bounding_box(), view.bounding_box()
    assert outer["y"] <= inner["y"] <= outer["y"] + outer["height"], "it is in sight"
    find.fill("")


def test_the_zoom_of_the_graph_stays_when_another_stage_is_shown(page: LabPage) -> None:
    show_graph(page)
    canvas = panel(page).locator(".alpa-flow-canvas")
    scale = "(svg) => svg.width.baseVal.value / svg.viewBox.baseVal.width"
    for _ in range(3):
        panel(page).get_by_role("button", name="Smaller").click()
    before = canvas.evaluate(scale)
    panel(page).get_by_role("combobox", name="Stage").select_option("1")
    page.wait_until(lambda: "Stage 1" in (canvas.get_attribute("aria-label") or ""), "stage 1 is shown")
    assert abs(canvas.evaluate(scale) - before) < 1e-6
    panel(page).get_by_role("combobox", name="Stage").select_option("0")
    page.wait_until(lambda: "Stage 0" in (canvas.get_attribute("aria-label") or ""), "stage 0 is shown")
