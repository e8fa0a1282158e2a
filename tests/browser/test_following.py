"""Sliders whose plan the planner makes: an estimate at once, the exact plan a moment later."""

import re

import pytest
from playwright.sync_api import Locator, expect

from tests.browser.harness.explorer import show_tab, slider, type_number
from tests.browser.harness.page import LabPage

pytestmark = [pytest.mark.browser, pytest.mark.slow]
CELL = """
from alpa_explore_widgets import explore
explore("gpt-tiny", cluster="1x4:v100", num_microbatches=8, num_layers=4)
"""
ESTIMATE = re.compile("an estimate · exact in a moment")


@pytest.fixture
def explorer(lab: LabPage) -> Locator:
    lab.show(CELL)
    shown = lab.page.locator(".alpa-explorer:visible")
    shown.get_by_text("Planned in").wait_for()
    lab.wait_guarded()
    return shown


def hold_planner(lab: LabPage, *, held: bool) -> None:
    """Let the planner of the explorer wait, or go on."""
    code = """
import threading
from dataclasses import replace
session = Out[1].session
if not hasattr(session, 'gate'):
    session.gate, plan = threading.Event(), session.planning._backend.plan
    def wait_and_plan(*arguments, cancel, **options):
        while not (session.gate.wait(0.01) or cancel.is_set()):
            pass
        return plan(*arguments, cancel=cancel, **options)
    session.planning._backend = replace(session.planning._backend, plan=wait_and_plan)
"""
    error = lab.do(code + f"session.gate.{'clear' if held else 'set'}()")
    assert not error, error


def test_memory_is_estimated_while_it_moves_and_exact_when_it_rests(explorer: Locator, lab: LabPage) -> None:
    hold_planner(lab, held=True)
    explorer.get_by_role("button", name="Device figures").press("Enter")
    slider(explorer, "Memory").press("ArrowRight")
    explorer.locator(".alpa-verdict", has_text=ESTIMATE).wait_for()
    assert explorer.locator(".alpa-verdict", has_text="≈").count() == 1
    hold_planner(lab, held=False)
    explorer.locator(".alpa-verdict", has_text=ESTIMATE).wait_for(state="hidden")
    expect(explorer.get_by_text("Out of date")).to_have_count(0)
    assert lab.ask("Out[1].plan.cluster.device.memory_bytes == 24 * 2**30") == "True"


@pytest.mark.parametrize(
    ("name", "key", "plan"),
    [
        ("Network", "ArrowRight", "cluster.between_nodes.bandwidth == 6e9"),
        ("Link", "ArrowLeft", "cluster.inside_node.bandwidth == 64e9"),
        ("nodes", "ArrowUp", "cluster.nodes == 2"),
        ("Sequence", "ArrowRight", "model.tokens // plan.model.samples == 1024"),
    ],
)
def test_links_nodes_and_sequence_are_answered_at_their_keys_without_the_plan_button(
    explorer: Locator, lab: LabPage, name: str, key: str, plan: str
) -> None:
    hold_planner(lab, held=True)
    if name in ("Network", "Link"):
        explorer.get_by_role("button", name="Device figures").press("Enter")
    field = explorer.get_by_role("spinbutton" if name == "nodes" else "slider", name=name)
    field.focus()
    lab.page.keyboard.press(key)
    explorer.locator(".alpa-verdict", has_text=ESTIMATE).wait_for()
    hold_planner(lab, held=False)
    explorer.locator(".alpa-verdict", has_text=ESTIMATE).wait_for(state="hidden")
    assert lab.ask(f"(plan := Out[1].plan).{plan}") == "True"


