"""A browser page: the explorer alone, or a notebook that is opened, run and read."""

from collections.abc import Callable
from typing import Any

from playwright.sync_api import Locator, Page

from tests.browser.harness.guard import Guard
from tests.browser.harness.server import AppServer, LabServer
from tests.waiting import LIMIT_SECONDS, patience, until

WIDE = (1400, 900)
"""The window of a page at the start of a test, in pixels."""
LIGHT, DARK = "JupyterLab Light", "JupyterLab Dark"
PLOT = ".js-plotly-plot"

# Cells are read from Lab's own model: the DOM holds only the cells on screen.
_NOTEBOOK = "window.jupyterapp.shell.currentWidget"
_READY = """(path) => {
  const { context } = window.jupyterapp?.shell?.currentWidget ?? {};
  return Boolean(context?.isReady && context.path === path && !document.querySelector('#jupyterlab-splash'));
}"""
_KERNEL = f"() => {_NOTEBOOK}?.sessionContext.session?.kernel?.status ?? 'none'"
_CONNECTION = f"() => {_NOTEBOOK}?.sessionContext.session?.kernel?.connectionStatus ?? 'none'"
_OPEN = "(path) => window.jupyterapp.commands.execute('docmanager:open', { path }).then(() => null)"
_CLOSE_OTHERS = """async (kept) => {
  const { commands, shell, serviceManager } = window.jupyterapp;
  await serviceManager.sessions.refreshRunning(); // else a session that another page has ended stays for a while
  const { sessionContext } = [...shell.widgets('main')].find(({ context }) => context?.path === kept);
  const stopped = !sessionContext.session?.kernel; // by the test before
  if (stopped) await sessionContext.startKernel();
  for (const widget of [...shell.widgets('main')].filter(({ context }) => context?.path !== kept)) {
    await widget.sessionContext?.shutdown();
    widget.dispose();
  }
  if (shell.currentWidget?.context?.path !== kept) await commands.execute('docmanager:open', { path: kept });
  return stopped;
}"""
_REPLACE_CELLS = f"""(sources) => {{
  const {{ model }} = {_NOTEBOOK}.content, shared = model.sharedModel;
  const cells = sources.map((source) => ({{ cell_type: 'code', source, metadata: {{}}, outputs: [] }}));
  shared.transact(() => {{
    shared.deleteCellRange(0, shared.cells.length);
    shared.insertCells(0, cells);
  }});
}}"""
_RUN_ALL = """async (limit) => {
  const late = new Promise((_, refuse) => setTimeout(refuse, limit, new Error(`cells still run after ${limit} ms`)));
  await Promise.race([window.jupyterapp.commands.execute('notebook:run-all-cells'), late]);
}"""
_NEW = """
import sys
if "ipywidgets" in sys.modules:
    sys.modules["ipywidgets"].Widget.close_all()
get_ipython().reset(new_session=True)
"""
"""The kernel as if it were new, but for what it has imported: no widgets, no names, and the next cell is number 1."""
_EXECUTE = f"""async (code) => {{
  const {{ content }} = await {_NOTEBOOK}.sessionContext.session.kernel.requestExecute({{ code }}).done;
  return content.status === 'error' ? `${{content.ename}}: ${{content.evalue}}` : '';
}}"""
_ASK = f"""(asked) => {_NOTEBOOK}.sessionContext.session.kernel
  .requestExecute({{ code: '', silent: true, user_expressions: {{ asked }} }}).done
  .then(({{ content: {{ user_expressions: {{ asked: found }} }} }}) => found.data?.['text/plain'] ?? found.evalue)"""
_SHUT_DOWN = "() => window.jupyterapp?.shell?.currentWidget?.sessionContext?.shutdown()"
_OUTPUTS = f"() => {_NOTEBOOK}.content.model.toJSON().cells.flatMap((cell) => cell.outputs ?? [])"
_THEME = "(theme) => window.jupyterapp.commands.execute('apputils:change-theme', { theme })"
_HAS_THEME = """(theme) => document.body.dataset.jpThemeName === theme
  && !document.querySelector('#jupyterlab-splash')"""
