"""The harness itself, on a notebook of a few lines."""

from __future__ import annotations

import pytest

from tests.browser.harness.guard import is_local
from tests.browser.harness.page import LabPage

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
    lab.open(lab.server.write_notebook("slider.ipynb", SLIDER_AND_FIGURE))
    lab.run_all()
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
    lab.open(lab.server.write_notebook("failing.ipynb", "print('before')", "1 / 0"))
    with pytest.raises(AssertionError, match="ZeroDivisionError: division by zero"):
        lab.run_all()
    assert lab.text() == "before\n"


def test_requests_to_other_machines_are_stopped_and_recorded(lab: LabPage) -> None:
    lab.open(lab.server.write_notebook("quiet.ipynb", "1"))
    lab.page.evaluate("fetch('https://example.org/leak').catch(() => null)")
    lab.page.evaluate(
        "new Promise(done => { const s = new WebSocket('wss://example.org/leak'); setTimeout(done, 300) })"
    )
    assert sorted(lab.guard.foreign_requests) == ["https://example.org/leak", "wss://example.org/leak"]
    with pytest.raises(AssertionError, match=r"example\.org"):
        lab.guard.check()
    lab.guard.foreign_requests.clear()
    lab.guard.console_errors.clear()


def test_an_error_on_the_console_is_recorded(lab: LabPage) -> None:
    lab.open(lab.server.write_notebook("noisy.ipynb", "1"))
    lab.page.evaluate("console.error('this went wrong')")
    lab.wait_until(lambda: lab.guard.console_errors == ["this went wrong"], "the error is recorded")
    lab.guard.console_errors.clear()


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
