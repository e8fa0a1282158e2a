"""Records what a page must not do: request something from another machine, or report an error."""

from __future__ import annotations

import ipaddress
from collections.abc import Collection
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from playwright.sync_api import BrowserContext, ConsoleMessage, Page, Route

LATE_START = "[anywidget] Failed to initialize model."
"""anywidget says this of a widget that starts after more than two seconds. Ours work nevertheless (test_page_loads)."""
LOCAL_SCHEMES = frozenset({"about", "blob", "data"})


def is_local(url: str) -> bool:
    """True when a request for `url` cannot leave this machine."""
    parts = urlsplit(url)
    if parts.scheme in LOCAL_SCHEMES:
        return True
    host = parts.hostname or ""
    if host == "localhost" or (parts.scheme == "file" and not host):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


class Guard:
    """Aborts and records every request to another machine; records console errors and uncaught exceptions.

    `known` are the exact texts of errors that the page reports even without our widgets.
    """

    def __init__(self, context: BrowserContext, known: Collection[str] = ()) -> None:
        self.known = known
        self.foreign_requests: list[str] = []
        self.console_errors: list[str] = []
        context.route("**/*", self._judge)
        context.route_web_socket(lambda url: not is_local(url), lambda socket: self._refuse(socket.url))
        context.on("page", self._listen)

    def _judge(self, route: Route) -> None:
        if is_local(route.request.url):
            route.continue_()
        else:
            self._refuse(route.request.url)
            route.abort()

    def _refuse(self, url: str) -> None:
        # A web socket that is routed but not connected never reaches its server, so it only has to be recorded.
        self.foreign_requests.append(url)

    def _listen(self, page: Page) -> None:
        page.on("console", self._read)
        page.on("pageerror", lambda error: self._record(f"uncaught: {error}", error.stack or ""))

    def _read(self, message: ConsoleMessage) -> None:
        if message.type == "error":
            self._record(message.text)

    def _record(self, error: str, stack: str = "") -> None:
        if error not in self.known and LATE_START not in error:
            self.console_errors.append("\n".join([error, *stack.splitlines()[1:]]))

    def forget(self) -> None:
        """Forget what was recorded."""
        self.foreign_requests, self.console_errors = [], []

    def check(self) -> None:
        """AssertionError if anything was recorded since the last check: of tests that share a page, one fails."""
        foreign, errors = self.foreign_requests, self.console_errors
        self.forget()
        faults = [
            *(f"a request to another machine: {url}" for url in foreign),
            *(f"on the console: {e}" for e in errors),
        ]
        assert not faults, f"the page did what it must not: {faults}"
