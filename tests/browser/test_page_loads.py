"""Pages that are new, that are loaded while the explorer changes, or that start slowly."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Locator

from tests.browser.conftest import guarded
from tests.browser.harness.explorer import (
    SMALL,
    figure_tabs,
    first_explorer,
    seen_figure,
    show_explorer,
    show_tab,
    slider,
    tab_titles,
    type_number,
)
from tests.browser.harness.page import LabPage
from tests.browser.harness.server import LabServer

pytestmark = [pytest.mark.browser, pytest.mark.slow]

_NO_TIME_TO_START = """
  const timeout = AbortSignal.timeout;
  AbortSignal.timeout = (limit) => timeout.call(AbortSignal, limit === 2000 ? 0 : limit);
  globalThis.late = 0;
  addEventListener("unhandledrejection", ({ reason }) => {
    if (/Failed to initialize/.test(reason)) globalThis.late += 1;
  });
"""
"""anywidget's limit for the start of a widget, 2 s, is over at once."""
_CHANGE_AFTER_STATES = """
from ipywidgets import Widget
explorer, send_states = Out[1], Widget._handle_control_comm_msg

def send_then_change(message):
    send_states(message)
    explorer.session.set(num_microbatches=explorer.settings.num_microbatches // 2)
    explorer.wait(60)

Widget._handle_control_comm_msg = send_then_change
"""
_NOTIFY = """async (message) => {
  const app = window.jupyterapp;
  await app.restored;
  await app.commands.execute('apputils:notify', { message, type: 'info', options: { autoClose: false } });
}"""
_HAS_PLUGIN = "(name) => window.jupyterapp.hasPlugin(`@jupyterlab/apputils-extension:${name}`)"
_GONE = "widget model not found"
_WIDGETS = "len(__import__('ipywidgets').Widget.widgets)"
_IMPORTED = "sorted({'torch', 'distributed'} & set(__import__('sys').modules))"


def test_a_new_page_offers_no_news_gets_plotly_once_stores_little_and_a_new_kernel_reads_the_known_plan(
    own_lab: LabPage,
) -> None:
    lab, asked, received = own_lab, [], []
    lab.page.on("request", lambda request: asked.append(request.url))
    lab.page.on("websocket", lambda socket: socket.on("framereceived", lambda payload: received.append(len(payload))))
    name = lab.server.write_notebook("new.ipynb", SMALL)
    lab.load(name)
    check_no_news(lab, asked)
    lab.run_all()
    explorer = first_explorer(lab)
    check_figures_follow_the_plan(lab, explorer, received)
    check_saved(lab, explorer, name)
    lab.show(SMALL)  # in a new kernel
    assert "read from the cache" in first_explorer(lab).locator(".alpa-plan-button").inner_text()
    assert lab.ask(_IMPORTED) == "[]", "neither torch nor workers are needed"
    # Lab says of a stored widget that its kernel is gone; the table is shown in its place.
    lab.guard.console_errors = [error for error in lab.guard.console_errors if _GONE not in error]


def check_no_news(lab: LabPage, asked: list[str]) -> None:
    # Notices are shown in the order in which they are made, the offer once the page is restored: so before this one.
    lab.page.evaluate(_NOTIFY, "After the offer")
    lab.page.locator(".Toastify__toast", has_text="After the offer").wait_for()
    plugins = [lab.page.evaluate(_HAS_PLUGIN, name) for name in ("notification", "announcements")]
    assert plugins == [True, False], "what makes the offer is not there"
    assert len(lab.page.locator(".Toastify__toast").all_inner_texts()) == 1
    assert lab.page.get_by_text("Jupyter news").count() == 0
    assert not [url for url in asked if "/api/news" in url]


def check_figures_follow_the_plan(lab: LabPage, explorer: Locator, received: list[int]) -> None:
    """The page gets the library once, while the overview is read; every tab has a figure that follows the plan."""
    lab.wait_until(lambda: any(size > 1e6 for size in received), "plotly came before a tab was opened")
    before: dict[str, object] = {}
    for name in figure_tabs(explorer):
        show_tab(explorer, name, key="Enter")
        if name in ("Fit & scale", "Layouts"):  # they are about transformers
            explorer.locator(".alpa-finding:visible").wait_for()
        elif name == "Accuracy":  # it shows measured runs, whatever the plan is
            explorer.locator(".alpa-finding:visible", has_text="measured").wait_for()
        else:
            if name == "Sharding":  # its matrix is a figure of plotly, its graph is not
                explorer.locator(".alpa-flow-canvas:visible").wait_for()
                explorer.locator(".alpa-panel:visible").get_by_role("combobox", name="View").select_option("matrix")
            lab.wait_until(lambda: bool(seen_figure(lab, explorer)["data"]), f"{name} was drawn")
            before[name] = seen_figure(lab, explorer)["data"]
    large = [size for size in received if size > 40_000]  # a slow machine gets more of the small ones, of progress
    assert sum(size > 1e6 for size in large) == 1
    assert sum(large) < 2.5e6, f"{sum(large) / 1e6:.1f} MB came over the websocket in large messages"

    type_number(explorer, "Layers", "3")
    slider(explorer, "B, microbatches").press("ArrowRight")
    explorer.get_by_text("12 × 8").wait_for()
    explorer.get_by_role("button", name="Plan", exact=True).press("Enter")
    lab.wait_until(lambda: explorer.locator(".alpa-stale").count() == 0, "the plan is up to date")
    for name, data in before.items():
        show_tab(explorer, name)
        lab.wait_until(lambda: seen_figure(lab, explorer)["data"] != data, f"{name} follows the plan")  # noqa: B023


