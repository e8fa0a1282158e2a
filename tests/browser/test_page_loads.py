"""Pages that start slowly, or that are loaded while the explorer changes."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser

from tests.browser.conftest import guarded
from tests.browser.harness.explorer import SMALL, first_explorer, seen_figure, show_tab, slider
from tests.browser.harness.page import LabPage
from tests.browser.harness.server import LabServer

pytestmark = [pytest.mark.browser, pytest.mark.slow]

_NO_TIME_TO_START = """
  const timeout = AbortSignal.timeout;
  AbortSignal.timeout = (limit) => timeout.call(AbortSignal, limit === 2000 ? 0 : limit);
  globalThis.late = 0;
  addEventListener("unhandledrejection", ({ reason }) => {
    if (/Failed to initialize/.test(reason)) globalThis.late += 1;
  });
"""
"""anywidget's limit for the start of a widget, 2 s, is over at once."""
_CHANGE_AFTER_STATES = """
from ipywidgets import Widget
send_states = Widget._handle_control_comm_msg

def send_then_change(message):
    send_states(message)
    explorer.session.set(num_microbatches=explorer.settings.num_microbatches // 2)
    explorer.wait(60)

Widget._handle_control_comm_msg = send_then_change
"""


@pytest.fixture
def slow_lab(browser: Browser, lab_server: LabServer) -> Iterator[LabPage]:
    """A page on which every widget starts too late for anywidget."""
    with guarded(browser) as (page, guard):
        page.add_init_script(_NO_TIME_TO_START)
        lab = LabPage(page, lab_server, guard)
        yield lab
        guard.check()
        lab.shut_down()


def test_widgets_that_start_late_follow_the_kernel(slow_lab: LabPage) -> None:
    lab = slow_lab
    lab.load(lab.server.write_notebook("late.ipynb", SMALL))
    lab.run_all()
    explorer = first_explorer(lab)
    assert lab.page.evaluate("globalThis.late") > 20, "widgets start too late"
    headline = explorer.locator(".alpa-tile").first.inner_text()
    show_tab(explorer, "t_max")
    lab.figure(explorer.locator(".alpa-panel:visible"))
    before = seen_figure(lab, explorer)["data"]
    slider(explorer, "B, microbatches").press("ArrowRight")
    lab.wait_until(lambda: explorer.locator(".alpa-tile").first.inner_text() != headline, "the headline follows")
    lab.wait_until(lambda: seen_figure(lab, explorer)["data"] != before, "B moves the figure")
    assert lab.ask("_1.tabs.selected") == lab.ask("_1.panels.at('t_max')")


def test_a_page_shows_what_changed_while_it_was_loaded(own_lab: LabPage) -> None:
    lab = own_lab
    cell = SMALL.replace("\nexplore(", "\nexplorer = explore(") + "explorer\n"
    lab.load(lab.server.write_notebook("loaded.ipynb", cell, _CHANGE_AFTER_STATES))
    lab.run_all()
    explorer = first_explorer(lab)
    headline, b = explorer.locator(".alpa-tile").first.inner_text(), slider(explorer, "B, microbatches")
    assert b.get_attribute("aria-valuetext") == "8"
    assert lab.ask("explorer.bridge.loads") == "0", "the page was there before the explorer"
    lab.save()
    lab.wait_answered()
    lab.load("loaded.ipynb")
    explorer = lab.page.locator(".alpa-explorer").first
    explorer.locator(".alpa-tile").first.wait_for()
    lab.wait_until(lambda: b.get_attribute("aria-valuetext") == "4", "the page shows the B of now")
    lab.wait_until(lambda: explorer.locator(".alpa-tile").first.inner_text() != headline, "and its headline")
    assert lab.ask("explorer.bridge.loads") == "1"
