"""The explorer without its kernel: one line says so, above the last plan, which cannot be changed any more."""

import os
import re
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from playwright.sync_api import Locator, Page, WebSocketRoute

from tests.browser.conftest import guarded, has_failed
from tests.browser.harness.explorer import LOADED, leave_overview, seen_figure, slider
from tests.browser.harness.guard import Guard
from tests.browser.harness.kept import Chromium, KeptPage
from tests.browser.harness.page import LabPage
from tests.browser.harness.server import LabServer
from tests.plans.example import example_plan

pytestmark = [pytest.mark.browser, pytest.mark.slow]

KERNEL = "window.jupyterapp.shell.currentWidget.sessionContext.session.kernel"
NOTEBOOK = "kernel.ipynb"
CELL = LOADED.format(file="kernel.plan.json")
"""A finished plan: nothing has to be planned after each restart."""
DONE = re.compile(rb'"execution_state":\s*"idle"')
"""In the message by which the kernel says that it is done with what it was asked."""


class Connection:
    """The page's connections to its kernel, which a test can interrupt."""

    def __init__(self, lab: LabPage) -> None:
        self._open: list[WebSocketRoute] = []
        self._lost: list[str | bytes] = []
        self._interrupted = self._muted = False
        lab.page.route_web_socket("**/channels*", self._connect)

    def _connect(self, socket: WebSocketRoute) -> None:
        if self._interrupted:
            socket.close(code=1013, reason="interrupted by the test")
        else:
            server = socket.connect_to_server()
            server.on_message(lambda message: self._lost.append(message) if self._muted else socket.send(message))
            self._open.append(socket)

    def mute(self) -> None:
        """Lose all that the kernel says from now on, until `restore`."""
        self._muted = True
        self._lost.clear()

    def has_lost_an_answer(self) -> bool:
        """Whether the kernel has answered something since `mute`."""
        return any(DONE.search(m.encode() if isinstance(m, str) else m) for m in self._lost)

    def interrupt(self) -> None:
        self._interrupted = True
        while self._open:
            self._open.pop().close(code=1013, reason="interrupted by the test")

    def restore(self) -> None:
        self._interrupted = self._muted = False

    def deliver_late(self) -> int:
        """Deliver what was lost, and say how many messages these are."""
        lost, self._lost = self._lost, []
        for message in lost:
            self._open[-1].send(message)
        return len(lost)


class ConnectedPage(LabPage):
    """A page with its connection."""

    def __init__(self, page: Page, server: LabServer, guard: Guard) -> None:
        super().__init__(page, server, guard)
        self.connection = Connection(self)


@pytest.fixture(scope="module")
def kept(chromium: Chromium, lab_server: LabServer) -> Iterator[KeptPage[ConnectedPage]]:
    @contextmanager
    def open_page() -> Iterator[ConnectedPage]:
        with guarded(chromium.browser()) as (page, guard):
            lab = ConnectedPage(page, lab_server, guard)
            load_notebook(lab)
            yield lab
            lab_server.stop_kernel(NOTEBOOK)

    kept = KeptPage(chromium, open_page, NOTEBOOK)
    yield kept
    kept.close()


def load_notebook(lab: LabPage) -> None:
    example_plan().save(Path(lab.server.root) / "kernel.plan.json")
    lab.load(lab.server.write_notebook(NOTEBOOK, CELL))


@pytest.fixture
def lab_page(kept: KeptPage[ConnectedPage], request: pytest.FixtureRequest) -> Iterator[ConnectedPage]:
    """A page that these tests share, as their kernels end; in place of a new kernel each, the next one has the last."""
    with kept.page(has_failed(request.node)) as page:
        page.connection.restore()
        page.show(CELL)
        yield page


def drawn_explorer(lab: LabPage) -> Locator:
    """The only explorer of the page, with its figure."""
    explorer = lab.page.locator(".alpa-explorer")
    figure = explorer.locator(".alpa-panel:visible .js-plotly-plot")

    def drawn() -> bool:
        leave_overview(explorer, "t_max")  # once more where the cell's new output took the place of the last one
        return figure.count() > 0

    lab.wait_until(drawn, "a figure")
    lab.figure(explorer.locator(".alpa-panel:visible"))
    return explorer


def move_b(explorer: Locator) -> None:
    slider(explorer, "B, microbatches").press("ArrowRight")
    explorer.get_by_text("48 × 8").wait_for()


def run_again(lab: LabPage) -> Locator:
    """Run the cells, as a person does after a restart: the explorer is as if nothing had happened."""
    lab.run_all()
    ended = lab.page.locator(".alpa-explorer").get_by_role("alert")
    lab.wait_until(lambda: ended.count() == 0, "the last explorer is gone")
    return moved_explorer(lab)


def moved_explorer(lab: LabPage) -> Locator:
    """The explorer with another B than that of its plan file."""
    explorer = drawn_explorer(lab)
    assert lab.page.locator(".alpa-saved:visible").count() == 0
    move_b(explorer)
    return explorer


def live_controls(explorer: Locator) -> int:
    """Number of elements of the explorer that can have the focus."""
    controls = explorer.locator("button, input, select, summary, [tabindex]")
    return int(controls.evaluate_all("(all) => all.filter((control) => !control.closest('[inert]')).length"))