def check_saved(lab: LabPage, explorer: Locator, name: str) -> None:
    """The stored notebook is small, and shows the explorer while its kernel lives, also what changed while the page was
    loaded, and a table after."""
    lab.wait_until(lambda: any("B = 12" in str(o.get("data")) for o in lab.outputs()), "the table follows the plan")
    assert lab.page.locator(".alpa-saved:visible").count() == 0, "no table while the explorer itself is there"
    lab.wait_until(lambda: any("image/svg+xml" in o.get("data", {}) for o in lab.outputs()), "the picture is there")
    assert lab.page.locator(".jp-RenderedSVG:visible").count() == 0, "and no picture"
    lab.save()
    stored = lab.server.root / name
    lab.wait_until(lambda: "B = 12" in stored.read_text(), "the notebook is stored")
    assert stored.stat().st_size < 200_000

    assert lab.ask("Out[1].bridge.loads") == "0", "the page was there before the explorer"
    headline = explorer.locator(".alpa-time").inner_text()
    assert not (error := lab.do(_CHANGE_AFTER_STATES)), error
    lab.load(name)
    first_explorer(lab)  # after a reload the page shows the explorer of the kernel, which still runs
    explorer.get_by_text("6 × 8").wait_for()
    b = slider(explorer, "B, microbatches")
    lab.wait_until(lambda: b.get_attribute("aria-valuetext") == "6", "the page shows the B of now")
    lab.wait_until(lambda: explorer.locator(".alpa-time").inner_text() != headline, "and its headline")
    assert lab.ask("Out[1].bridge.loads") == "1"
    lab.wait_until(lambda: lab.ask("Out[1].bridge.views") == "1", "the page that was left has reported it")
    lab.guard.check()
    lab.shut_down()
    lab.page.goto("about:blank")
    lab.guard.console_errors.clear()  # Lab reports the kernel that was shut down as an error
    lab.load(name)
    lab.page.locator(".alpa-saved td").first.wait_for()
    picture = lab.page.locator(".jp-RenderedSVG img")
    picture.wait_for()
    lab.wait_until(lambda: picture.evaluate("(image) => image.naturalWidth") > 500, "the picture is drawn")
    assert lab.page.locator(".alpa-explorer").count() == 0


@pytest.fixture
def slow_lab(browser: Browser, lab_server: LabServer) -> Iterator[LabPage]:
    """A page on which every widget starts too late for anywidget."""
    with guarded(browser) as (page, guard):
        page.add_init_script(_NO_TIME_TO_START)
        lab = LabPage(page, lab_server, guard)
        yield lab
        guard.check()
        lab.shut_down()


def test_widgets_that_start_late_follow_the_kernel(slow_lab: LabPage) -> None:
    lab = slow_lab
    lab.load(lab.server.write_notebook("late.ipynb", SMALL))
    lab.run_all()
    explorer = first_explorer(lab)
    assert lab.page.evaluate("globalThis.late") > 20, "widgets start too late"
    headline = explorer.locator(".alpa-time").inner_text()
    show_tab(explorer, "t_max")
    lab.figure(explorer.locator(".alpa-panel:visible"))
    before = seen_figure(lab, explorer)["data"]
    slider(explorer, "B, microbatches").press("ArrowRight")
    lab.wait_until(lambda: explorer.locator(".alpa-time").inner_text() != headline, "the headline follows")
    lab.wait_until(lambda: seen_figure(lab, explorer)["data"] != before, "B moves the figure")
    assert lab.ask("_1.tabs.selected") == lab.ask("_1.panels.at('t_max')")


def test_the_first_visit_of_a_tab_asks_the_kernel_no_more_than_a_later_one_which_makes_nothing(lab: LabPage) -> None:
    explorer = show_explorer(lab, SMALL)

    def visit(title: str) -> tuple[int, int]:
        """(messages to the kernel, widgets that are made) until all of the tab is drawn."""
        lab.rest()
        asked, made = lab.counts()["asked"], int(lab.ask(_WIDGETS))
        show_tab(explorer, title)
        lab.rest()
        return lab.counts()["asked"] - asked, int(lab.ask(_WIDGETS)) - made

    titles = tab_titles(explorer)
    first = {title: visit(title) for title in titles[1:]}
    again = {title: visit(title) for title in titles}
    assert sum(asked for asked, _ in first.values()) <= 2 * len(first) + 1, "the page asks for plotly once"
    assert again == dict.fromkeys(titles, (2, 0))
    assert sum(made for _, made in first.values()) < 450
