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


def slider(explorer: Locator, name: str) -> Locator:
    return explorer.get_by_role("slider", name=name)


def tab(explorer: Locator, title: str) -> Locator:
    return explorer.get_by_role("tab", name=title, exact=True)


def seen_figure(page: GuardedPage, explorer: Locator) -> dict[str, Any]:
    """Data and layout of the figure of the selected tab."""
    return page.read_figure(page.figure(explorer.locator(".alpa-panel:visible")))