def check_ended(lab: LabPage, explorer: Locator, banner: str) -> None:
    """The banner, once; the plan below it as it was drawn; nothing that can be operated; no broken widgets."""
    alert = explorer.get_by_role("alert")
    alert.get_by_text(banner).wait_for()
    assert alert.inner_text() == f"{banner}: run the cell again to explore; below is the last plan."
    assert alert.count() == 1
    assert explorer.locator(".alpa-verdict:visible").count() > 0
    assert seen_figure(lab, explorer)["data"], "the figure is still there"
    assert live_controls(explorer) == 0
    broken = """(root) => [root, ...root.querySelectorAll('*')]
      .filter((e) => getComputedStyle(e, '::before').content.includes('\\uf127')).length"""
    assert explorer.evaluate(broken) == 0, "no broken icons"
    columns = explorer.locator(".alpa-body > .alpa-sliders, .alpa-body > .alpa-main")
    tops = columns.evaluate_all("(columns) => columns.map((column) => column.offsetTop)")
    assert len(tops) == 2
    assert tops[0] == tops[1], "both columns are where they were"
    lab.page.locator(".alpa-saved td").first.wait_for()
    wider = "(root) => root.getBoundingClientRect().right - root.closest('.jp-Cell').getBoundingClientRect().right"
    assert explorer.evaluate(wider) <= 0, "the table for a saved notebook does not widen it"
    before = explorer.locator(".alpa-body").inner_text()
    handle = explorer.locator("input[type=range]").nth(4)
    handle.evaluate("(slider) => slider.focus()")
    assert not handle.evaluate("(slider) => slider === document.activeElement")
    assert explorer.locator(".alpa-body").inner_text() == before


def test_a_restart_leaves_one_banner_above_the_last_plan_until_the_cell_is_run_again(lab_page: ConnectedPage) -> None:
    explorer = moved_explorer(lab_page)
    lab_page.page.evaluate(f"{KERNEL}.restart()")
    check_ended(lab_page, explorer, "Kernel restarted")
    lab_page.wait_idle()
    run_again(lab_page)


def test_a_page_that_is_loaded_again_goes_on(lab_page: ConnectedPage) -> None:
    moved_explorer(lab_page)
    lab_page.save()
    lab_page.load(NOTEBOOK)
    explorer = drawn_explorer(lab_page)
    assert explorer.get_by_role("alert").count() == 0
    assert lab_page.page.locator(".alpa-saved:visible").count() == 0
    slider(explorer, "B, microbatches").press("ArrowLeft")
    explorer.get_by_text("32 × 8").wait_for()


def test_a_kernel_that_dies_says_so(lab_page: ConnectedPage) -> None:
    explorer = moved_explorer(lab_page)
    lab_page.page.set_viewport_size({"width": 1200, "height": 900})  # narrower than the table for a saved notebook
    lab_page.rest()
    os.kill(int(lab_page.ask("__import__('os').getpid()")), signal.SIGKILL)
    check_ended(lab_page, explorer, "Kernel died")
    lab_page.page.get_by_role("dialog").get_by_role("button", name="Ok").press("Enter")
    lab_page.wait_idle()


def test_a_lost_connection_is_said_once_and_forgotten_when_it_is_back(lab_page: ConnectedPage) -> None:
    explorer, connection = moved_explorer(lab_page), lab_page.connection
    connection.interrupt()
    alert = explorer.get_by_role("alert")
    alert.get_by_text("Connection to the kernel lost: the explorer goes on when it is back").wait_for()
    assert alert.count() == 1
    assert live_controls(explorer) == 0
    connection.restore()
    alert.wait_for(state="hidden")
    slider(explorer, "B, microbatches").press("ArrowLeft")
    explorer.get_by_text("32 × 8").wait_for()
    assert lab_page.page.locator(".alpa-explorer").count() == 1


def test_a_field_whose_answer_was_lost_with_the_connection_can_be_moved_again(lab_page: ConnectedPage) -> None:
    explorer, connection = moved_explorer(lab_page), lab_page.connection
    connection.mute()
    slider(explorer, "B, microbatches").press("ArrowRight")
    lab_page.wait_until(connection.has_lost_an_answer, "the kernel has answered, which the page cannot know")
    connection.interrupt()
    alert = explorer.get_by_role("alert")
    alert.wait_for()
    connection.restore()
    alert.wait_for(state="hidden")
    slider(explorer, "B, microbatches").press("Home")
    explorer.get_by_text("1 × 8").wait_for()


def test_an_answer_that_comes_after_all_is_not_counted_twice(lab_page: ConnectedPage) -> None:
    explorer, connection = moved_explorer(lab_page), lab_page.connection
    b = slider(explorer, "B, microbatches")
    connection.mute()
    b.press("ArrowRight")
    lab_page.wait_until(connection.has_lost_an_answer, "the kernel has answered, which the page cannot know")
    connection.interrupt()
    alert = explorer.get_by_role("alert")
    alert.wait_for()
    connection.restore()
    alert.wait_for(state="hidden")
    assert connection.deliver_late()
    for key, answer in (("Home", "1 × 8"), ("ArrowRight", "2 × 8"), ("Home", "1 × 8")):
        b.press(key)
        explorer.get_by_text(answer).wait_for()
    # The widgets of Jupyter say on the console when they count more answers than edits: `lab_page` finds it.


def test_a_kernel_that_was_restarted_elsewhere_meanwhile_is_noticed(lab_page: ConnectedPage) -> None:
    explorer, connection = moved_explorer(lab_page), lab_page.connection
    identity = lab_page.page.evaluate(f"{KERNEL}.id")
    connection.interrupt()
    explorer.get_by_role("alert").wait_for()
    assert lab_page.page.request.post(lab_page.server.address.page(f"api/kernels/{identity}/restart")).ok
    connection.restore()
    explorer.get_by_text("Kernel restarted").wait_for()
    lab_page.wait_idle()


def test_a_kernel_that_is_shut_down_says_so(lab_page: ConnectedPage) -> None:
    explorer = moved_explorer(lab_page)
    lab_page.shut_down()
    check_ended(lab_page, explorer, "Kernel shut down")
