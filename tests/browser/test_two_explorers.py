"""Several explorers in one notebook, the same one in two cells, and one kernel shown by two pages."""

from collections import Counter
from pathlib import Path

import pytest
from playwright.sync_api import Locator

from tests.browser.conftest import WARM
from tests.browser.harness.explorer import explorer_of, leave_overview, seen_figure, slider, tab, type_number
from tests.browser.harness.page import DARK, LIGHT, LabPage
from tests.plans.example import example_plan

pytestmark = [pytest.mark.browser, pytest.mark.slow]

CELLS = (
    """
import alpa_explore as ax
from alpa_explore_widgets import explore
explore(ax.load_plan("first.plan.json"))
""",
    "other = explore(ax.load_plan('second.plan.json'))",
    "display(other)",
    "display(other)",
)
B = "B, microbatches"


@pytest.fixture
def lab_page(lab_as_left: LabPage) -> LabPage:
    """One explorer, and another one that is shown twice; with any B and any tab, for the tests share them."""
    lab = lab_as_left
    if lab.shown != CELLS:
        example_plan(name="gpt-first").save(Path(lab.server.root) / "first.plan.json")
        example_plan(name="gpt-second").save(Path(lab.server.root) / "second.plan.json")
        lab.show(*CELLS)
    return lab


@pytest.fixture
def explorers(lab_page: LabPage) -> tuple[Locator, Locator, Locator]:
    """The three explorers on the page, drawn."""
    found = lab_page.page.locator(".alpa-explorer")
    lab_page.wait_until(lambda: found.count() == 3, "three explorers")
    shown = (found.nth(0), found.nth(1), found.nth(2))
    for one in shown:
        one.scroll_into_view_if_needed()
        leave_overview(one)
        lab_page.figure(one.locator(".alpa-panel:visible"))
    return shown


def selected(explorer: Locator) -> bool:
    return explorer.locator(".alpa-selected").count() > 0


def test_ids_and_names_are_unique_and_no_saved_table_shows(
    lab_page: LabPage, explorers: tuple[Locator, Locator, Locator]
) -> None:
    ids = lab_page.page.locator(".alpa-explorer [id^=alpa-]").evaluate_all("(all) => all.map((e) => e.id)")
    assert [name for name, count in Counter(ids).items() if count > 1] == []
    names = [explorer.get_attribute("aria-label") for explorer in explorers]
    assert names == [f"Plan explorer: {name} on 2x4:v100" for name in ("gpt-first", "gpt-second", "gpt-second")]
    assert lab_page.page.locator(".alpa-saved:visible").count() == 0


def test_a_number_typed_in_one_leaves_the_other_alone_and_both_views_of_one_follow(
    lab_page: LabPage, explorers: tuple[Locator, Locator, Locator]
) -> None:
    first, second, again = explorers
    type_number(first, B, "40")
    first.get_by_text("40 × 8").wait_for()
    type_number(second, B, "24")
    for view in (second, again):
        view.get_by_text("24 × 8").wait_for()
        assert view.get_by_role("spinbutton", name=B).input_value() == "24"
    assert first.get_by_role("spinbutton", name=B).input_value() == "40"
    type_number(first, B, "0")
    assert first.locator("[aria-invalid=true]").count() == 1
    assert second.locator("[aria-invalid=true]").count() == 0
    first.get_by_role("spinbutton", name=B).press("Escape")
    saved = lambda: [str(output) for output in lab_page.outputs() if "alpa-saved" in str(output)]  # noqa: E731
    lab_page.wait_until(
        lambda: (
            [("B = 24" in table, "B = 40" in table) for table in saved()]
            == [(False, True), (True, False), (True, False)]
        ),
        "the saved tables follow, both of the second one",
    )


def test_escape_clears_the_selection_of_the_explorer_that_has_the_focus(
    lab_page: LabPage, explorers: tuple[Locator, Locator, Locator]
) -> None:
    first, second, again = explorers
    for explorer in (first, second):
        explorer.locator(".alpa-stages button").first.press("Enter")
        lab_page.wait_until(lambda: selected(explorer), "a stage is selected")  # noqa: B023
    assert selected(again), "the other view of the same explorer follows"
    second.locator(".alpa-stages button").first.press("Escape")
    lab_page.wait_until(lambda: not selected(second) and not selected(again), "Escape clears")
    assert selected(first)
    first.locator(".alpa-stages button").first.press("Escape")
    lab_page.wait_until(lambda: not selected(first), "Escape clears")


def test_two_pages_show_one_explorer(
    lab_page: LabPage, explorers: tuple[Locator, Locator, Locator], own_lab: LabPage
) -> None:
    first = explorers[0]
    lab_page.save()
    own_lab.load(WARM)
    there = explorer_of(own_lab)
    own_lab.figure(there.locator(".alpa-panel:visible"))
    type_number(there, B, "56")
    for view in (there, first):
        view.get_by_text("56 × 8").wait_for()
    type_number(first, B, "64")
    for view in (there, first):
        view.get_by_text("64 × 8").wait_for()
    slider(there, B).press("ArrowRight")
    first.get_by_text("96 × 8").wait_for()
    for page in (own_lab, lab_page):
        page.guard.check()
    own_lab.shut_down()
    for page, view in ((own_lab, there), (lab_page, first)):
        page.wait_until(lambda: view.get_by_role("alert").count() == 1, "both say that it is gone")  # noqa: B023
        page.guard.forget()  # Lab reports the kernel that was shut down as an error
    # The next test needs another kernel in the page that has lost its own.


def test_tabs_and_theme(lab_page: LabPage, explorers: tuple[Locator, Locator, Locator]) -> None:
    first, second, again = explorers
    tab(first, "Layers").press("Enter")
    tab(second, "t_max").press("Enter")
    for view in (second, again):
        lab_page.wait_until(
            lambda: tab(view, "t_max").get_attribute("aria-selected") == "true",  # noqa: B023
            "both views show the tab",
        )
    assert tab(first, "Layers").get_attribute("aria-selected") == "true"
    papers = [str(seen_figure(lab_page, one)["layout"]["paper_bgcolor"]) for one in explorers]
    lab_page.set_theme(DARK)
    for one, before in zip(explorers, papers, strict=True):
        lab_page.wait_until(
            lambda: str(seen_figure(lab_page, one)["layout"]["paper_bgcolor"]) != before,  # noqa: B023
            "every figure is dark",
        )
    lab_page.set_theme(LIGHT)
    for one, before in zip(explorers, papers, strict=True):
        lab_page.wait_until(
            lambda: str(seen_figure(lab_page, one)["layout"]["paper_bgcolor"]) == before,  # noqa: B023
            "and light again",
        )
