"""The harness itself, on a notebook of a few lines."""

import pytest

from tests.browser.harness.guard import is_local
from tests.browser.harness.page import LabPage

pytestmark = [pytest.mark.browser, pytest.mark.slow]


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
