"""A page of a private JupyterLab for scripts that are not tests."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import sync_playwright

from tests.browser.harness.chromium import HOW_TO_INSTALL, find_chromium, launch
from tests.browser.harness.guard import Guard
from tests.browser.harness.page import LabPage
from tests.browser.harness.server import LabServer


@contextmanager
def page_alone(width: int = 1400, height: int = 900) -> Iterator[LabPage]:
    """A guarded page of this size in pixels. SystemExit with what to install if there is no Chromium."""
    executable = find_chromium()
    if executable is None:
        raise SystemExit(f"Chromium was not found: {HOW_TO_INSTALL}")
    with (
        tempfile.TemporaryDirectory() as home,
        LabServer(Path(home)) as server,
        sync_playwright() as playwright,
        launch(playwright, executable) as browser,
    ):
        context = browser.new_context(viewport={"width": width, "height": height})
        yield LabPage(context.new_page(), server, Guard(context))