def test_all_tabs_count_the_same_plans_and_one_that_is_made_again_keeps_its_number(
    explorer: Locator, lab: LabPage
) -> None:
    delta = slider(explorer, "FLOP tolerance")
    for key, shown in (("ArrowRight", 0.6), ("ArrowRight", 0.7), ("ArrowLeft", 0.6), ("ArrowLeft", 0.5)):
        delta.press(key)
        lab.wait_until(lambda: lab.ask("Out[1].plan.options.delta") == f"{shown}", f"δ is {shown}")  # noqa: B023
        lab.wait_until(lambda: lab.ask("Out[1].session.store.state.moving") == "False", "the slider rests")
    show_tab(explorer, "Why")
    yours = explorer.locator(".alpa-why ul").last.locator("li")
    yours.filter(has_text="on screen").wait_for()
    assert yours.count() == 3
    assert "plan 1:" in yours.filter(has_text="on screen").locator("span").first.get_attribute("title")
    show_tab(explorer, "Search")
    explorer.locator(".alpa-finding:visible", has_text="3 plans of gpt-tiny").wait_for()
    explorer.get_by_role("button", name="Undo").press("Enter")
    explorer.get_by_text("Back to number 2 of the 3 plans").wait_for()


def test_b_keeps_the_global_batch_and_its_slider_says_what_an_iteration_is(explorer: Locator, lab: LabPage) -> None:
    note = explorer.locator(".alpa-sliders .alpa-note").first
    batch = note.inner_text().split("=")[1]
    hold_planner(lab, held=True)
    slider(explorer, "B, microbatches").press("ArrowRight")
    explorer.locator(".alpa-verdict", has_text=ESTIMATE).wait_for()
    assert note.inner_text().split("=")[1] == batch
    assert note.inner_text().startswith("16 × ")
    hold_planner(lab, held=False)
    explorer.locator(".alpa-verdict", has_text=ESTIMATE).wait_for(state="hidden")
    assert lab.ask("Out[1].plan.options.num_microbatches") == "16"
    type_number(explorer, "B, microbatches", "7")
    explorer.get_by_text("equal microbatches").wait_for()


def test_a_memory_in_which_nothing_fits_leaves_the_last_figures_grey_with_advice(
    explorer: Locator, lab: LabPage
) -> None:
    explorer.get_by_role("button", name="Device figures").press("Enter")
    type_number(explorer, "Memory", "0.001")
    message = explorer.locator(".alpa-message")
    message.wait_for()
    explorer.locator(".alpa-main.alpa-stale").wait_for()
    assert "press Plan" not in explorer.inner_text()
    assert explorer.get_by_text("No plan with these settings").count() == 1


def test_a_sweep_that_is_cancelled_half_way_keeps_the_plan_and_can_go_on(explorer: Locator, lab: LabPage) -> None:
    show_tab(explorer, "Why")
    headline = explorer.locator(".alpa-time").inner_text()
    hold_planner(lab, held=True)
    sweep = explorer.get_by_role("button", name="Answer all")
    sweep.press("Enter")
    explorer.get_by_text("1 of").wait_for()
    explorer.get_by_role("button", name="Cancel", exact=True).press("Enter")
    explorer.get_by_text("Cancelled after").wait_for()
    expect(sweep).to_be_enabled()
    assert explorer.locator(".alpa-time").inner_text() == headline
    assert explorer.locator(".alpa-stale").count() == 0
    hold_planner(lab, held=False)
    sweep.press("Enter")
    explorer.locator(".alpa-panel-why").get_by_role("button", name="Open").first.wait_for()


def test_at_700_pixels_nothing_is_wider_than_the_page(explorer: Locator, lab: LabPage) -> None:
    lab.page.set_viewport_size({"width": 700, "height": 900})
    lab.rest()
    show_tab(explorer, "Why")
    lab.rest()
    for part in (".alpa-body", ".alpa-sliders", ".alpa-verdict", ".alpa-tab-bar", ".alpa-panel:visible", ".alpa-why"):
        place = explorer.locator(part).first
        lab.wait_until(
            lambda: place.evaluate("(part) => part.scrollWidth <= part.clientWidth + 1"),  # noqa: B023
            f"{part} fits",
        )
    lever, width = explorer.locator(".alpa-why li button").first.bounding_box(), explorer.bounding_box()
    assert lever["x"] + lever["width"] <= width["x"] + width["width"], "what tries a lever is in sight"