_DRAWN = "(plot) => Boolean(plot._fullLayout && plot.calcdata)"
_COUNTS = "() => globalThis.alpaExplore ?? { asked: 0, answered: 0, begun: 0, drawn: 0 }"
# A change of a size is known to the page in the frame after it, and what it makes of that is drawn in the next one.
_COUNTS_AFTER_FRAMES = f"""async () => {{
  for (let frame = 0; frame < 2; frame += 1) await new Promise(requestAnimationFrame);
  return ({_COUNTS})();
}}"""
_FIGURE = """(plot) => {
  const plain = (_key, value) => (ArrayBuffer.isView(value) ? Array.from(value) : value);
  return JSON.parse(JSON.stringify({ data: plot.data, layout: plot.layout }, plain));
}"""


class GuardedPage:
    """`page` is playwright's page, for everything that has no method here."""

    def __init__(self, page: Page, guard: Guard) -> None:
        self.page = page
        self.guard = guard
        self.be_patient()

    def be_patient(self) -> None:
        """Give what playwright waits for as much time as `until` would give it on this machine now."""
        self.page.set_default_timeout(1000 * LIMIT_SECONDS * patience())

    def figure(self, within: Locator | None = None, index: int = 0) -> Locator:
        """The plotly figure at `index` of the page, or `within` a part of it, once it is drawn."""
        plot = (within or self.page).locator(PLOT).nth(index)
        plot.wait_for(state="visible")
        self.wait_until(lambda: plot.evaluate(_DRAWN), "the figure is drawn")
        return plot

    def read_figure(self, plot: Locator) -> dict[str, Any]:
        """`{"data": …, "layout": …}` of a drawn figure, arrays as lists."""
        figure: dict[str, Any] = plot.evaluate(_FIGURE)
        return figure

    def wait_guarded(self) -> None:
        """Until keys that are pressed in an explorer, or beside a figure of the course, are no commands of Lab:
        its bridge starts in a frame of its own, which may come after its controls and figures are on screen."""
        self.page.locator('.alpa-bridge[role="alert"]').first.wait_for(state="attached")

    def counts(self) -> dict[str, int]:
        """What the explorers of the page have done so far: `alpaExplore` in helpers.js says what is counted."""
        counts: dict[str, int] = self.page.evaluate(_COUNTS)
        return counts

    def wait_drawn(self) -> None:
        """Until every picture is on screen as it is to be: no figure is drawn, unpacked, resized or faded any more."""
        self._wait_equal("begun", "drawn")

    def wait_answered(self) -> None:
        """Until the kernel has answered everything that the page asked, and the page has what it answered. What the
        kernel does in threads may go on: wait for its result on the page."""
        self._wait_equal("asked", "answered")

    def rest(self) -> None:
        """Until nothing is under way between page and kernel, nor on the page."""
        self.wait_answered()
        self.wait_drawn()

    def _wait_equal(self, more: str, fewer: str) -> None:
        counts: dict[str, int] = {}

        def equal() -> bool:
            counts.update(self.page.evaluate(_COUNTS_AFTER_FRAMES))
            return counts[more] == counts[fewer]

        self.wait_until(equal, lambda: f"as many {fewer} as {more}: {counts}")

    def wait_until(
        self, holds: Callable[[], bool], what: str | Callable[[], object], seconds: float = LIMIT_SECONDS
    ) -> None:
        """`until`, during which the page works."""
        until(holds, what, seconds=seconds, pause=lambda pause: self.page.wait_for_timeout(1000 * pause))


