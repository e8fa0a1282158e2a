"""Fixtures of the browser tests. A worker has one JupyterLab, one Chromium, and one page with a warm kernel, which is
made new before each test; tests that are about starting get a page and a kernel of their own."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.browser.harness.chromium import HOW_TO_INSTALL, find_chromium

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

    from tests.browser.harness.guard import Guard
    from tests.browser.harness.kept import Chromium, KeptPage
    from tests.browser.harness.page import AppPage, LabPage, NotebookPage
    from tests.browser.harness.server import LabServer

WARM = "warm.ipynb"
"""The notebook of the page that tests share."""
_FAILED = pytest.StashKey[bool]()
_CHROMIUM = pytest.StashKey["Chromium"]()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Any:
    """Note that a test failed, for the page that it used."""
    report: pytest.TestReport = yield
    item.stash[_FAILED] = item.stash.get(_FAILED, False) or report.failed
    return report


def has_failed(item: pytest.Item) -> Callable[[], bool]:
    """Whether a test has failed so far, as `KeptPage.page` asks."""
    return lambda: item.stash.get(_FAILED, False)


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """Close Chromium before a test of another folder: playwright's event loop must not stay for that."""
    chromium = item.session.stash.get(_CHROMIUM, None)
    if chromium and (nextitem is None or Path(__file__).parent not in nextitem.path.parents):
        chromium.close()


@pytest.fixture(scope="session")
def chromium_executable() -> Path:
    """The Chromium of this machine; without one the test is skipped with the reason and what to install."""
    executable = find_chromium()
    if executable is None:
        pytest.skip(f"no Chromium here: {HOW_TO_INSTALL}")
    return executable


@pytest.fixture(scope="session")
def chromium(chromium_executable: Path, request: pytest.FixtureRequest) -> Iterator[Chromium]:
    """Headless Chromium."""
    from tests.browser.harness.kept import Chromium

    request.session.stash[_CHROMIUM] = chromium = Chromium(chromium_executable)
    yield chromium
    chromium.close()


@pytest.fixture(scope="session")
def lab_server(chromium_executable: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LabServer]:
    """A running JupyterLab with an empty home."""
    from tests.browser.harness.server import LabServer

    with LabServer(tmp_path_factory.mktemp("lab")) as server:
        yield server


@pytest.fixture
def browser(chromium: Chromium) -> Browser:
    """The running Chromium, for pages without JupyterLab."""
    return chromium.browser()


@pytest.fixture(scope="session")
def new_lab(chromium: Chromium, lab_server: LabServer) -> Callable[[], AbstractContextManager[LabPage]]:
    """Makes a page in which nothing is loaded yet; its guard is checked, and its kernel stopped, in the end."""
    from tests.browser.harness.page import LabPage

    @contextmanager
    def make() -> Iterator[LabPage]:
        with guarded(chromium.browser()) as (page, guard):
            lab = LabPage(page, lab_server, guard)
            yield lab
            guard.check()
            # After the check: Lab reports a kernel that is shut down as an error on the console.
            lab.shut_down()

    return make


@pytest.fixture(scope="session")
def kept_lab(chromium: Chromium, lab_server: LabServer) -> Iterator[KeptPage[LabPage]]:
    """The page that tests share."""
    from tests.browser.harness.kept import KeptPage
    from tests.browser.harness.page import LabPage

    @contextmanager
    def open_page() -> Iterator[LabPage]:
        with guarded(chromium.browser()) as (page, guard):
            lab = LabPage(page, lab_server, guard)
            lab.load(lab_server.write_notebook(WARM, "1"))
            yield lab
            lab_server.stop_kernel(WARM)

    kept = KeptPage(chromium, open_page, WARM)
    yield kept
    kept.close()


@pytest.fixture
def lab(kept_lab: KeptPage[LabPage], request: pytest.FixtureRequest) -> Iterator[LabPage]:
    """The shared page: empty, and its kernel like a new one. Fails at the end of the test if a request left the machine
    or the console has an error; after a failure the next test has another page."""
    with kept_lab.page(has_failed(request.node)) as page:
        yield page


@pytest.fixture
def lab_as_left(kept_lab: KeptPage[LabPage], request: pytest.FixtureRequest) -> Iterator[LabPage]:
    """The same with the cells of the test before, for `show_again` (explorer.py)."""
    with kept_lab.page(has_failed(request.node), empty=False) as page:
        yield page


@pytest.fixture
def own_lab(new_lab: Callable[[], AbstractContextManager[LabPage]]) -> Iterator[LabPage]:
    """A page in which nothing is loaded, for tests of starting, with the same checks."""
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
    from tests.browser.harness.page import WIDE

    context = browser.new_context(viewport={"width": WIDE[0], "height": WIDE[1]}, reduced_motion="reduce")
    try:
        guard = Guard(context, known)
        yield context.new_page(), guard
    finally:
        context.close()
