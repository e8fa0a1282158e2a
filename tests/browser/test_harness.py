"""The harness itself, on a notebook of a few lines."""

from __future__ import annotations

import pytest

from tests.browser.harness.guard import is_local
from tests.browser.harness.kept import KeptPage
from tests.browser.harness.page import DARK, LIGHT, PLOT, LabPage

SLIDER_AND_FIGURE = """
import ipywidgets, plotly.graph_objects as go
figure = go.FigureWidget(go.Bar(y=[1, 2, 3]), layout={"title": "factor 1"})
figure._config = {"showSendToCloud": False, "displaylogo": False}
slider = ipywidgets.IntSlider(value=1, min=1, max=9, description="factor")

def scale(change):
    with figure.batch_update():
        figure.data[0].y = [change["new"] * y for y in (1, 2, 3)]
        figure.layout.title.text = f"factor {change['new']}"

slider.observe(scale, "value")
ipywidgets.VBox([slider, figure])
"""

pytestmark = [pytest.mark.browser, pytest.mark.slow]


def test_a_slider_moved_by_keyboard_changes_the_figure(lab: LabPage) -> None:
    lab.show(SLIDER_AND_FIGURE)
    plot = lab.figure()
    assert lab.read_figure(plot)["data"][0]["y"] == [1, 2, 3]

    handle = lab.page.locator(".noUi-handle")
    handle.focus()
    handle.press("ArrowRight")
    handle.press("ArrowRight")

    lab.wait_until(lambda: lab.read_figure(plot)["data"][0]["y"] == [3, 6, 9], "the bars are three times as high")
    assert lab.read_figure(plot)["layout"]["title"]["text"] == "factor 3"
    assert handle.get_attribute("aria-valuenow") == "3.0"


def test_a_failing_cell_is_reported_with_its_error(lab: LabPage) -> None:
    with pytest.raises(AssertionError, match="ZeroDivisionError: division by zero"):
        lab.show("print('before')", "1 / 0")
    assert lab.text() == "before\n"


def test_requests_to_other_machines_are_stopped_and_recorded(lab: LabPage) -> None:
    lab.page.evaluate("fetch('https://example.org/leak').catch(() => null)")
    lab.page.evaluate("{ new WebSocket('wss://example.org/leak'); }")
    both = ["https://example.org/leak", "wss://example.org/leak"]
    lab.wait_until(lambda: sorted(lab.guard.foreign_requests) == both, "both are recorded")
    lab.wait_until(lambda: bool(lab.guard.console_errors), "Chromium reports the request that failed")
    with pytest.raises(AssertionError, match=r"example\.org"):
        lab.guard.check()


def test_an_error_on_the_console_is_recorded(lab: LabPage) -> None:
    lab.page.evaluate("console.error('this went wrong')")
    lab.wait_until(lambda: lab.guard.console_errors == ["this went wrong"], "the error is recorded")
    lab.guard.forget()


@pytest.mark.sweep(kept=0)  # without it other tests fail
def test_the_shared_page_is_made_new_for_each_test_and_another_one_after_a_failure(kept_lab: KeptPage[LabPage]) -> None:
    with kept_lab.page() as page:
        page.show(SLIDER_AND_FIGURE)
        page.figure()
        page.set_theme(DARK)
        page.page.set_viewport_size({"width": 700, "height": 500})
    with kept_lab.page(failed=lambda: True) as same:
        assert same is page
        assert same.ask("'slider' in globals()") == "False"
        assert same.page.locator(PLOT).count() == 0
        assert same.page.locator("body").get_attribute("data-jp-theme-name") == LIGHT
        assert same.page.viewport_size == {"width": 1400, "height": 900}
        process = same.ask("__import__('os').getpid()")
    with kept_lab.page() as another:
        assert page.page.is_closed()
        assert another.ask("__import__('os').getpid()") != process


@pytest.mark.parametrize(
    ("url", "local"),
    [
        ("http://127.0.0.1:8888/lab", True),
        ("http://127.8.0.1/", True),
        ("http://[::1]:1/", True),
        ("ws://localhost:8888/api", True),
        ("blob:http://127.0.0.1/1", True),
        ("data:text/plain,x", True),
        ("https://cdn.jsdelivr.net/npm/x", False),
        ("http://127.0.0.1.example.org/", False),
        ("http://10.0.0.1/", False),
        ("file:///tmp/site/index.html", True),  # the course is read without a server
        ("file://server/share/index.html", False),
    ],
)
def test_only_loopback_counts_as_this_machine(url: str, local: bool) -> None:
    assert is_local(url) is local
