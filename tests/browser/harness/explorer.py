"""The explorer on a page of JupyterLab, Notebook or voila: its controls, its tabs, and the visible figure."""

from __future__ import annotations

from typing import Any

from playwright.sync_api import Locator

from tests.browser.harness.page import GuardedPage

PLAN_SECONDS = 300.0
SMALL = """
from alpa_explore_widgets import explore
explore("mlp-tiny", cluster="1x4:v100", num_microbatches=8, num_layers=2)
"""
"""A cell whose plan takes a moment."""


def first_explorer(page: GuardedPage) -> Locator:
    """The first explorer of the page, once it has a plan and its visible figure is drawn."""
    explorer = page.page.locator(".alpa-explorer").first
    explorer.get_by_text("Planned in").wait_for(timeout=1000 * PLAN_SECONDS)
    page.figure(explorer.locator(".alpa-panel:visible"))
    return explorer


def type_number(explorer: Locator, name: str, text: str, key: str = "Enter") -> Locator:
    """Replace the text of a number's box by real keys and press `key`; returns the box."""
    return type_text(explorer.get_by_role("spinbutton", name=name), text, key)


def type_text(box: Locator, text: str, key: str = "Enter") -> Locator:
    """The same for any box."""
    box.focus()
    for pressed in ("Control+a", "Delete", *text, key):
        box.page.keyboard.press(pressed)
    return box


def note_of(box: Locator) -> str:
    """The line below a field, as a screen reader reads it with the box; '' if there is none."""
    described = box.get_attribute("aria-describedby")
    return box.page.locator(f"#{described}").inner_text() if described else ""


def slider(explorer: Locator, name: str) -> Locator:
    return explorer.get_by_role("slider", name=name)


def tab(explorer: Locator, title: str) -> Locator:
    return explorer.get_by_role("tab", name=title, exact=True)


def seen_figure(page: GuardedPage, explorer: Locator) -> dict[str, Any]:
    """Data and layout of the figure of the selected tab."""
    return page.read_figure(page.figure(explorer.locator(".alpa-panel:visible")))
