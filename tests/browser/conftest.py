"""Fixtures of the browser tests: one JupyterLab per session, one Chromium per module, one guarded page per test."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.browser.harness.chromium import HOW_TO_INSTALL, find_chromium, launch

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

    from tests.browser.harness.guard import Guard
    from tests.browser.harness.page import AppPage, LabPage, NotebookPage
    from tests.browser.harness.server import LabServer


@pytest.fixture(scope="session")
def chromium_executable() -> Path:
    """The Chromium of this machine; without one the test is skipped with the reason and what to install."""
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
    """Headless Chromium, closed after each module: playwright's event loop must not stay for other tests."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        chromium = launch(playwright, chromium_executable)
        yield chromium
        chromium.close()


@pytest.fixture(scope="module")
def new_lab(browser: Browser, lab_server: LabServer) -> Callable[[], AbstractContextManager[LabPage]]:
    """Opens a page that is checked by its guard when it is closed; for tests that share a page."""
    from tests.browser.harness.page import LabPage

    @contextmanager
    def open_page() -> Iterator[LabPage]:
        with guarded(browser) as (page, guard):
            lab = LabPage(page, lab_server, guard)
            yield lab
            guard.check()
            # After the check: Lab reports a kernel that is shut down as an error on the console.
            lab.shut_down()

    return open_page


@pytest.fixture
def lab(new_lab: Callable[[], AbstractContextManager[LabPage]]) -> Iterator[LabPage]:
    """A new page. Fails at the end of the test if a request left the machine or the console has an error."""
    with new_lab() as page:
        yield page


@pytest.fixture
def notebook(browser: Browser, lab_server: LabServer) -> Iterator[NotebookPage]:
    """A new page of Notebook 7, which the same server provides, with the same checks."""
    pytest.importorskip("notebook")
    from tests.browser.harness.page import NotebookPage

    with guarded(browser, known=NotebookPage.known_errors) as (page, guard):
        notebook = NotebookPage(page, lab_server, guard)
        yield notebook
        guard.check()
        notebook.shut_down()


@pytest.fixture
def app(browser: Browser, tmp_path: Path) -> Iterator[AppPage]:
    """A page of `alpa-explore app`, started for this test."""
    pytest.importorskip("voila")
    from tests.browser.harness.page import AppPage
    from tests.browser.harness.server import AppServer

    with AppServer(tmp_path) as server, guarded(browser) as (page, guard):
        yield AppPage(page, server, guard)
        guard.check()


@contextmanager
def guarded(browser: Browser, known: Collection[str] = ()) -> Iterator[tuple[Page, Guard]]:
    """A page in a new browser context, and its guard."""
    from tests.browser.harness.guard import Guard

    context = browser.new_context(viewport={"width": 1400, "height": 900}, reduced_motion="reduce")
    context.set_default_timeout(60_000)
    try:
        guard = Guard(context, known)
        yield context.new_page(), guard
    finally:
        context.close()