class LabPage(GuardedPage):
    """A notebook in JupyterLab."""

    place = "lab/tree/{}?reset"
    """Path of a notebook, opened in an empty workspace."""

    def __init__(self, page: Page, server: LabServer, guard: Guard) -> None:
        super().__init__(page, guard)
        self.server = server
        self._is_new = False
        self.shown: tuple[object, ...] = ()
        """The cells that `show` has run, while nothing else took their place."""

    def load(self, notebook: str) -> None:
        """Load the page with a notebook in `server.root`, and wait until its kernel is idle."""
        self.shown = ()
        self.page.goto(self.server.address.page(self.place.format(notebook)))
        self._wait_for_notebook(notebook)

    def open(self, notebook: str) -> None:
        """Open a notebook in `server.root` beside those of the loaded page, and wait until its kernel is idle."""
        self.page.evaluate(_OPEN, notebook)
        self._wait_for_notebook(notebook)

    def _wait_for_notebook(self, notebook: str) -> None:
        self.wait_until(lambda: self.page.evaluate(_READY, notebook), "the notebook is on screen")
        self.wait_idle()

    def show(self, *cells: str) -> None:
        """Run these cells in the open notebook in place of all others, as in a new kernel that has imported all."""
        if not self._is_new:
            self._empty()
        self._is_new = False
        self.page.evaluate(_REPLACE_CELLS, list(cells))
        self.run_all()
        self.shown = cells

    def do(self, code: str) -> str:
        """Run code in the kernel; returns its error, '' for none."""
        return str(self.page.evaluate(_EXECUTE, code))

    def _empty(self) -> None:
        """Remove the cells, and what they made in the kernel."""
        self.shown = ()
        self.page.evaluate(_REPLACE_CELLS, [])
        self.rest()  # what the last cells still send would find no widget any more
        assert not (error := self.do(_NEW)), error
        self.rest()
        self._is_new = True

    def run_all(self) -> None:
        """Run all cells; AssertionError with the error of a cell that fails."""
        self.page.evaluate(_RUN_ALL, 1000 * LIMIT_SECONDS * patience())
        self.wait_idle()
        assert not (errors := self.errors()), "cells failed:\n" + "\n".join(errors)

    def wait_idle(self) -> None:
        """Wait until the kernel of the open notebook is idle; else AssertionError with its state."""

        def describe() -> str:
            state, connection = self.page.evaluate(_KERNEL), self.page.evaluate(_CONNECTION)
            return f"the kernel is {state}, its connection {connection}; the server:\n{self.server.log_end()}"

        self.wait_until(lambda: self.page.evaluate(_KERNEL) == "idle", describe)

    def save(self) -> None:
        """Save the open notebook, as Ctrl-S does."""
        self.page.evaluate("window.jupyterapp.commands.execute('docmanager:save')")

    def set_theme(self, theme: str) -> None:
        """Change the theme of the page. JupyterLab takes no other one while one is being loaded."""
        self.page.evaluate(_THEME, theme)
        self.wait_until(lambda: self.page.evaluate(_HAS_THEME, theme), f"the page has the theme {theme}")

    def make_new(self, notebook: str, *, empty: bool = True) -> None:
        """The page and its kernel as if they were new, with nothing in this notebook, and no other one open. Without
        `empty` its cells stay, and what they made in the kernel."""
        self.be_patient()
        self.page.set_viewport_size({"width": WIDE[0], "height": WIDE[1]})
        self.page.mouse.move(0, 0)
        if self.page.evaluate(_CLOSE_OTHERS, notebook):
            self.shown = ()
        self._wait_for_notebook(notebook)
        if not self.page.evaluate(_HAS_THEME, LIGHT):
            self.set_theme(LIGHT)
        if empty:
            self._empty()
        # Of notebooks and widgets that were closed: Lab reports a kernel that is shut down as an error.
        self.guard.forget()

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

    def load(self, query: str = "") -> None:
        """Go to the page; it starts a kernel, which ends with the page."""
        self.page.goto(self.server.address.page(query))


def _joined(text: str | list[str]) -> str:
    return text if isinstance(text, str) else "".join(text)
