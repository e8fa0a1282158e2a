"""What the verdict, its tools and the tabs say, read on the page and pressed with real keys: each cost and each lever
once, the code that is copied, the way back, and what is under way while there is no plan."""

import re
from itertools import pairwise

import pytest
from playwright.sync_api import Locator

from tests.browser.harness.boxes import boxes
from tests.browser.harness.explorer import (
    SMALL,
    explorer_of,
    note_of,
    seen_figure,
    show_again,
    show_baseline,
    show_explorer,
    show_tab,
    slider,
    type_number,
    wait_for_finding,
)
from tests.browser.harness.page import LabPage

pytestmark = [pytest.mark.browser, pytest.mark.slow]

REAL = """
from alpa_explore_widgets import explore
explore("{model}", cluster="1x4:h100", num_microbatches=8, num_layers=2)
"""
"""A cell of a device with the software that it is used with."""
_HELD_PLANNER = """
import threading
from alpa_explore.execution.progress import Progress
from alpa_explore_widgets.session.backend import Backend
gate = threading.Event()
def plan(*arguments, progress, **options):
    progress(Progress(pass_name="sharding", done=3, total=12, elapsed_seconds=4.0))
    gate.wait()
    return Backend().plan(*arguments, progress=progress, **options)
held = Backend(plan=plan)
"""
"""A planner that tells of 3 sharding problems and waits."""


def button(explorer: Locator, name: str) -> Locator:
    return explorer.get_by_role("button", name=name, exact=True)


def test_why_has_the_overhead_of_the_software_and_the_time_has_the_sends_in_it(lab_as_left: LabPage) -> None:
    explorer = show_again(lab_as_left, REAL.format(model="llama-tiny"))
    show_tab(explorer, "Why")
    why = explorer.locator(".alpa-why")
    why.locator(".alpa-legend", has_text="overhead of the software").wait_for()
    levers = [text.split("\n")[0] for text in why.locator("li").all_inner_texts()]
    assert len(levers) > 5
    assert len(levers) == len(set(levers)), "no cause is listed twice"
    said = explorer.locator(".alpa-time").inner_text().removesuffix(" an iteration")
    seconds = lab_as_left.ask("__import__('alpa_explore').units.seconds(Out[1].plan.predicted.iteration_seconds)")
    assert " ".join(said.split()) == seconds.strip("'")
    assert f"{seconds.strip(chr(39))} of an iteration" in why.inner_text()


def test_a_plan_whose_memory_is_nearly_full_is_called_tight_and_not_that_it_fits(lab: LabPage) -> None:
    explorer = show_explorer(lab, SMALL.replace("mlp-tiny", "gpt-tiny"))  # of more than the least memory of the field
    fact = explorer.locator(".alpa-facts .alpa-fact").first
    assert fact.inner_text().startswith("fits")
    explorer.get_by_role("button", name="Device figures").press("Enter")
    peak = float(lab.ask("Out[1].plan.predicted.peak_bytes_per_device / 2**30"))
    type_number(explorer, "Memory", f"{1.004 * peak:.6f}")
    tight = explorer.locator(".alpa-facts .alpa-warn", has_text="over what is usable")
    tight.wait_for()
    assert tight.inner_text().startswith("tight")
    assert explorer.locator(".alpa-facts .alpa-good").count() == 0


def test_a_microbatch_is_said_to_be_of_all_replicas_or_of_one(lab_as_left: LabPage) -> None:
    explorer = show_baseline(lab_as_left, show_again, pp=2, dp=4, num_microbatches=8)
    words = explorer.locator(".alpa-words")
    words.hover()
    assert "the microbatch is that of one replica" in (words.get_attribute("title") or "")
    of_one = re.search(r"DP 4 .*microbatch (\d+)", words.inner_text())
    assert of_one is not None
    field = explorer.get_by_role("combobox", name="Microbatch", exact=True)
    assert note_of(field) == "all replicas"
    assert int(field.input_value()) == 4 * int(of_one[1])


def test_search_draws_no_line_of_one_device_beside_plans_on_others(lab: LabPage) -> None:
    explorer = show_explorer(lab, SMALL)
    explorer.get_by_role("button", name="Device figures").press("Enter")
    type_number(explorer, "Memory", "24")
    lab.wait_until(lambda: lab.ask("Out[1].plan.cluster.device.memory_bytes == 24 * 2**30") == "True", "another plan")
    show_tab(explorer, "Search")
    wait_for_finding(lab, "2 plans of mlp-tiny")
    layout = seen_figure(lab, explorer)["layout"]
    assert layout["xaxis"]["title"]["text"].startswith("peak memory of the fullest device (% of the device)")
    notes = [note["text"] for note in layout["annotations"]]
    assert any(text.startswith("all its memory") for text in notes)
    assert not any("GiB" in text for text in notes)


def test_the_imbalance_of_experts_is_asked_only_of_a_model_that_has_some(lab: LabPage) -> None:
    field = "Expert imbalance"
    explorer = show_explorer(lab, REAL.format(model="llama-tiny"))
    assert not explorer.get_by_role("spinbutton", name=field).is_visible()
    explorer = show_explorer(lab, REAL.format(model="mixtral-tiny"))
    explorer.get_by_role("spinbutton", name=field).wait_for()


