"""The Overview, and the plans in Why and Search, by real keys in JupyterLab's default window."""

import pytest
from playwright.sync_api import Locator

from tests.browser.harness.explorer import SMALL, is_chosen, show_again, show_tab, slider, tab, tab_titles, type_number
from tests.browser.harness.page import DARK, LIGHT, LabPage

pytestmark = [pytest.mark.browser, pytest.mark.slow]

_TO_TOP = "(e) => e.closest('.jp-Cell').scrollIntoView({ block: 'start' })"
_INK = "(e) => getComputedStyle(e).color"
_LIT = """(view) => [...view.querySelectorAll('[data-key]')]
  .filter((mark) => Number(getComputedStyle(mark).opacity) === 1).map((mark) => mark.dataset.key)"""


@pytest.fixture
def lab_with_overview(lab: LabPage) -> LabPage:
    """A new explorer, which shows the Overview."""
    lab.show(SMALL)
    _explorer(lab).locator(".alpa-card").first.wait_for()
    return lab


@pytest.fixture
def looked_at(lab_as_left: LabPage) -> LabPage:
    """The same for tests that only look and select."""
    show_again(lab_as_left, SMALL)
    _explorer(lab_as_left).locator(".alpa-card").first.wait_for()
    return lab_as_left


def _explorer(lab: LabPage) -> Locator:
    return lab.page.locator(".alpa-explorer").first


def test_it_is_the_first_tab_and_all_of_it_is_seen_without_a_scroll(looked_at: LabPage) -> None:
    explorer = _explorer(looked_at)
    assert tab_titles(explorer)[0] == "Overview"
    explorer.evaluate(_TO_TOP)
    view = looked_at.page.locator(".jp-WindowedPanel-outer").first.bounding_box()
    assert view is not None
    assert looked_at.page.locator(".jp-FileBrowser").is_visible()
    parts = (".alpa-verdict", ".alpa-stages", ".alpa-sliders", *(f".alpa-card >> nth={i}" for i in range(4)))
    for part in parts:
        place = explorer.locator(part).bounding_box()
        assert place is not None, part
        assert place["y"] >= view["y"] - 1, part
        assert place["y"] + place["height"] <= view["y"] + view["height"] + 1, part


def test_its_drawings_fill_a_high_window_and_are_all_seen(looked_at: LabPage) -> None:
    lab, explorer = looked_at, _explorer(looked_at)
    show_tab(explorer, "Overview")
    before = explorer.locator(".alpa-drawing").first.bounding_box()
    lab.page.set_viewport_size({"width": 1920, "height": 1200})
    explorer.evaluate(_TO_TOP)
    lab.rest()
    after = explorer.locator(".alpa-drawing").first.bounding_box()
    last, strip = (explorer.locator(part).last.bounding_box() for part in (".alpa-card", ".alpa-strip"))
    view = lab.page.locator(".jp-WindowedPanel-outer").first.bounding_box()
    assert None not in (before, after, last, strip, view)
    assert after["height"] > 1.4 * before["height"]
    end = view["y"] + view["height"]
    assert end - 90 < strip["y"] + strip["height"] <= end + 1, "no part of the window is empty"
    assert last["y"] + last["height"] <= strip["y"] + 1, "nothing is below the strip"


def test_a_mark_selects_in_all_four_figures_and_in_the_tabs_and_escape_clears(looked_at: LabPage) -> None:
    lab, explorer = looked_at, _explorer(looked_at)
    view = explorer.locator(".alpa-linked")
    every = view.evaluate(_LIT)
    view.locator('[data-key="stage:0"]').first.click()
    explorer.locator(".alpa-selected", has_text="stage 0").wait_for()
    lab.page.mouse.move(0, 0)
    lab.wait_until(lambda: view.evaluate(_LIT) == [k for k in every if k.startswith("stage:0")], "the others are faded")
    show_tab(explorer, "Layers")
    explorer.locator(".alpa-selected", has_text="stage 0").wait_for()
    tab(explorer, "Overview").press("Escape")
    show_tab(explorer, "Overview")
    lab.wait_until(lambda: view.evaluate(_LIT) == every, "nothing is faded")
    view.locator("[data-key]").last.hover()
    lab.wait_until(lambda: len(view.evaluate(_LIT)) < len(every) or len(set(every)) == 1, "a mark is linked on hover")
    lab.page.mouse.move(0, 0)
    lab.wait_until(lambda: view.evaluate(_LIT) == every, "and no longer")


