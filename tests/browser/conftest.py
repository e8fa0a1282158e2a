"""Fixtures of the browser tier: one JupyterLab for the session, one Chromium a module, one guarded page a test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.browser.harness.chromium import HOW_TO_INSTALL, find_chromium, launch

if TYPE_CHECKING:
    from playwright.sync_api import Browser

    from tests.browser.harness.page import LabPage
    from tests.browser.harness.server import LabServer


@pytest.fixture(scope="session")
def chromium_executable() -> Path:
    """Chromium on this machine; without it the test is skipped and says what to install."""
    executable = find_chromium()
    if executable is None:
        pytest.skip(f"no Chromium here: {HOW_TO_INSTALL}")
    return executable


@pytest.fixture(scope="session")
def lab_server(chromium_executable: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LabServer]:
    """A running JupyterLab with an empty home."""
    from tests.browser.harness.server import LabServer

    with LabServer(tmp_path_factory.mktemp("lab")) as server:
        yield server


@pytest.fixture(scope="module")
def browser(chromium_executable: Path) -> Iterator[Browser]:
    """Headless Chromium; for a module only, since playwright's event loop would stay under the tests that follow."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        chromium = launch(playwright, chromium_executable)
        yield chromium
        chromium.close()


@pytest.fixture
def lab(browser: Browser, lab_server: LabServer) -> Iterator[LabPage]:
    """A fresh page; when the test ends, no request may have left the machine and the console must be free of errors."""
    from tests.browser.harness.guard import Guard
    from tests.browser.harness.page import LabPage

    context = browser.new_context(viewport={"width": 1400, "height": 900}, reduced_motion="reduce")
    guard = Guard(context)
    page = LabPage(context.new_page(), lab_server, guard)
    yield page
    try:
        guard.check()
    finally:
        # After the check: a kernel that goes away makes Lab complain on the console.
        page.shut_down()
        context.close()
