"""Fixtures of the browser tier: one JupyterLab for the session, one Chromium a module, one guarded page a test."""

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


@pytest.fixture(scope="module")
def new_lab(browser: Browser, lab_server: LabServer) -> Callable[[], AbstractContextManager[LabPage]]:
    """Makes a page whose guard is asked at its end, for tests that share one."""
    from tests.browser.harness.page import LabPage

    @contextmanager
    def open_page() -> Iterator[LabPage]:
        with guarded(browser) as (page, guard):
            lab = LabPage(page, lab_server, guard)
            yield lab
            guard.check()
            # After the check: a kernel that goes away makes Lab complain on the console.
            lab.shut_down()

    return open_page


@pytest.fixture
def lab(new_lab: Callable[[], AbstractContextManager[LabPage]]) -> Iterator[LabPage]:
    """A fresh page; when the test ends, no request may have left the machine and the console must be free of errors."""
    with new_lab() as page:
        yield page


@pytest.fixture
def notebook(browser: Browser, lab_server: LabServer) -> Iterator[NotebookPage]:
    """The same in Notebook 7, whose pages the server shows beside JupyterLab's."""
    pytest.importorskip("notebook")
    from tests.browser.harness.page import NotebookPage

    with guarded(browser, known=NotebookPage.known_errors) as (page, guard):
        notebook = NotebookPage(page, lab_server, guard)
        yield notebook
        guard.check()
        notebook.shut_down()


@pytest.fixture
def app(browser: Browser, tmp_path: Path) -> Iterator[AppPage]:
    """The page of an `alpa-explore app` of the test's own."""
    pytest.importorskip("voila")
    from tests.browser.harness.page import AppPage
    from tests.browser.harness.server import AppServer

    with AppServer(tmp_path) as server, guarded(browser) as (page, guard):
        yield AppPage(page, server, guard)
        guard.check()


@contextmanager
def guarded(browser: Browser, known: Collection[str] = ()) -> Iterator[tuple[Page, Guard]]:
    """A page in a browser context of its own, and its guard."""
    from tests.browser.harness.guard import Guard

    context = browser.new_context(viewport={"width": 1400, "height": 900}, reduced_motion="reduce")
    try:
        guard = Guard(context, known)
        yield context.new_page(), guard
    finally:
        context.close()