def test_the_way_back_is_that_of_what_was_seen_and_there_is_none_forward_before_it(lab: LabPage) -> None:
    explorer = show_explorer(lab, SMALL)
    count = explorer.get_by_role("spinbutton", name="B, microbatches")
    assert button(explorer, "Redo").is_disabled()
    for b in ("16", "4", "16"):  # what is seen for the second time is not made again
        type_number(explorer, "B, microbatches", b)
        explorer.get_by_text(f"{b} × 8").wait_for()
        explorer.locator(".alpa-verdict:not(.alpa-stale)").wait_for()
        lab.wait_until(lambda: lab.ask("Out[1].session.store.state.moving") == "False", "the move has ended")
    assert button(explorer, "Redo").is_disabled(), "nothing was undone"
    for name, b in (("Undo", "4"), ("Undo", "16"), ("Redo", "4"), ("Undo", "16"), ("Undo", "8")):
        button(explorer, name).press("Enter")
        lab.wait_until(lambda: count.input_value() == b, lambda: f"{name}: {count.input_value()}, not {b}")  # noqa: B023
    lab.wait_until(lambda: button(explorer, "Undo").is_disabled(), "there is nothing left to undo")


def test_the_code_that_is_copied_makes_the_plan_on_screen(lab: LabPage) -> None:
    explorer = show_explorer(lab, SMALL)
    lab.page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    slider(explorer, "B, microbatches").press("ArrowRight")
    lab.wait_until(lambda: lab.ask("Out[1].plan.options.num_microbatches") == "12", "the plan of B = 12 is shown")
    lab.rest()
    button(explorer, "Copy code").press("Enter")
    explorer.get_by_text("copied").wait_for()
    code = lab.page.evaluate("() => navigator.clipboard.readText()")
    assert "num_microbatches=12" in code
    assert not (error := lab.do(code)), error
    assert lab.ask("plan.stages == Out[1].plan.stages, plan.predicted == Out[1].plan.predicted") == "(True, True)"


def test_no_line_of_the_export_menu_lies_on_another_and_no_tab_of_the_lessons_is_cut(lab_as_left: LabPage) -> None:
    explorer = show_again(lab_as_left, SMALL)
    button(explorer, "Export").press("Enter")
    lines = boxes(explorer, '.alpa-menu [role="menuitem"]')
    assert len(lines) == 12
    for above, below in pairwise(lines):
        assert above.bottom <= below.top + 1
    lab_as_left.page.keyboard.press("Escape")
    button(explorer, "Teach").press("Enter")
    explorer.locator(".alpa-lesson-panel:visible").wait_for()
    cut = (
        "(bar) => [...bar.querySelectorAll('[role=tab]')].filter((tab) => tab.scrollWidth > tab.clientWidth + 1).length"
    )
    assert explorer.locator(".alpa-tabs").evaluate(cut) == 0
    button(explorer, "Teach").press("Enter")


@pytest.mark.parametrize(
    ("tab", "place", "count"),
    [
        ("Timeline", ".alpa-toolbar > button, .alpa-menu > button, .alpa-player-bar button", 13),
        ("Why", ".alpa-why li .alpa-keep", 1),
    ],
)
def test_signs_are_drawn_so_that_no_font_can_lack_them(lab_as_left: LabPage, tab: str, place: str, count: int) -> None:
    explorer = show_again(lab_as_left, SMALL)
    show_tab(explorer, tab)
    signs = explorer.locator(place)
    signs.last.wait_for()
    assert signs.count() == count
    for number in range(count):
        sign = signs.nth(number)
        assert sign.inner_text().strip() == "", "no sign of a font"
        drawn = sign.locator("svg").bounding_box()
        assert drawn is not None
        assert min(drawn["width"], drawn["height"]) > 8


def test_folding_all_blocks_of_a_graph_that_was_fitted_leaves_them_large_enough_to_read(lab_as_left: LabPage) -> None:
    explorer = show_again(lab_as_left, REAL.format(model="llama-tiny"))
    show_tab(explorer, "Sharding")
    panel = explorer.locator(".alpa-panel:visible")
    for name in ("Open all", "Fit", "Fold all"):
        panel.get_by_role("button", name=name, exact=True).press("Enter")
    panel.get_by_role("button", name="Open all", exact=True).wait_for()
    heads = boxes(panel, ".alpa-flow-head")
    view = boxes(panel, ".alpa-flow-view")[0]
    assert max(head.width for head in heads) > 0.3 * view.width


def test_while_there_is_no_plan_the_page_says_what_the_planner_does(lab: LabPage) -> None:
    lab.show(_HELD_PLANNER, SMALL.replace("num_layers=2", "num_layers=2, backend=held"))
    explorer = explorer_of(lab)
    waiting = explorer.get_by_text(
        re.compile("Solving sharding problems: 3 of 12; .* · the figure appears with the first plan")
    )
    waiting.wait_for()
    lab.do("gate.set()")
    explorer.locator(".alpa-verdict").wait_for()
    waiting.wait_for(state="detached")
