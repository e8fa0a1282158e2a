"""A browser page: the explorer alone, or a notebook that is opened, run and read."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from playwright.sync_api import Locator, Page

from tests.browser.harness.guard import Guard
from tests.browser.harness.server import AppServer, LabServer

START_SECONDS = 240.0
RUN_SECONDS = 240.0
FIGURE_SECONDS = 120.0
WAIT_SECONDS = 60.0
"""Limits for a slow machine; a test that passes waits for none of them."""
PLOT = ".js-plotly-plot"

# Cells are read from Lab's own model: the DOM holds only the cells on screen.
_READY = """() => {
  const app = window.jupyterapp;
  return Boolean(app?.shell?.currentWidget?.context?.isReady) && !document.querySelector('#jupyterlab-splash');
}"""
_KERNEL = "() => window.jupyterapp.shell.currentWidget.sessionContext.session?.kernel?.status ?? 'none'"
_CONNECTION = "() => window.jupyterapp.shell.currentWidget.sessionContext.session?.kernel?.connectionStatus ?? 'none'"
_RUN_ALL = """async (limit) => {
  const late = new Promise((_, refuse) => setTimeout(refuse, limit, new Error(`cells still run after ${limit} ms`)));
  await Promise.race([window.jupyterapp.commands.execute('notebook:run-all-cells'), late]);
}"""
_ASK = """(asked) => window.jupyterapp.shell.currentWidget.sessionContext.session.kernel
  .requestExecute({ code: '', silent: true, user_expressions: { asked } }).done
  .then(({ content: { user_expressions: { asked: found } } }) => found.data?.['text/plain'] ?? found.evalue)"""
_SHUT_DOWN = "() => window.jupyterapp?.shell?.currentWidget?.sessionContext?.shutdown()"
_OUTPUTS = """() => window.jupyterapp.shell.currentWidget.content.model.toJSON().cells
  .flatMap((cell) => cell.outputs ?? [])"""
_DRAWN = "(plot) => Boolean(plot._fullLayout && plot.calcdata)"
_FIGURE = """(plot) => {
  const plain = (_key, value) => (ArrayBuffer.isView(value) ? Array.from(value) : value);
  return JSON.parse(JSON.stringify({ data: plot.data, layout: plot.layout }, plain));
}"""


class GuardedPage:
    """`page` is playwright's page, for everything that has no method here."""

    def __init__(self, page: Page, guard: Guard) -> None:
        self.page = page
        self.guard = guard

    def figure(self, within: Locator | None = None, index: int = 0, seconds: float = FIGURE_SECONDS) -> Locator:
        """The plotly figure at `index` of the page, or `within` a part of it, once it is drawn."""
        plot = (within or self.page).locator(PLOT).nth(index)
        plot.wait_for(state="visible", timeout=1000 * seconds)
        self.wait_until(lambda: plot.evaluate(_DRAWN), "the figure is drawn", seconds)
        return plot

    def read_figure(self, plot: Locator) -> dict[str, Any]:
        """`{"data": …, "layout": …}` of a drawn figure, arrays as lists."""
        figure: dict[str, Any] = plot.evaluate(_FIGURE)
        return figure

    def settled(self, part: Locator) -> str:
        """The HTML of a part of the page, once it has stayed the same for half a second."""
        html = part.inner_html()
        for _ in range(10):
            self.page.wait_for_timeout(500)
            before, html = html, part.inner_html()
            if html == before:
                return html
        raise AssertionError("still changes after 5 s")

    def wait_until(self, holds: Callable[[], bool], what: str, seconds: float = WAIT_SECONDS) -> None:
        """Poll until `holds()`; AssertionError with `what` on a timeout."""
        deadline = time.monotonic() + seconds
        while not holds():
            assert time.monotonic() < deadline, f"not true after {seconds:.0f} s: {what}"
            self.page.wait_for_timeout(50)


class LabPage(GuardedPage):
    """A notebook in JupyterLab."""

    place = "lab/tree/{}?reset"
    """Path of a notebook, opened in an empty workspace."""

    def __init__(self, page: Page, server: LabServer, guard: Guard) -> None:
        super().__init__(page, guard)
        self.server = server

    def open(self, notebook: str) -> None:
        """Open a notebook in `server.root` and wait until its kernel is idle; else AssertionError with its state."""
        self.page.goto(self.server.address.page(self.place.format(notebook)))
        self.page.wait_for_function(_READY, timeout=1000 * START_SECONDS)
        try:
            self.wait_idle(START_SECONDS)
        except AssertionError as late:
            status, connection = self.page.evaluate(_KERNEL), self.page.evaluate(_CONNECTION)
            log = self.server.log.read_text()[-2000:]
            raise AssertionError(f"{late}: it is {status}, its connection {connection}; the server:\n{log}") from late

    def run_all(self, seconds: float = RUN_SECONDS) -> None:
        """Run all cells; AssertionError with the error of a cell that fails."""
        self.page.evaluate(_RUN_ALL, 1000 * seconds)
        self.wait_idle(seconds)
        assert not (errors := self.errors()), "cells failed:\n" + "\n".join(errors)

    def wait_idle(self, seconds: float = RUN_SECONDS) -> None:
        """Wait until the kernel of the open notebook is idle."""
        self.wait_until(lambda: self.page.evaluate(_KERNEL) == "idle", "the kernel is idle", seconds)

    def save(self) -> None:
        """Save the open notebook, as Ctrl-S does."""
        self.page.evaluate("window.jupyterapp.commands.execute('docmanager:save')")

    def shut_down(self) -> None:
        """Stop the kernel of the notebook, so that it takes no time from the next test."""
        self.page.evaluate(_SHUT_DOWN)

    def outputs(self) -> list[dict[str, Any]]:
        """All outputs of the notebook, as nbformat stores them."""
        outputs: list[dict[str, Any]] = self.page.evaluate(_OUTPUTS)
        return outputs

    def errors(self) -> list[str]:
        """`ename: evalue` of each failed cell."""
        return [f"{o['ename']}: {o['evalue']}" for o in self.outputs() if o["output_type"] == "error"]

    def ask(self, expression: str) -> str:
        """The value of an expression in the kernel, as its `repr`."""
        return str(self.page.evaluate(_ASK, expression))

    def text(self) -> str:
        """The printed output of the cells, stdout and stderr together."""
        return "".join(_joined(o["text"]) for o in self.outputs() if o["output_type"] == "stream")


class NotebookPage(LabPage):
    """A notebook in Notebook 7, which consists of Lab's parts, so that the methods of LabPage work."""

    place = "notebooks/{}"
    known_errors = ("uncaught: Cannot read properties of undefined (reading 'schema')",)
    """An error of Notebook 7.6 itself, on every notebook and without our extension: the settings of a plugin change
    before those of its shortcuts are loaded (in `pluginChanged` of the shortcuts extension)."""


class AppPage(GuardedPage):
    """The explorer alone."""

    def __init__(self, page: Page, server: AppServer, guard: Guard) -> None:
        super().__init__(page, guard)
        self.server = server

    def open(self, query: str = "") -> None:
        """Go to the page; it starts a kernel, which ends with the page."""
        self.page.goto(self.server.address.page(query))


def _joined(text: str | list[str]) -> str:
    return text if isinstance(text, str) else "".join(text)
