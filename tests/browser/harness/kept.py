"""A page and a Chromium that tests share: opened when they are first needed, thrown away after a failure."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Generic, TypeVar

from playwright.sync_api import Browser, sync_playwright

from tests.browser.harness.chromium import launch
from tests.browser.harness.page import LabPage

P = TypeVar("P", bound=LabPage)


class Chromium:
    """Started when it is first needed, and once more after `close`."""

    def __init__(self, executable: Path) -> None:
        self._executable = executable
        self._browser: Browser | None = None
        self.opened = ExitStack()
        """What `close` closes, the last first."""

    def browser(self) -> Browser:
        """The running browser."""
        if self._browser is None:
            playwright = self.opened.enter_context(sync_playwright())
            self._browser = self.opened.enter_context(launch(playwright, self._executable))
        return self._browser

    def close(self) -> None:
        """Close it, and what is open in it."""
        self._browser = None
        self.opened.close()


class KeptPage(Generic[P]):
    """A page that is made new for each test in place of being loaded once more."""

    def __init__(self, chromium: Chromium, open_page: Callable[[], AbstractContextManager[P]], notebook: str) -> None:
        """`open_page` gives a page of `chromium` on which `notebook` is open."""
        self._chromium, self._open_page, self._notebook = chromium, open_page, notebook
        self._opened = ExitStack()
        self._page: P | None = None

    @contextmanager
    def page(self, failed: Callable[[], bool] = lambda: False, *, empty: bool = True) -> Iterator[P]:
        """The page for one test, whose guard is checked in the end. `failed` says then whether the test failed: the
        next one gets another page. Without `empty` the cells of the test before are still there."""
        page, self._page = self._page, None
        if page is None:
            self.close()
            page = self._opened.enter_context(self._open_page())
            self._chromium.opened.callback(self.close)
        page.make_new(self._notebook, empty=empty)
        yield page
        page.guard.check()
        self._page = None if failed() else page

    def close(self) -> None:
        """Close the page; another one is opened when it is needed."""
        self._page = None
        self._opened.close()