def test_headings_lead_to_the_tabs_by_keyboard_and_cards_have_names(looked_at: LabPage) -> None:
    lab, explorer = looked_at, _explorer(looked_at)
    for name in ("Layers", "Cluster", "Timeline", "Why"):
        show_tab(explorer, "Overview")
        card = explorer.get_by_role("region", name=name, exact=True)
        assert card.get_by_role("img").get_attribute("aria-label")
        card.get_by_role("button").press("Enter")
        lab.wait_until(lambda: is_chosen(explorer, name), f"{name} is chosen")  # noqa: B023


def test_it_follows_b_and_the_theme(looked_at: LabPage) -> None:
    lab, explorer = looked_at, _explorer(looked_at)
    timeline = explorer.get_by_role("region", name="Timeline", exact=True)
    line = timeline.locator("header p")
    before = line.inner_text()
    slider(explorer, "B, microbatches").press("ArrowRight")
    lab.wait_until(lambda: line.inner_text() != before, "another B")
    slider(explorer, "B, microbatches").press("ArrowLeft")
    lab.wait_until(lambda: line.inner_text() == before, "and back")
    ink = line.evaluate(_INK)
    lab.set_theme(DARK)
    lab.wait_until(lambda: line.evaluate(_INK) != ink, "dark")
    lab.set_theme(LIGHT)
    lab.wait_until(lambda: line.evaluate(_INK) == ink, "light")


def test_what_was_tried_is_kept_brought_back_and_sorted_by_keys(lab_with_overview: LabPage) -> None:
    lab, explorer = lab_with_overview, _explorer(lab_with_overview)
    for count in ("7", "5"):  # which no lever has
        type_number(explorer, "B, microbatches", count)
        explorer.get_by_text(f"{count} × 8").wait_for()
        # Values that follow at once are one move of the slider.
        lab.wait_until(lambda: lab.ask("Out[1].session.store.state.moving") == "False", "the move has ended")
    show_tab(explorer, "Why")
    yours = explorer.locator(".alpa-why ul").last.locator("li")
    lab.wait_until(lambda: yours.count() == 3, "a row for each")
    first = yours.last.locator("span").first.inner_text()
    yours.last.get_by_role("button", name="Keep this plan, whatever else is tried").press("Enter")
    lab.wait_until(lambda: yours.first.locator("span").first.inner_text() == first, "it is on top")
    star = yours.first.get_by_role("button", name="Keep this plan no longer")
    lab.wait_until(lambda: star.evaluate("(star) => star === document.activeElement"), "and has the focus")
    lab.page.keyboard.press("Enter")
    lab.wait_until(lambda: yours.last.locator("span").first.inner_text() == first, "it is not kept any more")
    yours.filter(has_text="B 5 → 8").get_by_role("button", name="Open").press("Enter")
    explorer.get_by_text("8 × 8").wait_for()
    show_tab(explorer, "Search")
    explorer.get_by_role("button", name="Tables").press("Enter")
    table = explorer.locator(".alpa-panel:visible table")
    table.wait_for()
    heading = table.get_by_role("button", name="B", exact=True)

    def counts() -> list[str]:
        return list(table.evaluate("(t, at) => [...t.tBodies[0].rows].map((row) => row.cells[at].innerText)", place))

    place = heading.evaluate("(button) => button.closest('th').cellIndex")
    assert counts() == ["8", "7", "5"]
    heading.press("Enter")
    assert counts() == ["5", "7", "8"]
    heading.press("Enter")
    assert counts() == ["8", "7", "5"]
    assert table.locator("th[aria-sort=descending]").inner_text() == "B"
    table.locator("tbody tr").last.press("Enter")
    explorer.get_by_text("5 × 8").wait_for()
