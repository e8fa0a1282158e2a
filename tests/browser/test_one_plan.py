"""The tabs about several plans, and Run, while there is one plan alone: what they offer, by real keys and clicks."""

import pytest
from playwright.sync_api import Locator

from tests.browser.harness.boxes import box
from tests.browser.harness.explorer import (
    SMALL,
    explorer_of,
    finding,
    first_explorer,
    seen_figure,
    show_explorer,
    show_tab,
    type_number,
    wait_for_finding,
)
from tests.browser.harness.page import WIDE, LabPage
from tests.browser.test_asking import TINY

pytestmark = [pytest.mark.browser, pytest.mark.slow]

PLANS = "len(Out[1].session.store.state.history.plans)"


def panel_of(lab: LabPage) -> Locator:
    return explorer_of(lab).locator(".alpa-panel:visible")


def test_a_baseline_is_planned_beside_the_plan_and_compared_by_a_key(lab: LabPage) -> None:
    explorer = show_explorer(lab, SMALL)
    show_tab(explorer, "Compare")
    panel = panel_of(lab)
    rows = panel.locator(".alpa-baselines li")
    rows.first.wait_for()
    assert rows.count() == 11
    assert panel.locator(".alpa-figure").is_hidden()
    assert panel.get_by_role("combobox", name="With").is_hidden(), "there is nothing to choose from"
    assert panel.locator("li button").first.bounding_box()["x"] + 10 < box(explorer, ".alpa-main").right
    words = explorer.locator(".alpa-words").inner_text()
    rows.filter(has_text="zero-3").first.get_by_role("button", name="Compare").press("Enter")
    wait_for_finding(lab, "than with the fastest other plan")
    assert seen_figure(lab, explorer)["data"]
    assert explorer.locator(".alpa-words").inner_text() == words, "the plan on screen stays"
    assert lab.ask(PLANS) == "2"
    panel.get_by_role("combobox", name="With").wait_for()
    assert rows.first.is_hidden()


def test_the_best_layouts_are_priced_and_one_is_compared_by_a_click(lab: LabPage) -> None:
    lab.show(TINY)
    explorer = first_explorer(lab)
    show_tab(explorer, "Compare")
    panel = panel_of(lab)
    panel.get_by_role("button", name="Price layouts").click()
    best = panel.locator(".alpa-best li")
    lab.wait_until(lambda: best.count() == 3, "three layouts")
    assert explorer.locator(".alpa-below .alpa-best").count() == 0, "they stand once on the page"
    assert panel.get_by_role("button", name="Price layouts").is_hidden()
    best.nth(1).get_by_role("button", name="Compare").click()
    wait_for_finding(lab, "than with the fastest other plan")
    assert lab.ask(f"{PLANS}, Out[1].session.store.state.history.position") == "(2, 0)"


def test_what_was_not_tried_is_listed_beside_what_was_with_estimates_at_once(lab: LabPage) -> None:
    explorer = show_explorer(lab, SMALL)
    show_tab(explorer, "Why")
    rows = panel_of(lab).locator(".alpa-why li")
    rows.first.wait_for()
    assert "on screen" in rows.filter(has_text="this plan").inner_text()
    assert "an estimate · exact in about" in rows.filter(has_text="+ 1 node").inner_text()
    lever = rows.filter(has_text="layers 2 → 1")
    assert "not asked yet · about" in lever.inner_text()
    lever.get_by_role("button", name="Try").press("Enter")
    lever.get_by_role("button", name="Open").wait_for()
    assert "memory" in lever.inner_text()
    assert "Best free change" in finding(explorer) or "saves time" in finding(explorer)


def test_search_counts_what_the_planner_did_until_there_are_two_plans(lab: LabPage) -> None:
    explorer = show_explorer(lab, SMALL)
    show_tab(explorer, "Search")
    wait_for_finding(lab, "stages priced, by")
    names = [name for trace in seen_figure(lab, explorer)["data"] for name in trace["y"]]
    assert {"possible stages", "priced", "distinct ones", "evaluated", "sharding"} <= set(names)
    type_number(explorer, "B, microbatches", "16")
    wait_for_finding(lab, "2 plans of mlp-tiny")


def test_run_says_what_a_step_takes_and_which_command_runs_the_plan(lab: LabPage) -> None:
    explorer = show_explorer(lab, SMALL)
    show_tab(explorer, "Run")
    ways = panel_of(lab).locator(".alpa-ways")
    ways.wait_for()
    number = " ".join(explorer.locator(".alpa-time").inner_text().split()).removesuffix(" an iteration")
    assert f"A step takes {number}" in ways.inner_text()
    command = ways.locator(".alpa-command")
    assert command.inner_text() == "alpa-explore launch mlp-tiny_1x4_B8.plan.json --steps 20"
    assert "dask scheduler" in ways.inner_text()
    panel_of(lab).get_by_role("combobox", name="Where").select_option("torchrun")
    type_number(explorer, "Steps", "7")
    lab.wait_until(
        lambda: command.inner_text().endswith("plan.json --target torchrun --steps 7"), "it follows the settings"
    )


def test_the_words_of_the_layout_keep_clear_of_the_tools(lab: LabPage) -> None:
    explorer = show_explorer(lab, SMALL)
    explorer.locator(".alpa-words").evaluate("(e) => { e.textContent = 'mostly PP 2 · DP 4 · ZeRO-1 · '.repeat(3); }")
    for width in (700, 900, WIDE[0], 1920):
        lab.page.set_viewport_size({"width": width, "height": 900})
        lab.rest()
        words, tools, time = (box(explorer, name) for name in (".alpa-words", ".alpa-toolbar", ".alpa-time"))
        beside = words.top < tools.bottom and tools.top < words.bottom
        assert not beside or words.right + 8 <= tools.left, f"{width}: {words} beside {tools}"
        assert time.right <= tools.left, width
